"""The arguments of AMQP 0-9-1 consumers that a receiver's link may use too.

The names and values are the same. The arguments are properties of the attach, or filters of its source. A
filter's name is its descriptor, or its key if it has no descriptor. `amqpd:` may replace the `x-` of a name.
Options that ActiveMQ's clients write after an address count too, as in `queue://Q?consumer.exclusive=true`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, final

from broker.core.arguments.consumer import (
    ALSO_CONSUME,
    BROWSE,
    BROWSE_FROM,
    CONSUMER_RULES,
    EXCLUSIVE_CONSUMER,
    NOTIFY_ACTIVE,
    PRIORITY,
    check_combination,
    check_consumer_arguments,
)
from broker.core.arguments.queue import CONSUMER_TIMEOUT
from broker.core.errors import PreconditionFailed
from broker.core.queues.queue import Queue
from broker.core.values import show
from protocol.amqp10.addresses import AddressError
from protocol.amqp10.conditions import INVALID_FIELD, PeerError
from protocol.amqp10.performatives import Attach
from protocol.amqp10.types import Array, Timestamp

EXCLUSIVE: Final = "exclusive"  # no argument, but a bit of basic.consume
NAMES: Final = (*CONSUMER_RULES, BROWSE, BROWSE_FROM, EXCLUSIVE)
"""The arguments of a link, and their checks."""

FILTERS: Final = {name: name for name in NAMES} | {"amqpd:" + name.removeprefix("x-"): name for name in NAMES}
"""The names by the descriptors of filters."""

_PROPERTIES: Final = {name: name for name in NAMES} | {
    "rabbitmq:priority": PRIORITY,
    "priority": PRIORITY,
    "rabbitmq:consumer-timeout": CONSUMER_TIMEOUT,
}
"""The names by the properties of links, RabbitMQ's and Qpid's included."""

_CONSUMER: Final = "consumer."
_OPTIONS: Final = {_CONSUMER + "exclusive": EXCLUSIVE_CONSUMER, _CONSUMER + "priority": PRIORITY}
_REFUSED: Final = {
    _CONSUMER + "selector": "apache.org:selector-filter:string",
    _CONSUMER + "noLocal": "apache.org:no-local-filter:list",
}
"""ActiveMQ's options that are filters; to ignore them would deliver other messages, so they are refused."""


@final
class LinkArguments:
    """The arguments of a receiver's link.

    `arguments`: the arguments of basic.consume. `exclusive`: the link asks to be the queue's only consumer.
    `properties`: the properties of the attach with arguments, for the answer.
    """

    def __init__(self) -> None:
        self.arguments: dict[str, object] = {}
        self.exclusive = False
        self.properties: dict[str, object] = {}

    def add(self, name: str, value: object, where: str) -> None:
        """Add an argument; `where` describes its place in errors. Raises PeerError."""
        plain = plain_value(value)
        if name == ALSO_CONSUME and isinstance(plain, str):
            plain = [plain]  # a multiple field may have a single value [amqp-1.0 1.3.2]
        if name in self.arguments and self.arguments[name] != plain:
            both = f"'{show(self.arguments[name])}' and '{show(plain)}'"
            raise PeerError(INVALID_FIELD, f"{where} asks for '{name}' with two values, {both}")
        self.arguments[name] = plain

    def check(self, queue: str, vhost: str) -> None:
        """Check the arguments for the first queue of the link, by its name. Raises PeerError.

        The queue may not exist yet.
        """
        where = f"queue '{queue}' in vhost '{vhost}'"
        exclusive = self.arguments.pop(EXCLUSIVE, False)
        if not isinstance(exclusive, bool):
            raise PeerError(
                INVALID_FIELD, f"'{EXCLUSIVE}' of the link is '{show(exclusive)}', expected a boolean"
            )
        self.exclusive = exclusive
        try:
            check_consumer_arguments(self.arguments, where)
        except PreconditionFailed as error:
            raise PeerError(INVALID_FIELD, error.text) from error

    def check_for_queue(self, queue: Queue) -> None:
        """Check that the arguments go together, and with a queue of the link. Raises PeerError."""
        try:
            check_combination(
                self.arguments,
                self.exclusive,
                queue.arguments,
                f"queue '{queue.name}' in vhost '{queue.vhost}'",
            )
        except PreconditionFailed as error:
            raise PeerError(INVALID_FIELD, error.text) from error

    @property
    def notified_queue(self) -> str:
        """The queue that is notified when the link becomes active; "": none."""
        name = self.arguments.get(NOTIFY_ACTIVE, "")
        return name if isinstance(name, str) else ""


def link_arguments(
    attach: Attach, filters: Mapping[str, object], options: Mapping[str, str]
) -> LinkArguments:
    """Gather the arguments of a link; only duplicates are checked.

    `filters`: by their names. `options`: the options of the source's address.
    Raises PeerError and AddressError.
    """
    requested = LinkArguments()
    for name, value in (attach.properties or {}).items():
        known = _PROPERTIES.get(name)
        if known is not None and value is not None:
            requested.add(known, value, f"property '{name}' of the link")
            requested.properties[name] = value
    for name, value in filters.items():
        requested.add(name, value, f"filter '{name}'")
    for option, text in options.items():
        if option in _REFUSED:
            raise AddressError(
                f"option '{option}' is not supported in an address: use filter {_REFUSED[option]}"
            )
        if option in _OPTIONS:
            requested.add(_OPTIONS[option], _option(option, text), f"option '{option}' of the address")
    return requested


def plain_value(value: object) -> object:
    """Return a value of AMQP 1.0 as an argument of AMQP 0-9-1."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Timestamp):
        try:
            return datetime.fromtimestamp(value / 1000, UTC)
        except (ValueError, OverflowError, OSError):
            return int(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Array):
        return [plain_value(item) for item in value.items]
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    return value


def _option(option: str, text: str) -> object:
    """Return the value of an ActiveMQ option. Raises AddressError."""
    if option == _CONSUMER + "exclusive":
        if text not in ("true", "false"):
            raise AddressError(f"option '{option}' of an address is '{text}', expected true or false")
        return text == "true"
    try:
        return int(text)
    except ValueError as error:
        raise AddressError(f"option '{option}' of an address is '{text}', expected an integer") from error
