"""The arguments of consumers: their names, their allowed values, and the combinations that are refused."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from mypy_extensions import i64

from broker.core.arguments.queue import (
    CONSUMER_TIMEOUT,
    NON_DESTRUCTIVE,
    SINGLE_ACTIVE_CONSUMER,
    has_single_active_consumer,
    is_non_destructive,
)
from broker.core.arguments.rule import ANY_SIZE, MILLISECONDS_MAX, ArgumentRule, Arguments, invalid
from broker.core.errors import PreconditionFailed
from broker.core.message_view import milliseconds
from broker.core.selector.selector import Selector

FIRST: Final = "first"
LAST: Final = "last"
NEXT: Final = "next"
BEGINNINGS: Final = (FIRST, LAST, NEXT)
NO_TIME: Final[i64] = -1


class BrowseRange:
    """The part of a queue that a browser sees: the first ready message, and whether the browser ends.

    `beginning`: FIRST, LAST (the last message and later arrivals), or NEXT (later arrivals only).
    `skip`: the number of messages at the front that the browser does not see.
    `since`: the browser begins with the first message that is not older than this, or with the first later
    arrival; in milliseconds since 1970. The time of a message is its date, if the broker has dated the
    message, or else its property `timestamp`. The browser does not begin with a message that has neither.
    NO_TIME: the time does not matter.
    `snapshot`: the browser does not see messages that arrive after it was attached. The browser ends after
    the last message of the snapshot.
    A selector then filters the messages of this part.
    """

    def __init__(
        self, beginning: str = FIRST, skip: i64 = 0, since: i64 = NO_TIME, snapshot: bool = False
    ) -> None:
        self.beginning = beginning
        self.skip = skip
        self.since = since
        self.snapshot = snapshot


SELECTOR: Final = "x-filter-jms-selector"


def selector_argument(arguments: Arguments, owner: str) -> Selector | None:
    """Return the selector among the arguments of `owner`; None without one or for blanks. [JMS 1.1, 3.8.1]

    Raises:
        PreconditionFailed: the text is no selector; the refusal has the position of the error.
    """
    if SELECTOR not in arguments:
        return None
    text = arguments[SELECTOR]
    if not isinstance(text, str):
        raise invalid(SELECTOR, owner, text, "is not a string")
    if not text.strip():
        return None
    try:
        return Selector(text)
    except PreconditionFailed as error:
        raise PreconditionFailed(f"invalid arg '{SELECTOR}' for {owner}: {error.text}") from error


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
ORIGIN_READER: Final = "x-origin-reader"
GETTING: Final = (GET_MESSAGE_ID, GET_POSITION, GET_COUNT)

CONSUMER_RULES: Final = {
    PRIORITY: ArgumentRule(
        "int",
        -(2**31),
        2**31 - 1,
        description="Priority of the consumer: the queue serves the highest priority that has credit "
        "first. 0 is the default.",
    ),
    PREFETCH: ArgumentRule(
        "int",
        0,
        PREFETCH_MAX,
        description="Largest number of unacknowledged deliveries of this consumer, instead of the "
        "channel's prefetch count. 0 means no limit.",
    ),
    ALSO_CONSUME: ArgumentRule(
        "names",
        high=ALSO_MAX,
        description="Names of further queues that the consumer receives from, with one tag and one "
        "window. The consumer gets messages from the queues round-robin.",
    ),
    NOTIFY_ACTIVE: ArgumentRule(
        "name",
        description="Name of a queue that gets a message whenever the consumer begins or ceases to be "
        "served. The message says `queue`, `consumer_tag`, `active` and `why`.",
    ),
    EXCLUSIVE_CONSUMER: ArgumentRule(
        "bool",
        description="Whether the consumer gets all messages while other consumers wait. A consumer of a "
        "higher `x-priority` takes over. basic.get is refused meanwhile.",
    ),
    CONSUMER_TIMEOUT: ArgumentRule(
        "int",
        0,
        MILLISECONDS_MAX,
        description="Milliseconds in which a delivery to this consumer must be settled, before the "
        "queue's value and the setting `consumer_timeout_ms`. 0 means no limit.",
    ),
    ORIGIN_READER: ArgumentRule(
        "name",
        description="Name of a reader that forwards the messages exactly once, such as a shovel. The "
        "consumer gets each message with `x-origin` and `x-origin-position`, has its channel alone, and "
        "must acknowledge. `x-filter-jms-selector` is the only other argument that is allowed. The "
        "messages stay staged for the reader when the connection ends. basic.cancel returns the messages.",
    ),
    GET_MESSAGE_ID: ArgumentRule(
        "name",
        description="Id of a message: the HTTP API's id or the property `message-id`. The consumer gets "
        "this message and is cancelled. 406 if no such message is ready.",
    ),
    GET_POSITION: ArgumentRule(
        "int",
        1,
        ANY_SIZE,
        description="Position of a message among the ready messages, counted from 1. The consumer gets "
        "this message and is cancelled. 406 if there are fewer.",
    ),
    GET_COUNT: ArgumentRule(
        "int",
        1,
        ANY_SIZE,
        description="Largest number of ready messages that the consumer gets, of those that its "
        "selector accepts. The broker then cancels the consumer, also when no further "
        "message is ready. 406 if there is none.",
    ),
}


def check_consumer_arguments(arguments: Arguments, queue: str) -> None:
    """Check the arguments of a consumer, except its selector, which `selector_argument` reads.

    `queue` describes the consumer's queue in refusals, `queue 'q' in vhost '/'`.

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


