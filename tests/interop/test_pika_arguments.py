"""Arguments: an invalid argument is refused with 406, which names it and its value."""

from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from broker.core.arguments.consumer import BROWSE, BROWSE_FROM, CONSUMER_RULES, SELECTOR
from broker.core.arguments.queue import QUEUE_RULES
from broker.core.arguments.rule import ANY_SIZE, ArgumentRule, shown_argument
from broker.core.values import show
from tests.support.docs.documents import PAGES

pytestmark = pytest.mark.amqpd_only("most of them are amqpd's own")

OF_NO_TEXT: tuple[Any, ...] = (1, True, b"\xff", {})
SENSELESS: dict[str, tuple[Any, ...]] = {
    "int": ("1", True, {}),
    "number": ("1", True, {}),
    "bool": ("true", 1, {}),
    "names": ("q", [1], [""]),
    "members": ("q", [1], []),
    "pins": ("q", 1),
    "str": OF_NO_TEXT,
    "short": (*OF_NO_TEXT, "x" * 256),
    "name": (*OF_NO_TEXT, ""),
    "header": (*OF_NO_TEXT, "", "x" * 256),
    "headers": (*OF_NO_TEXT, "", "a,", "a,a"),
    "set": (*OF_NO_TEXT, "", "no such thing"),
    "age": (*OF_NO_TEXT, "7", "D"),
}
"""Invalid values for each kind of argument."""


def senseless(rule: ArgumentRule) -> list[Any]:
    """Values that an argument cannot have."""
    values = list(SENSELESS[rule.kind])
    if rule.kind == "int":
        values += [rule.low - 1] + ([] if rule.high == ANY_SIZE else [rule.high + 1])
    return values + (["no such thing"] if rule.choices else [])


def refused(
    connection: pika.BlockingConnection,
    argument: str,
    value: object,
    ask: Callable[[BlockingChannel, dict[str, Any]], object],
) -> None:
    """Check that the channel is closed with an error that names this argument and its value."""
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        ask(connection.channel(), {argument: value})
    assert closed.value.reply_code == 406
    text = closed.value.reply_text
    assert text.startswith(f"PRECONDITION_FAILED - invalid arg '{argument}' for queue "), text
    seen = show(shown_argument(argument, value))  # octets that may be a log-in are not shown
    assert f": '{seen[:40]}" in text, (value, text)


def test_arguments_of_queues(connection: pika.BlockingConnection, name: str) -> None:
    def declare(channel: BlockingChannel, arguments: dict[str, Any]) -> None:
        channel.queue_declare(name, arguments=arguments)

    for argument, rule in QUEUE_RULES.items():
        for value in senseless(rule):
            refused(connection, argument, value, declare)


def test_arguments_of_consumers(connection: pika.BlockingConnection, name: str) -> None:
    def consume(channel: BlockingChannel, arguments: dict[str, Any]) -> None:
        channel.basic_consume(name, lambda *_: None, arguments=arguments)

    connection.channel().queue_declare(name, exclusive=True)
    wrong = {argument: senseless(rule) for argument, rule in CONSUMER_RULES.items()}
    wrong |= {BROWSE: ["yes", 1], BROWSE_FROM: ["end", -1, True, {}], SELECTOR: [1, b"\xff"]}
    for argument, values in wrong.items():
        for value in values:
            refused(connection, argument, value, consume)


def test_the_documentation_names_all_arguments() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    names = [*QUEUE_RULES, *CONSUMER_RULES, BROWSE, BROWSE_FROM, SELECTOR]
    assert [name for name in names if f"`{name}`" not in text] == []
