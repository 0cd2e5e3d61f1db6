"""The arguments of consumers: which values are allowed."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from broker.core.argument_rule import ANY_SIZE, MILLISECONDS_MAX, ArgumentRule, Arguments, invalid
from broker.core.arguments import CONSUMER_TIMEOUT
from broker.core.extent import BEGINNINGS, FIRST, NEXT, Extent
from broker.core.selector.argument import SELECTOR
from broker.core.view import milliseconds

PRIORITY: Final = "x-priority"
PREFETCH: Final = "x-prefetch"
PREFETCH_MAX: Final = 65535  # as of basic.qos
BROWSE: Final = "x-browse"
BROWSE_FROM: Final = "x-browse-from"
EXCLUSIVE_CONSUMER: Final = "x-exclusive-consumer"
NOTIFY_ACTIVE: Final = "x-notify-active"
ALSO_CONSUME: Final = "x-also-consume"
ALSO_MAX: Final = 255  # queues besides the first one
SNAPSHOT: Final = "snapshot"
GET_MESSAGE_ID: Final = "x-get-message-id"
GET_POSITION: Final = "x-get-position"
GET_COUNT: Final = "x-get-count"
GETTING: Final = (GET_MESSAGE_ID, GET_POSITION, GET_COUNT)

CONSUMER_RULES: Final = {
    PRIORITY: ArgumentRule("int", -(2**31), 2**31 - 1),
    PREFETCH: ArgumentRule("int", 0, PREFETCH_MAX),
    ALSO_CONSUME: ArgumentRule("names", high=ALSO_MAX),
    NOTIFY_ACTIVE: ArgumentRule("name"),
    EXCLUSIVE_CONSUMER: ArgumentRule("bool"),
    CONSUMER_TIMEOUT: ArgumentRule("int", 0, MILLISECONDS_MAX),
    GET_MESSAGE_ID: ArgumentRule("name"),
    GET_POSITION: ArgumentRule("int", 1, ANY_SIZE),
    GET_COUNT: ArgumentRule("int", 1, ANY_SIZE),
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
    _check_getting(arguments, queue)


def gets_some(arguments: Arguments) -> bool:
    """Whether the consumer asks for chosen messages, or for so many, and no more."""
    return any(name in arguments for name in GETTING)


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


def _check_getting(arguments: Arguments, queue: str) -> None:
    asked = [name for name in GETTING if name in arguments]
    if not asked:
        return
    others = [*asked[1:], BROWSE_FROM, ALSO_CONSUME, NOTIFY_ACTIVE, EXCLUSIVE_CONSUMER]
    if asked[0] != GET_COUNT:
        others.append(SELECTOR)
    for name in others:
        if arguments.get(name, False) is not False:
            raise invalid(asked[0], queue, arguments[asked[0]], f"does not go with {name}")
    if arguments.get(BROWSE) == SNAPSHOT:
        raise invalid(asked[0], queue, arguments[asked[0]], f"does not go with {BROWSE} '{SNAPSHOT}'")


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
