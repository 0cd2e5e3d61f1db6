"""What a queue asks and tells its features.

A queue that is journaled has a `QueueJournal`, which it tells of each step as it takes it, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.arguments.queue import ALL
from broker.core.entries.cursor import QueueContext
from broker.core.entries.entry import Holder, QueueEntry
from broker.core.entries.timers import Timers
from broker.core.message import Message
from broker.core.ports import StreamWatcher
from broker.core.queues.consumer import INTERESTED, NOTIFIED, QueueConsumer, TargetSession
from broker.core.queues.state import QueueState
from broker.core.schedule import Alarm, Schedule, Timetable

# in which way a message comes into queues
PUBLISHED: Final = 0
DEAD_LETTERED: Final = 1
MOVED: Final = 2
COPIED: Final = 3
DELAYED: Final = 4  # it has been held until now
OWN: Final = 5  # the broker's own: a receipt, say
EDITED: Final = 6
REDRIVEN: Final = 7  # it was a dead letter

# why a message dies
REJECTED: Final = 0
EXPIRED: Final = 1
MAXLEN: Final = 2
EXHAUSTED: Final = 3
QUEUE_EXPIRED: Final = 4
QUEUE_DELETED: Final = 5
REASONS: Final[tuple[str, ...]] = (
    "rejected",
    "expired",
    "maxlen",
    "delivery_limit",
    "queue_expired",
    "queue_deleted",
)

NO_LIMIT: Final[i64] = 1 << 62

DROP_HEAD: Final = 0  # take it, and let go of the oldest
REJECT_PUBLISH: Final = 1  # refuse it
REJECT_PUBLISH_DLX: Final = 2  # refuse it, and dead-letter it

OVERFLOWS: Final[dict[str, int]] = {
    "drop-head": DROP_HEAD,
    "reject-publish": REJECT_PUBLISH,
    "reject-publish-dlx": REJECT_PUBLISH_DLX,
}


class QueueJournal:
    """What becomes of the messages of one queue. Each step is told once, when it has been decided.

    The base class is of no use by itself: a queue that is not journaled has none at all.
    """

    def enqueued(self, entry: QueueEntry) -> None:
        """`entry` is new, and came in the journal's `way`."""
        raise NotImplementedError

    def delivered(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """`entry` was acquired for `consumer`, or goes to it once more."""
        raise NotImplementedError

    def staged(self, entry: QueueEntry, taker: Holder) -> None:
        """`entry` is set apart for a reader, who has `taker`: it is there, and nobody else gets it."""
        raise NotImplementedError

    def settled(self, entry: QueueEntry, consumer: Holder) -> None:
        """`consumer` is done with `entry`."""
        raise NotImplementedError

    def returned(self, entry: QueueEntry, consumer: QueueConsumer, outcome: i64) -> None:
        """`consumer` gives `entry` back, one of `broker.core.arguments.queue`."""
        raise NotImplementedError

    def discarded(self, entry: QueueEntry, reason: i64) -> None:
        """`entry` leaves for one of the reasons of `broker.core.queues.queue`, and nothing comes of it."""
        raise NotImplementedError

    def died(
        self,
        message: Message,
        uid: i64,
        order: i64,
        reason: i64,
        to: QueueState | None,
        by: Holder | None,
    ) -> None:
        """A message with this number and place becomes a dead letter, in `to` and others; None: nowhere.

        `by`: the consumer that had the message, if one had.
        """
        raise NotImplementedError

    def replaced(self, entry: QueueEntry) -> None:
        """A later message has taken the place of `entry`."""
        raise NotImplementedError

    def removed(self, message: Message, order: i64, deliveries: i64) -> None:
        """An operator takes a message away, in the journal's `way` if something else comes of it."""
        raise NotImplementedError

    def unwanted(self, entry: QueueEntry) -> None:
        """`entry` came to be delivered at once or not at all, and nobody could have it."""
        raise NotImplementedError

    def purged(self, first: i64, last: i64, count: i64, by: object | None) -> None:
        """All entries from the place `first` to the place `last` leave, which are `count`.

        `by`: the actor who asked for it, of `Journal.who`.
        """
        raise NotImplementedError

    def appended(self, message: Message, offset: i64) -> None:
        """The queue is a stream, and `message` has this offset."""
        raise NotImplementedError

    def shown(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """`consumer`, which acquires nothing, is sent `entry`."""
        raise NotImplementedError

    def trimmed(self, first: i64, last: i64, count: i64) -> None:
        """Retention takes `count` rows of a stream away, those with the offsets from `first` to `last`."""
        raise NotImplementedError

    def who(self) -> object | None:
        """The actor of what happens now (`Journal.who`)."""
        raise NotImplementedError

    def renamed(self) -> None:
        """The queue is called otherwise from here on."""
        raise NotImplementedError

    def deleted(self) -> None:
        """The queue is deleted, with all that is in it now."""
        raise NotImplementedError


ABLE: Final[tuple[int, ...]] = (INTERESTED, NOTIFIED)  # states of an acquiring consumer that wants work


class Discipline:
    """The rule by which `queue` holds entries back, from everybody or from all but one consumer.

    A queue has at most one, from before it has entries, and is never `alike` then. Whoever looks for what is
    next asks `next_entry`, and whoever looks for a taker asks `is_open` and `owner`; browsers do not. The
    queue tells it what happens to entries and consumers; it sees to it that what it lets go of is noticed.

    `personal`: consumers that see the same entries may have different ones next.
    `pauses`: it has much to do, in turns to come, and until then no attached consumer is served.
    """

    def __init__(self, personal: bool) -> None:
        self.personal = personal
        self.pauses: bool = False

    # ---- what is asked

    def next_entry(self, consumer: QueueConsumer) -> QueueEntry | None:
        """The entry to deliver next to `consumer`, which acquires, or None.

        As `QueueContext.get_next_available_entry`, `context.more` included.
        """
        raise NotImplementedError

    def is_open(self, entry: QueueEntry) -> bool:
        """Whether `entry`, which is AVAILABLE, may be given out now."""
        raise NotImplementedError

    def owner(self, entry: QueueEntry) -> QueueConsumer | None:
        """The only one who may have `entry`, None: whoever sees it."""
        return None

    def contenders(self, entry: QueueEntry) -> list[QueueConsumer]:
        """The consumers that may have `entry` now if it is not for whoever sees it, the first one first.

        There are several where a transaction has what precedes `entry`: consumers of its session.
        """
        owner = self.owner(entry)
        return [] if owner is None else [owner]

    def parked_in(self, context: QueueContext) -> list[QueueEntry]:
        """AVAILABLE entries that `context` has passed, and that are not in its `all_behind`."""
        return []

    # ---- what is told

    def linked(self, entry: QueueEntry) -> None:
        """`entry` is new, and has not been announced."""

    def acquired(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """`consumer`, attached or a basic.get, has just acquired `entry`."""

    def left(self, entry: QueueEntry, owner: Holder | None) -> None:
        """`entry` is DEQUEUED; `owner` had acquired it, None: it was not given out."""

    def returned(self, entries: list[QueueEntry]) -> None:
        """`entries`, all of one call, have been given back: not a word to consumers before `wake`."""

    def wake(self) -> None:
        """Notify whoever can have more than what was returned: cursors know of that."""

    def promised(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """A transaction of `consumer`, which has `entry`, takes it out of the queue when it is committed."""

    def withdrawn(self, entries: list[QueueEntry]) -> None:
        """The transaction that would have taken `entries` out has been rolled back."""

    def passed_on(self) -> None:
        """Notify one of those who alone may have an entry: one that was relied upon has dropped out."""

    def attached(self, consumer: QueueConsumer) -> None:
        """`consumer`, which acquires, is new."""

    def detached(self, consumer: QueueConsumer) -> None:
        """`consumer` has gone, and what it gives back with that is back."""

    def context_changed(self, consumer: QueueConsumer) -> None:
        """`consumer` looks for entries with the cursor of another context, which has not moved yet."""

    def sent_away(self, consumer: QueueConsumer, entries: list[QueueEntry]) -> None:
        """`consumer` is not to get `entries` again, which it has and which are about to be given back."""

    def served_alone(self, consumer: QueueConsumer) -> None:
        """From now on the queue serves `consumer` alone."""


def able_in(session: TargetSession, queue: QueueState, entry: QueueEntry) -> Iterator[QueueConsumer]:
    """The consumers of `session` that want work from `queue` and see `entry`."""
    for target in session.targets:
        for consumer in target.consumers:
            if consumer.queue is queue and consumer.state in ABLE and consumer.context.sees(entry):
                yield consumer


def first_idle(consumers: Iterable[QueueConsumer]) -> QueueConsumer | None:
    """The first of `consumers` that is INTERESTED."""
    for consumer in consumers:
        if consumer.state == INTERESTED:
            return consumer
    return None


class LetterRoute:
    """The route of dead letters, as their queue keeps it; `broker.core.routing.graph` extends this class."""


class Seeker:
    """Messages that wait for room in a full queue. `is_woken`: they are about to be tried."""

    def __init__(self) -> None:
        self.is_woken = False

    def wake(self) -> None:
        """Try the first of the messages soon: there is room."""
        raise NotImplementedError


class QueueLimits(Alarm):
    """What limits a queue in time and space, and where dead letters go; see `broker.core.queues.limits`.

    `ttl`, `expires`: milliseconds, -1: for ever. `max_length`, `max_bytes`: of the ready entries and their
    bodies, and where publishers are refused also of the messages that wait to be dead-lettered. `limited`:
    one of these two is set. `overflow`: DROP_HEAD, REJECT_PUBLISH or REJECT_PUBLISH_DLX. `reserved`,
    `reserved_bytes`: messages of transactions that are to come. `dead_letter_reasons`: bits, 1 << reason;
    none without such an exchange. `sure`: the queue dead-letters at least once. `seekers`: dead letters that
    wait for room in the queue; publishers are refused as long as there are some, or they would take that
    room. `timetable`: of messages that the queue holds until their date. `timers`: of the entries that are
    AVAILABLE or HELD and expire.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self.schedule = schedule
        self.timers = Timers()
        self.timetable: Timetable | None = None
        self.ttl: i64 = -1
        self.expires: i64 = -1
        self.limited = False
        self.max_length: i64 = NO_LIMIT
        self.max_bytes: i64 = NO_LIMIT
        self.overflow: i64 = DROP_HEAD
        self.reserved: i64 = 0
        self.reserved_bytes: i64 = 0
        self.dead_letter_exchange = ""
        self.dead_letter_reasons: i64 = 0
        self.dead_letter_key: str | None = None
        self.sure = False
        self.seekers: dict[Seeker, None] = {}
        self.drops: i64 = 0  # dead letters that were dropped and are not in the broker's log yet
        self.silent_until: i64 = 0  # on the schedule's clock: when the next drop may be logged
        self.dead_letter_route: LetterRoute | None = None  # the latest

    @property
    def queue_name(self) -> str:
        """The name of the queue."""
        raise NotImplementedError

    @property
    def careful(self) -> bool:
        """Whether publishing to the queue takes more than appending and enqueueing."""
        raise NotImplementedError

    @property
    def passes_on(self) -> bool:
        """Whether a message that is refused is dead-lettered."""
        raise NotImplementedError

    def refuses(self, message: Message) -> bool:
        """Whether a message is refused because it would be one too many; not one that replaces another.

        Dead letters that wait for room come first.
        """
        raise NotImplementedError

    def lacks_room(self, message: Message) -> bool:
        """Whether the queue, which refuses what is too much, has no room for a message now."""
        raise NotImplementedError

    def ever_has_room(self, message: Message) -> bool:
        """Whether the queue, were it empty, would take the message."""
        raise NotImplementedError

    def room_made(self) -> None:
        """There is more room than before: the next dead letters that wait for it are tried soon."""
        raise NotImplementedError

    def moves(self, reason: i64) -> bool:
        """Whether a message that dies of this is dead-lettered; else it is discarded."""
        return self.dead_letter_reasons >> reason & 1 != 0

    def reserve(self, count: i64, size: i64) -> None:
        """Keep room for messages of a transaction, or give it back if negative."""
        raise NotImplementedError

    def apply(self, held: dict[str, object]) -> None:
        """Apply these arguments from now on. Entries that are there keep the time that they have."""
        raise NotImplementedError

    def admit(self, entry: QueueEntry) -> bool:
        """`entry` is new and has not been announced; false if it is not AVAILABLE any more."""
        raise NotImplementedError

    def handed_over(self, entry: QueueEntry) -> None:
        """`entry` is new, and a client has it already: its time counts should it come back."""
        raise NotImplementedError

    def restored(self, entry: QueueEntry) -> None:
        """`entry` is from before a restart: its time goes on."""
        raise NotImplementedError

    def returned(self, entries: list[QueueEntry]) -> None:
        """`entries` are AVAILABLE again, or HELD, and not announced yet; some may be gone after this."""
        raise NotImplementedError

    def parked(self, entry: QueueEntry) -> None:
        """`entry` is AVAILABLE behind the cursor that consumers share, kept there by the discipline."""
        raise NotImplementedError

    def touch(self) -> None:
        """The queue is being used: declared again, asked for a message, or left by a consumer.

        [RabbitMQ x-expires]
        """
        raise NotImplementedError

    def stay(self) -> None:
        """The queue has been declared again, so that it stays. [RabbitMQ x-expires]"""
        raise NotImplementedError

    def dead_letter(self, entry: QueueEntry, reason: i64) -> None:
        """AVAILABLE, ACQUIRED or HELD → DEQUEUED: `entry` goes to the dead-letter exchange."""
        raise NotImplementedError

    def begin_seeking(self, seeker: Seeker, message: Message) -> bool:
        """Let `seeker` wait for room for `message` behind others.

        False: there never is room for the message, or `seeker` waits already.
        """
        raise NotImplementedError

    def end_seeking(self, seeker: Seeker) -> None:
        """Let `seeker` wait for room no longer."""
        raise NotImplementedError

    def outlasts(self, reason: i64) -> bool:
        """Dead-letter the messages of the queue, which is about to be deleted, if its rules say so.

        True if the queue stays until the last of them has left, in turns to come; then it is deleted, unless
        it is declared again, or used again if it was to expire.
        """
        raise NotImplementedError

    def none_waits(self) -> None:
        """No message waits to be dead-lettered any more: the queue may go."""
        raise NotImplementedError

    def stop(self) -> None:
        """The queue is deleted, and nothing is done in time any more for its remaining messages."""
        raise NotImplementedError


class QueueRetry(Alarm):
    """The rules for what comes back to a queue; see `broker.core.queues.retry`.

    `counted`: the outcomes that count towards the delivery limit.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counted: i64 = ALL

    def apply(self, held: dict[str, object]) -> None:
        """Apply these arguments from now on. Entries that wait go on waiting as they do."""
        raise NotImplementedError

    def came_back(self, entry: QueueEntry, outcome: i64) -> None:
        """`entry`, ACQUIRED still, comes back in this way: find out whether that counts."""
        raise NotImplementedError

    def delays(self, outcome: i64) -> bool:
        """Whether an entry that comes back in this way waits."""
        raise NotImplementedError

    def hold_all(self, entries: list[QueueEntry]) -> None:
        """AVAILABLE → HELD: have `entries`, which have just come back, be nobody's for their times."""
        raise NotImplementedError

    def let_go(self, entry: QueueEntry) -> None:
        """`entry` is not to be HELD any longer. The caller says what it is instead, and counts it."""
        raise NotImplementedError

    def stop(self) -> None:
        """The queue is deleted."""
        raise NotImplementedError


class ElectionHook:
    """The election of the consumer that a queue serves; see `broker.core.queues.election`."""

    def check_attach(self, consumer: QueueConsumer) -> None:
        """Refuse a consumer that wants to be alone where every one is, in its turn. Raises InUse."""
        raise NotImplementedError

    def check_get(self) -> None:
        """Refuse a basic.get, which would take a message past the active consumer. ResourceLocked."""
        raise NotImplementedError

    def stands_by(self, newcomer: QueueConsumer) -> bool:
        """Whether `newcomer`, which acquires and is about to be attached, is not served for now."""
        raise NotImplementedError

    def attached(self, newcomer: QueueConsumer) -> None:
        """`newcomer` acquires, is attached and stands by."""
        raise NotImplementedError

    def detached(self) -> None:
        """A consumer is detached, and what it was to give back is back."""
        raise NotImplementedError

    def delivery_ended(self) -> None:
        """A delivery has been settled or returned; all state is true again."""
        raise NotImplementedError

    def activity_of(self, consumer: QueueConsumer) -> str:
        """What `consumer`, which acquires, does: SINGLE_ACTIVE, WAITING or DRAINING; UP before it begins."""
        raise NotImplementedError


class GateHook(Alarm):
    """The gate of a queue, shut until there are enough consumers; see `broker.core.queues.election`.

    `is_open`: consumers are served.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_open: bool = False

    def attached(self) -> None:
        """One more consumer that acquires is attached, behind the gate if it is shut."""
        raise NotImplementedError

    def detached(self) -> None:
        """A consumer that acquired is gone."""
        raise NotImplementedError

    def apply(self, wanted: i64, delay: i64) -> None:
        """Open for so many consumers from now on, or after so many milliseconds."""
        raise NotImplementedError

    def open(self) -> None:
        """Serve all consumers that wait."""
        raise NotImplementedError

    def stop(self) -> None:
        """The queue is deleted."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Settlement(Alarm):
    """Deliveries that have ended, and leave or go back in slices; see `broker.core.queues.returns`."""

    def finish(self, queue: QueueState | None) -> None:
        """Have those leave that `queue` has; None: all."""
        raise NotImplementedError

    def deleting(self, queue: QueueState) -> None:
        """`queue` is about to be deleted."""
        self.finish(queue)

    def vacating(self) -> None:
        """All queues are about to be deleted, with their virtual host: what they have goes with them."""


class DiscardsHook(Alarm):
    """Refused entries that leave in turns to come; see `broker.core.queues.returns`."""

    def add(self, entries: list[QueueEntry], consumer: QueueConsumer, reason: i64) -> None:
        """Have these, which `consumer` has, leave after the others."""
        raise NotImplementedError

    def finish(self) -> None:
        """Have all of them leave: the queue is about to be deleted."""
        raise NotImplementedError


class UndeliverableHook(Alarm):
    """The entries that consumers have sent away; see `broker.core.queues.undeliverable`."""

    def add(self, entries: list[QueueEntry]) -> None:
        """Note entries that a consumer has sent away, and that are about to be back."""
        raise NotImplementedError

    def returned(self, entries: list[QueueEntry]) -> None:
        """Look at those of `entries` that were sent away before; all of them have come back."""
        raise NotImplementedError

    def consumer_left(self) -> None:
        """Look at all entries: a consumer of the queue has left."""
        raise NotImplementedError


class BacklogHook(Alarm):
    """The messages of a queue that wait to be dead-lettered; see `broker.core.queues.backlog`."""

    def try_soon(self) -> None:
        """Try all messages that wait: routes or rules have changed."""
        raise NotImplementedError


class MemoryHook(Alarm):
    """What a queue knows duplicates by; see `broker.core.queues.duplicates`."""


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamSink(StreamWatcher):
    """The stream of a queue; see `broker.core.streams.stream`."""

    def apply(self, held: dict[str, object]) -> None:
        """Apply these arguments from now on."""
        raise NotImplementedError

    def append(self, message: Message) -> None:
        """Append a message; the store accepts appends."""
        raise NotImplementedError

    def open_cursor(self, consumer: QueueConsumer) -> QueueContext:
        """Make the cursor of a consumer that is being attached.

        Raises:
            PreconditionFailed: it has a name, of which there are too many, or its partition does not exist.
        """
        raise NotImplementedError

    def drop(self) -> None:
        """The queue has been deleted."""
        raise NotImplementedError


@final
class Stops:
    """What of a queue is switched off. `Queue.stops` is None for a queue of which nothing is.

    `enqueue`: publishers are refused. What the broker itself puts there (dead letters, what was delayed, what
    an operator moves, what is returned) comes in all the same, or it would be lost.
    `dequeue`: consumers stay and get nothing, basic.get is refused. Browsers only look, and go on. What
    clients have may be settled and returned.
    """

    def __init__(self, enqueue: bool, dequeue: bool) -> None:
        self.enqueue = enqueue
        self.dequeue = dequeue
