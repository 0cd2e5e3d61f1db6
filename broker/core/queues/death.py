"""The death of a message: its reason, its queue, and the history that its dead letter reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from broker.core.entries.entry import HELD, Holder, QueueEntry
from broker.core.message import Message, uid_of
from broker.core.message_view import MessageView
from broker.core.ports import MessageStore
from broker.core.queues.hooks import EXPIRED, REJECTED, BacklogHook, LimitsHook, RoomWaiter
from broker.core.queues.queue import Queue
from broker.core.queues.virtual_host import QueueHost

NO_PLACE: Final[i64] = -1
_HELD: Final = "held"
_MARK_SHIFT: Final = 56  # `broker.store.format`, count
_WAS_HELD: Final[i64] = 16  # a mark beside the reason's number, from 1
# why a dead letter does not arrive
NO_EXCHANGE: Final = 0
NO_ROUTE: Final = 1
CYCLE: Final = 2
FULL: Final = 3
ARRIVES: Final = 4  # no obstacle
CAUSES: Final[tuple[str, ...]] = ("no_exchange", "no_route", "cycle", "full")


def marked_count(death: Death) -> i64:
    """Return the count of a message that waits to be dead-lettered; the first octet encodes its death."""
    past = death.past
    mark = death.reason + 1
    if past is not None and past.expired_while == _HELD:
        mark |= _WAS_HELD
    return mark << _MARK_SHIFT | death.count


def marked_reason(count: i64) -> i64:
    """Return why the message with this count died, -1: it is alive."""
    return (count >> _MARK_SHIFT & (_WAS_HELD - 1)) - 1


def was_held(count: i64) -> bool:
    """Whether the message with this count was HELD when it died."""
    return count >> _MARK_SHIFT & _WAS_HELD != 0


def plain_count(count: i64) -> i64:
    """Return the count without its marks."""
    return count & ((1 << _MARK_SHIFT) - 1)


class LetterPassage:
    """The passage of a dead letter, once it is planned.

    `broker.core.publishing.routed_message` extends this class.
    """


@final
class Death:
    """A message that has left `queue` for a `reason` and waits to be dead-lettered.

    `held`: the logged message of `holder` that the letter replaces. Until it is settled, the message is in
    its queue again after a crash. None: the log has none. `passage`: the passage of the dead letter, once it
    is planned; None also if its exchange does not exist. `past`: the message's history in the queue, if the
    letter reports any. `order`: its place in the queue; NO_PLACE: the queue did not accept it. `arrival`: the
    number of its arrival there. `deliveries`: how often it was delivered there. `uid`: the journal's number
    for it. `count`: how many of its deliveries count, in the form of the log. `by`: the consumer that had it,
    for the journal. `sure`: it is dead-lettered at least once.
    `failure`: why its letter does not arrive, one of CAUSES or ARRIVES, once it is `planned`. `apart`: its
    own content decides its route, not only its routing key. `full`: the limits of the queues that have no
    room for its letter.
    `obstacle`: why the letter does not arrive, if the reason is in a queue that refuses and dead-letters it;
    else "".
    `is_unreadable`: the disk could not read the message. `number`: its place in the
    `DeadLetterBacklog`, once it waits there.
    `lane`: its lane there; None: it does not wait. `is_seized`: an operation is about to take it away, so
    that it is not tried.
    """

    def __init__(
        self,
        queue: Queue,
        limits: LimitsHook,
        message: Message,
        reason: i64,
        held: Message | None,
        holder: Queue,
    ) -> None:
        self.queue = queue
        self.limits = limits
        self.message = message
        self.reason = reason
        self.held = held
        self.holder = holder
        self.passage: LetterPassage | None = None
        self.past: Past | None = None
        self.order: i64 = NO_PLACE
        self.by: Holder | None = None
        self.uid: i64 = uid_of(message)
        self.count: i64 = 0
        self.sure = False
        self.failure: i64 = ARRIVES
        self.apart = False
        self.planned = False
        self.full: list[LimitsHook] = []
        self.obstacle = ""
        self.is_unreadable = False
        self.number: i64 = 0
        self.lane: RoomWaiter | None = None
        self.is_seized = False
        self.arrival: i64 = 0
        self.deliveries: i64 = 0


_REJECTED: Final = "rejected"


@final
class Past:
    """The history of a message in the queue in which it died.

    `deliveries`: how often the queue, if it counts, delivered the message, 0: never. `returns`: how many of
    these deliveries were returned in a way that counts. `expired_by`: the time to live that expired,
    "message" or "queue"; "" if it did not expire. `expired_while`: "ready", or "held" while it waited for a
    retry. `annotations`: those that consumers have added, encoded.
    """

    def __init__(self) -> None:
        self.deliveries: i64 = 0
        self.returns: i64 = 0
        self.expired_by = ""
        self.expired_while = ""
        self.annotations = b""


@final
class Notice:
    """The contents of a dead letter: the message has left `queue` at `date` (ms since 1970) for `reason`.

    `keeps_keys`: the letter keeps the routing keys of the message; else those that its publisher added are
    dropped.
    `past`: the history to report, if any.
    """

    def __init__(
        self, queue: str, reason: str, date: i64, keeps_keys: bool, past: Past | None = None
    ) -> None:
        self.queue = queue
        self.reason = reason
        self.date = date
        self.keeps_keys = keeps_keys
        self.past = past


@final
class DeadLetter:
    """A message that reports its deaths.

    `content`: the content of the letter, without an expiration. `copies`: further routing keys. `deaths`:
    queue and reason of each death, the latest first. `view`: for exchanges that route by content.
    """

    def __init__(
        self, content: bytes, copies: list[str], deaths: list[tuple[str, str]], view: MessageView
    ) -> None:
        self.content = content
        self.copies = copies
        self.deaths = deaths
        self.view = view

    def ends_cycle(self, queue: str) -> bool:
        """Whether the message died in `queue` before, and no client has rejected it since.

        The message would die there again and again, without any client. [RabbitMQ automatic dead-letter
        cycles]
        """
        for where, reason in self.deaths:
            if reason == _REJECTED:
                return False
            if where == queue:
                return True
        return False


LetterWriter = Callable[[Message, MessageStore, Notice], DeadLetter]
"""Makes the dead letter of a message; the store loads its content if need be.

