"""The arguments of consumers: which values are allowed."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from broker.core.argument_rule import ANY_SIZE, MILLISECONDS_MAX, ArgumentRule, Arguments, invalid
from broker.core.arguments import CONSUMER_TIMEOUT
from broker.core.extent import BEGINNINGS, FIRST, NEXT, Extent
from broker.core.view import milliseconds

PRIORITY: Final = "x-priority"
BROWSE: Final = "x-browse"
BROWSE_FROM: Final = "x-browse-from"
EXCLUSIVE_CONSUMER: Final = "x-exclusive-consumer"
NOTIFY_ACTIVE: Final = "x-notify-active"
ALSO_CONSUME: Final = "x-also-consume"
ALSO_MAX: Final = 255  # queues besides the first one
SNAPSHOT: Final = "snapshot"

CONSUMER_RULES: Final = {
    PRIORITY: ArgumentRule("int", -(2**31), 2**31 - 1),
    ALSO_CONSUME: ArgumentRule("names", high=ALSO_MAX),
    NOTIFY_ACTIVE: ArgumentRule("name"),
    EXCLUSIVE_CONSUMER: ArgumentRule("bool"),
    CONSUMER_TIMEOUT: ArgumentRule("int", 0, MILLISECONDS_MAX),
}


def check_consumer_arguments(arguments: Arguments, queue: str) -> None:
    """Check the arguments of a consumer, but for its selector, which `selector_argument` reads.

    `queue` describes what it consumes, `queue 'q' in vhost '/'`.

    Raises:
        PreconditionFailed: an argument has a value that it cannot have.
    """
    for name, rule in CONSUMER_RULES.items():
        if name in arguments:
            allowed = rule.objection(arguments[name])
            if allowed:
                raise invalid(name, queue, arguments[name], f"is not {allowed}")
    _check_browsing(arguments, queue)


def browses(arguments: Arguments) -> bool:
    """Whether the consumer is a browser."""
    return arguments.get(BROWSE) in (True, "true", SNAPSHOT)


def extent_argument(arguments: Arguments) -> Extent:
    """Which part of the queue the browser with these arguments, which have been checked, is to see."""
    beginning = arguments.get(BROWSE_FROM, FIRST)
    snapshot = arguments.get(BROWSE) == SNAPSHOT
    if isinstance(beginning, datetime):
        return Extent(since=milliseconds(beginning), snapshot=snapshot)
    if isinstance(beginning, int):
        return Extent(skip=beginning, snapshot=snapshot)
    assert isinstance(beginning, str), "arguments are checked before a consumer is made"
    return Extent(beginning, snapshot=snapshot)


def _check_browsing(arguments: Arguments, queue: str) -> None:
    browse = arguments.get(BROWSE, False)
    if not isinstance(browse, bool) and browse not in ("true", "false", SNAPSHOT):
        raise invalid(BROWSE, queue, browse, f"is neither a boolean nor '{SNAPSHOT}'")
    if BROWSE_FROM not in arguments:
        return
    beginning = arguments[BROWSE_FROM]
    count = isinstance(beginning, int) and not isinstance(beginning, bool) and 0 <= beginning <= ANY_SIZE
    if not count and not isinstance(beginning, datetime) and beginning not in BEGINNINGS:
        allowed = f"{', '.join(BEGINNINGS)}, a number of messages, or a timestamp"
        raise invalid(BROWSE_FROM, queue, beginning, f"is not one of {allowed}")
    if not browses(arguments):
        raise invalid(BROWSE_FROM, queue, beginning, f"needs {BROWSE}")
    if beginning == NEXT and browse == SNAPSHOT:
        raise invalid(BROWSE_FROM, queue, beginning, f"leaves nothing to see with {BROWSE} '{SNAPSHOT}'")