def has_get_arguments(arguments: Arguments) -> bool:
    """Whether the consumer asks for chosen messages, or for a number of messages, and for no others."""
    return any(name in arguments for name in GETTING)


def browses(arguments: Arguments) -> bool:
    """Whether the consumer is a browser."""
    return arguments.get(BROWSE) in (True, "true", SNAPSHOT)


def extent_argument(arguments: Arguments) -> BrowseRange:
    """Return the part of the queue that a browser with these checked arguments sees."""
    beginning = arguments.get(BROWSE_FROM, FIRST)
    snapshot = arguments.get(BROWSE) == SNAPSHOT
    if isinstance(beginning, datetime):
        return BrowseRange(since=milliseconds(beginning), snapshot=snapshot)
    if isinstance(beginning, int):
        return BrowseRange(skip=beginning, snapshot=snapshot)
    assert isinstance(beginning, str), "arguments are checked before a consumer is made"
    return BrowseRange(beginning, snapshot=snapshot)


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


def check_combination(arguments: Arguments, exclusive: bool, queue_arguments: Arguments, where: str) -> None:
    """Check that a consumer's arguments, each allowed by itself, go together and with the queue's.

    `exclusive`: the consumer asks for exclusive access. `queue_arguments` are the arguments of the queue.
    `where` describes the queue, `queue 'q' in vhost '/'`.

    Raises:
        PreconditionFailed: the refusal names both arguments that do not go together.
    """
    keeps = is_non_destructive(queue_arguments)
    if keeps and exclusive:
        raise PreconditionFailed(f"{where} has {NON_DESTRUCTIVE}: no consumer can be exclusive")
    browse = browses(arguments)
    for name in GETTING if exclusive else ():
        if name in arguments:
            raise invalid(name, where, arguments[name], "does not go with exclusive")
    if browse and exclusive:
        raise invalid(BROWSE, where, arguments[BROWSE], "does not go with exclusive")
    if keeps or browse:
        other = f"the queue's {NON_DESTRUCTIVE}" if keeps else BROWSE
        for name in (EXCLUSIVE_CONSUMER, NOTIFY_ACTIVE):
            if arguments.get(name, False) is not False:
                raise invalid(name, where, arguments[name], f"does not go with {other}")
    if arguments.get(EXCLUSIVE_CONSUMER) is True:
        other = ""
        if exclusive:
            other = "exclusive, which lets nobody else in"
        elif has_single_active_consumer(queue_arguments):
            other = f"the queue's {SINGLE_ACTIVE_CONSUMER}, which elects everybody"
        if other:
            raise invalid(EXCLUSIVE_CONSUMER, where, True, f"does not go with {other}")
