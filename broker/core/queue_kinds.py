"""The kinds of queues. [Qpid queue types]

A kind is a line of the table here and a list class in `stream_list.LISTS`.
"""

from __future__ import annotations

from typing import Final, final

from broker.core import fifo_list, last_value_list, priority_list, sorted_list
from broker.core.argument_rule import ArgumentRule, Arguments, invalid
from broker.core.last_value_list import LAST_VALUE_KEY
from broker.core.sorted_list import SORT_KEY

QUEUE_KIND: Final = "x-queue-kind"
STANDARD: Final = "standard"
PRIORITY_KIND: Final = "priority"
SORTED_KIND: Final = "sorted"
LAST_VALUE_KIND: Final = "last-value"

NON_DESTRUCTIVE: Final = "x-non-destructive"
QUEUE_TYPE: Final = "x-queue-type"
STREAM: Final = "stream"

Rules = dict[str, ArgumentRule]


@final
class Kind:
    """A kind of queues.

    `rules`: the arguments that only this kind may have. `needs`: the argument that it must have, "" for none.
    The class of its list is in `LISTS`.
    """

    def __init__(self, rules: Rules, needs: str = "") -> None:
        self.rules = rules
        self.needs = needs


_KEEPING: Final[Rules] = {NON_DESTRUCTIVE: ArgumentRule("bool")}

KINDS: Final[dict[str, Kind]] = {
    STANDARD: Kind(fifo_list.ARGUMENTS | _KEEPING),
    PRIORITY_KIND: Kind(priority_list.ARGUMENTS),
    SORTED_KIND: Kind(sorted_list.ARGUMENTS, SORT_KEY),
    LAST_VALUE_KIND: Kind(last_value_list.ARGUMENTS | _KEEPING, LAST_VALUE_KEY),
}


def kind_rules() -> Rules:
    """What the arguments of kinds may be, and `x-queue-kind` itself."""
    rules: Rules = {QUEUE_KIND: ArgumentRule("str", choices=tuple(KINDS))}
    for kind in KINDS.values():
        rules |= kind.rules
    return rules


def kind_of(arguments: Arguments) -> str:
    """Of which kind a queue is: as it says, or else as an argument says that standard queues have not."""
    named = arguments.get(QUEUE_KIND)
    if isinstance(named, str):
        return named
    telling = [name for name in arguments if name not in KINDS[STANDARD].rules]
    for name, kind in KINDS.items():
        if any(argument in kind.rules for argument in telling):
            return name
    return STANDARD


def check_kind(arguments: Arguments, queue: str) -> None:
    """Check that arguments, each of which is allowed by itself, are all for one kind of queue.

    Raises:
        PreconditionFailed: one is for another kind, or the one that the kind needs is not there.
    """
    name = kind_of(arguments)
    kind = KINDS[name]
    for other in KINDS.values():
        for argument in other.rules:
            if argument in arguments and argument not in kind.rules:
                raise invalid(argument, queue, arguments[argument], f"cannot be with {_telling(arguments)}")
    if kind.needs and kind.needs not in arguments:
        raise invalid(QUEUE_KIND, queue, name, f"needs {kind.needs}")


def _telling(arguments: Arguments) -> str:
    """What says of which kind a queue is."""
    if QUEUE_KIND in arguments:
        return f"{QUEUE_KIND} '{arguments[QUEUE_KIND]}'"
    kind = KINDS[kind_of(arguments)]
    return next(name for name in kind.rules if name in arguments and name not in KINDS[STANDARD].rules)


def is_non_destructive(arguments: Arguments) -> bool:
    """Whether consumers see the messages of a queue and take none. [Artemis non-destructive queues]"""
    return arguments.get(NON_DESTRUCTIVE) is True or is_stream(arguments)


def is_stream(arguments: Arguments) -> bool:
    """Whether a queue keeps what it gets for everybody to read, from where they want. [RabbitMQ streams]"""
    return arguments.get(QUEUE_TYPE) == STREAM