Raises the errors of MessageStore.load.
"""


def bare_letter(message: Message, store: MessageStore, notice: Notice) -> DeadLetter:
    """Return the message itself as its letter, for brokers without a protocol."""
    content = message.content
    if content is None:
        content = store.load(message)
    return DeadLetter(content, [], [(notice.queue, notice.reason)], MessageView())


def death_of(queue: Queue, limits: LimitsHook, entry: QueueEntry, reason: i64) -> Death:
    """Describe the death of `entry`, which is about to leave `queue`."""
    message = entry.message
    held = message if queue.logged and message.sequence != 0 else None
    death = Death(queue, limits, message, reason, held, queue)
    death.past = past_of(queue, entry, reason)
    death.order = entry.order
    death.arrival = queue.entries.arrival(entry)
    death.deliveries = entry.delivery_count
    death.count = entry.counted if queue.counts else 0
    death.sure = limits.sure
    if queue.journal is not None:
        death.by = entry.owner
    return death


def past_of(queue: Queue, entry: QueueEntry, reason: i64) -> Past | None:
    """Return the history of `entry`, which is about to leave `queue`, for its letter; None: nothing."""
    past = Past()
    if queue.counts:
        past.deliveries = entry.delivery_count
        is_refused = reason == REJECTED and entry.owner is not None  # else the entry was returned before
        past.returns = entry.counted - 1 if is_refused else entry.counted
    if reason == EXPIRED:
        past.expired_by = "message" if entry.own_time else "queue"
        past.expired_while = _HELD if entry.state == HELD else "ready"
    past.annotations = queue.entries.annotations_of(entry)
    return past if past.deliveries > 0 or past.expired_by or past.annotations else None


class DeathHost(QueueHost):
    """The virtual host, as queues whose messages die see it; `broker.core.vhosts.vhost` implements it."""

    def dead_letter(self, death: Death) -> None:
        """Dead-letter a message that has left its queue."""
        raise NotImplementedError

    def try_again(self, death: Death) -> bool:
        """Dead-letter a message that waits in its backlog; False: it still waits."""
        raise NotImplementedError

    def watch_backlog(self, backlog: BacklogHook) -> None:
        """Retry the messages of `backlog` when routes change."""
        raise NotImplementedError

    def forget_backlog(self, backlog: BacklogHook) -> None:
        """Forget `backlog`, in which no message waits any more."""
        raise NotImplementedError
