"""The comparison of a redeclaration with the object that already exists. [RabbitMQ equivalence]"""

from __future__ import annotations

from broker.core.arguments.partition import NOT_COMPARED
from broker.core.arguments.queue import (
    ALTERNATE_EXCHANGE,
    DEFAULT_QUEUE_TYPE,
    DELAYED_TYPE,
    QUEUE_RULES,
    QUEUE_TYPE,
)
from broker.core.arguments.remote import OPTIONAL
from broker.core.arguments.rule import Arguments, shown_argument
from broker.core.errors import Inequivalent
from broker.core.values import show, type_name


def assert_same_field(name: str, current: object, received: object, owner: str) -> None:
    """Compare a property in a redeclaration with the property of the existing object.

    Raises:
        Inequivalent: the two differ.
    """
    if current != received:
        raise _inequivalent(name, owner, f"'{show(received)}'", f"'{show(current)}'")


def assert_same_queue_arguments(current: Arguments, received: Arguments, queue: str) -> None:
    """Compare the arguments in a redeclaration with those of the existing queue.

    Unknown arguments do not count, nor do the members of a partitioned queue, which operators change, nor
    does the place of a remote queue, if the redeclaration names none. The log-in in the URI of a remote queue
    does not count either: the answer would tell whether it was guessed.

    Raises:
        Inequivalent: the argument that differs, and both values.
    """
    for name in QUEUE_RULES:
        if name in NOT_COMPARED or (name in OPTIONAL and name not in received):
            continue
        _assert_same_argument(name, current, received, queue)


def assert_same_exchange_arguments(current: Arguments, received: Arguments, exchange: str) -> None:
    """Compare the alternate exchange and `x-delayed-type` in a redeclaration with the existing exchange's.

    [RabbitMQ compares the alternate exchange only]

    Raises:
        Inequivalent: the argument and both values.
    """
    for name in (ALTERNATE_EXCHANGE, DELAYED_TYPE):
        _assert_same_argument(name, current, received, exchange)


def _assert_same_argument(name: str, current: Arguments, received: Arguments, owner: str) -> None:
    if name in current and name in received:
        old = shown_argument(name, current[name])
        new = shown_argument(name, received[name])
        if _type_class(old) != _type_class(new) or old != new:
            raise _inequivalent(name, owner, f"'{show(new)}'", f"'{show(old)}'")
    elif name in current or name in received:
        only = current[name] if name in current else received[name]
        if name == QUEUE_TYPE and only == DEFAULT_QUEUE_TYPE:
            return
        raise _inequivalent(name, owner, _typed(name, received), _typed(name, current))


def _type_class(value: object) -> str:
    name = type_name(value)
    return "int" if name in ("signedint", "long") else name


def _typed(name: str, arguments: Arguments) -> str:
    if name not in arguments:
        return "none"
    value = shown_argument(name, arguments[name])
    return f"the value '{show(value)}' of type '{type_name(value)}'"


def _inequivalent(name: str, owner: str, received: str, current: str) -> Inequivalent:
    return Inequivalent(
        f"inequivalent arg '{name}' for {owner}: received {received} but current is {current}"
    )
