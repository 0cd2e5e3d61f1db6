"""The interfaces between a queue and its features: limits, retries, groups, elections and others.

The modules of the features implement these classes. A queue that is journaled has a `QueueJournal`, to which
it reports each step as it takes it, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.arguments.queue import FAILURES
from broker.core.entries.cursor import Cursor
from broker.core.entries.entry import Holder, QueueEntry
from broker.core.entries.timers import Timers
from broker.core.message import Message
from broker.core.ports import StreamWatcher
from broker.core.queues.consumer import INTERESTED, NOTIFIED, QueueConsumer, TargetSession
from broker.core.queues.source import Source
from broker.core.queues.state import QueueState
from broker.core.schedule import Chore, Schedule, TimedTask, Timetable

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

DROP_HEAD: Final = 0  # accept it, and drop the oldest
REJECT_PUBLISH: Final = 1  # refuse it
REJECT_PUBLISH_DLX: Final = 2  # refuse it, and dead-letter it

OVERFLOWS: Final[dict[str, int]] = {
    "drop-head": DROP_HEAD,
    "reject-publish": REJECT_PUBLISH,
    "reject-publish-dlx": REJECT_PUBLISH_DLX,
}


class QueueJournal:
    """The journal of one queue's messages. Each step is reported once, when it has been decided.

    The base class is of no use by itself: a queue that is not journaled has none at all.
    """

    def enqueued(self, entry: QueueEntry, source: Source) -> None:
        """Record that `entry` is new, and where it came from."""
        raise NotImplementedError

    def delivered(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """Record that `entry` was acquired for `consumer`, or is delivered to it once more."""
        raise NotImplementedError

    def staged(self, entry: QueueEntry, holder: Holder) -> None:
        """Record that `entry` is set apart for the reader of a stage, whose holder owns it."""
        raise NotImplementedError

    def settled(self, entry: QueueEntry, consumer: Holder) -> None:
        """Record that `consumer` has settled `entry`."""
        raise NotImplementedError

    def returned(self, entry: QueueEntry, consumer: QueueConsumer, outcome: i64) -> None:
        """Record that `consumer` returns `entry`; `outcome` is one of `broker.core.arguments.queue`."""
        raise NotImplementedError

    def discarded(self, entry: QueueEntry, reason: i64) -> None:
        """Record that `entry` leaves without a dead letter; `reason` is an index of REASONS."""
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
        """Record that a message with this number and place becomes a dead letter, in `to` and others.

        `to`: None if the letter arrives in no queue. `by`: the consumer that had the message, if one had.
        """
        raise NotImplementedError

    def replaced(self, entry: QueueEntry) -> None:
        """Record that a later message has taken the place of `entry`."""
        raise NotImplementedError

    def removed(self, message: Message, order: i64, deliveries: i64, way: i64) -> None:
        """Record that an operator removes a message; `way` says whether it was moved (`source`)."""
        raise NotImplementedError

    def unwanted(self, entry: QueueEntry) -> None:
        """Record that `entry` was to be delivered immediately, and no consumer could get it."""
        raise NotImplementedError

    def refused(self, message: Message, source: Source) -> None:
        """Record that the queue, a last-value queue, refuses an immediate message whose value it has."""
        raise NotImplementedError

    def purged(self, first: i64, last: i64, count: i64, by: object | None) -> None:
        """Record that all entries from the place `first` to the place `last` leave, `count` together.

        `by`: the actor of the request, of `Journal.current_actor`.
        """
        raise NotImplementedError

    def appended(self, message: Message, offset: i64, source: Source) -> None:
        """Record that `message` from `source` has been appended to the queue, a stream, with this offset."""
        raise NotImplementedError

    def shown(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """Record that `entry` is sent to `consumer`, which acquires nothing."""
        raise NotImplementedError

    def trimmed(self, first: i64, last: i64, count: i64) -> None:
        """Record that retention removes `count` rows of a stream, with the offsets from `first` to `last`."""
        raise NotImplementedError

    def current_actor(self) -> object | None:
        """Return the actor of what happens now (`Journal.current_actor`)."""
        raise NotImplementedError

    def renamed(self) -> None:
        """Record that the queue has another name from here on."""
        raise NotImplementedError

    def deleted(self) -> None:
        """Record that the queue is deleted, with all its messages."""
        raise NotImplementedError


ABLE: Final[tuple[int, ...]] = (INTERESTED, NOTIFIED)  # states of an acquiring consumer that wants work


class Discipline:
    """The rule by which a queue holds entries back, from all consumers or from all but one.

    A queue has at most one discipline, set before it has entries, and is never `alike` then. The code that
    looks for the next entry calls `next_entry`. The code that looks for a consumer calls `is_open` and
    `owner`. Browsers call neither. The queue reports what happens to entries and consumers. The discipline
    makes sure that entries it stops holding back are noticed.

    `personal`: consumers that see the same entries may have different next ones.
    `pauses`: it has much to do in later turns, and until then no attached consumer is served.
    """

    def __init__(self, personal: bool) -> None:
        self.personal = personal
        self.pauses: bool = False

    # ---- questions

    def next_entry(self, consumer: QueueConsumer) -> QueueEntry | None:
        """Return the entry to deliver next to `consumer`, which acquires, or None.

        As `Cursor.get_next_available_entry`, `context.more` included.
        """
        raise NotImplementedError

    def is_open(self, entry: QueueEntry) -> bool:
        """Whether `entry`, which is AVAILABLE, may be delivered now."""
        raise NotImplementedError

    def owner(self, entry: QueueEntry) -> QueueConsumer | None:
        """Return the only consumer that may have `entry`; None: every consumer that sees it."""
        return None

    def contenders(self, entry: QueueEntry) -> list[QueueConsumer]:
        """Return the consumers that alone may have `entry` now, the first one first; [] if `owner` is None.

        There are several if a transaction has the predecessors of `entry`: consumers of its session.
        """
        owner = self.owner(entry)
        return [] if owner is None else [owner]

    def parked_in(self, context: Cursor) -> list[QueueEntry]:
        """Return the AVAILABLE entries that `context` has passed, and that are not in its `all_behind`."""
        return []

    # ---- changes

    def note_arrival(self, entry: QueueEntry) -> None:
        """Note that `entry` is new, and has not been announced."""

    def note_acquisition(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """Note that `consumer`, attached or a basic.get, has just acquired `entry`."""

    def note_departure(self, entry: QueueEntry, owner: Holder | None) -> None:
        """Note that `entry` is DEQUEUED; `owner` had acquired it, None: it was not acquired."""

    def note_return(self, entries: list[QueueEntry]) -> None:
        """Note that `entries`, all of one call, have been requeued. Notify no consumer before `wake`."""

    def wake(self) -> None:
        """Notify consumers that can get more than the requeued entries, which cursors know already."""

    def note_promise(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """Note that a transaction of `consumer`, which has `entry`, will remove it with its commit."""

    def note_withdrawal(self, entries: list[QueueEntry]) -> None:
        """Note that the transaction that would have removed `entries` has been rolled back."""

    def notify_another(self) -> None:
        """Notify another consumer that alone may have an entry, because a NOTIFIED one has dropped out."""

    def note_attached(self, consumer: QueueConsumer) -> None:
        """Note that `consumer`, which acquires, has been attached."""

    def note_detached(self, consumer: QueueConsumer) -> None:
        """Note that `consumer` has been detached and its entries have been requeued."""

    def note_context(self, consumer: QueueConsumer) -> None:
        """Note that `consumer` uses the cursor of another context, which has not moved yet."""

    def note_exclusion(self, consumer: QueueConsumer, entries: list[QueueEntry]) -> None:
        """Note that `consumer`, which has `entries`, is about to return them and must not get them again."""

    def free_other_groups(self, consumer: QueueConsumer) -> None:
        """Note that from now on the queue serves `consumer` alone."""


def able_consumers(session: TargetSession, queue: QueueState, entry: QueueEntry) -> Iterator[QueueConsumer]:
    """Yield the consumers of `session` that want work from `queue` and see `entry`."""
    for target in session.targets:
        for consumer in target.consumers:
            if consumer.queue is queue and consumer.state in ABLE and consumer.context.sees(entry):
                yield consumer


def first_idle(consumers: Iterable[QueueConsumer]) -> QueueConsumer | None:
    """Return the first of `consumers` that is INTERESTED."""
    for consumer in consumers:
        if consumer.state == INTERESTED:
            return consumer
    return None


@mypyc_attr(allow_interpreted_subclasses=True)
class ReadyWatcher:
    """A watcher of a queue that takes no messages yet, and must know when messages become ready."""

    def on_ready(self) -> None:
        """Note that messages have become ready. Must not call back into the queue."""
        raise NotImplementedError

    def on_return(self, back: list[QueueEntry]) -> None:
        """Note that the entries `back` have become ready again. Must not call back into the queue."""
        self.on_ready()


@mypyc_attr(allow_interpreted_subclasses=True)
class DemandWatcher:
    """A watcher of a queue that must know when its consumers begin or cease to wait for messages."""

    def on_demand_changed(self) -> None:
        """Note that a consumer waits for a message, or no longer does. Must not call back into the queue."""
        raise NotImplementedError


class LetterRoute:
    """The route of dead letters, as their queue stores it; `broker.core.routing.graph` extends this class."""


class RoomWaiter:
    """Messages that wait for room in a full queue. `is_woken`: they are about to be tried."""

    def __init__(self) -> None:
        self.is_woken = False

    def wake(self) -> None:
        """Try the first of the messages soon, because there is room."""
        raise NotImplementedError


class LimitsHook(Chore):
    """The limits of a queue in time and space, and its dead-lettering; see `broker.core.queues.limits`.

    `ttl`, `expires`: milliseconds, -1: for ever. `max_length`, `max_bytes`: limits of the ready entries and
    their bodies. Where publishes are refused, messages that wait to be dead-lettered count too. `limited`:
    one of these two is set.
    `overflow`: DROP_HEAD, REJECT_PUBLISH or REJECT_PUBLISH_DLX. `reserved`, `reserved_bytes`: room for
    messages of transactions that are being committed. `dead_letter_reasons`: bits, 1 << reason; none without
    a dead-letter exchange.
    `sure`: the queue dead-letters at least once. `room_waiters`: dead letters that wait for room;
    publishes are refused while there are some, or they would take that room. `timetable`: the messages that
    the queue holds until their date. `timers`: those of the entries that are AVAILABLE or HELD and expire.
    """

    def __init__(self, schedule: Schedule, budget: i64) -> None:
        super().__init__(schedule, budget)
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
        self.room_waiters: dict[RoomWaiter, None] = {}
        self.drops: i64 = 0  # dropped dead letters that have not been logged yet
        self.silent_until: i64 = 0  # on the schedule's clock: when the next drop may be logged
        self.dead_letter_route: LetterRoute | None = None  # the latest

    @property
    def queue_name(self) -> str:
        """The name of the queue."""
        raise NotImplementedError

    @property
    def careful(self) -> bool:
        """Whether a publish to the queue needs more than an append and an enqueue."""
        raise NotImplementedError

    @property
    def passes_on(self) -> bool:
        """Whether a refused message is dead-lettered."""
        raise NotImplementedError

    def refuses(self, message: Message) -> bool:
        """Whether a message is refused because the queue is full; a message that replaces another is not.

        Dead letters that wait for room come first.
        """
        raise NotImplementedError

    def lacks_room(self, message: Message) -> bool:
        """Whether the queue, which refuses publishes when it is full, has no room for a message now."""
        raise NotImplementedError

    def on_room_made(self) -> None:
        """Try the next waiting dead letters soon, because the queue has more room."""
        raise NotImplementedError

    def moves(self, reason: i64) -> bool:
        """Whether a message that dies for this reason is dead-lettered; else it is discarded."""
        return self.dead_letter_reasons >> reason & 1 != 0

    def reserve(self, count: i64, size: i64) -> None:
        """Reserve room for messages of a transaction, or release it if negative."""
        raise NotImplementedError

    def apply(self, effective: dict[str, object]) -> None:
        """Apply the arguments from now on. Existing entries keep their expiry."""
        raise NotImplementedError

    def admit(self, entry: QueueEntry) -> bool:
        """Apply the limits to `entry`, new and not announced; false if it is not AVAILABLE any more."""
        raise NotImplementedError

    def note_early_delivery(self, entry: QueueEntry) -> None:
        """Set the expiry of `entry`, new but already delivered, for a later requeue."""
        raise NotImplementedError

    def restore_expiry(self, entry: QueueEntry) -> None:
        """Continue the expiry of `entry`, which is from before a restart."""
        raise NotImplementedError

    def note_returns(self, entries: list[QueueEntry]) -> None:
        """Apply the limits to `entries`, AVAILABLE or HELD again and not announced; some may leave."""
        raise NotImplementedError

    def note_parked(self, entry: QueueEntry) -> None:
        """Note that the discipline keeps `entry`, AVAILABLE, behind the cursor that consumers share."""
        raise NotImplementedError

    def touch(self) -> None:
        """Note that the queue is used: by a declaration, a basic.get or a consumer that is detached.

        [RabbitMQ x-expires]
        """
        raise NotImplementedError

    def keep_queue(self) -> None:
        """Keep the queue: it has been declared again. [RabbitMQ x-expires]"""
        raise NotImplementedError

    def dead_letter(self, entry: QueueEntry, reason: i64) -> None:
        """Dead-letter `entry`: AVAILABLE, ACQUIRED or HELD → DEQUEUED."""
        raise NotImplementedError

    def wait_for_room(self, seeker: RoomWaiter, message: Message) -> bool:
        """Let `seeker` wait for room for `message` behind others.

        False: there never is room for the message, or `seeker` waits already.
        """
        raise NotImplementedError

    def stop_waiting_for_room(self, seeker: RoomWaiter) -> None:
        """End the wait of `seeker` for room."""
        raise NotImplementedError

    def starts_dead_lettering(self, reason: i64) -> bool:
        """Dead-letter the messages of the queue, which is about to be deleted, if its limits say so.

        True if the queue stays until the last message has left, in later turns. Then it is deleted, unless it
        is declared again, or, if it was to expire, used again.
        """
        raise NotImplementedError

    def note_empty_backlog(self) -> None:
        """Delete the queue if it is due, because no message waits to be dead-lettered any more."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop all timers: the queue is deleted."""
        raise NotImplementedError


class QueueRetry(Chore):
    """The rules for entries that are returned to a queue; see `broker.core.queues.retry`.

    `counted`: the outcomes that count towards the delivery limit.
    """

    def __init__(self, schedule: Schedule, budget: i64) -> None:
        super().__init__(schedule, budget)
        self.counted: i64 = FAILURES

    def apply(self, effective: dict[str, object]) -> None:
        """Apply the arguments from now on. HELD entries keep their times."""
        raise NotImplementedError

    def count_return(self, entry: QueueEntry, outcome: i64) -> None:
        """Count the return of `entry`, still ACQUIRED, if a return with this outcome counts."""
        raise NotImplementedError

    def has_delay_for(self, outcome: i64) -> bool:
        """Whether an entry that is returned with this outcome waits."""
        raise NotImplementedError

    def hold_all(self, entries: list[QueueEntry], outcome: i64) -> None:
        """Hold `entries`, which have just been returned, for their times: AVAILABLE → HELD."""
        raise NotImplementedError

    def forget_wait(self, entry: QueueEntry) -> None:
        """Forget the time of `entry`, if it has one, which the caller makes AVAILABLE or DEQUEUED."""
        raise NotImplementedError

    def stop(self) -> None:
        """Cancel the task: the queue is deleted."""
        raise NotImplementedError


class ElectionHook:
    """The election of the consumer that a queue serves; see `broker.core.queues.election`."""

    def check_attach(self, consumer: QueueConsumer) -> None:
        """Refuse an exclusive consumer on a queue that elects all of its consumers in turn. Raises InUse."""
        raise NotImplementedError

    def check_get(self) -> None:
        """Refuse a basic.get, which would take a message past the active consumer. Raises ResourceLocked."""
        raise NotImplementedError

    def stands_by(self, newcomer: QueueConsumer) -> bool:
        """Whether `newcomer`, which acquires and is about to be attached, is not served for now."""
        raise NotImplementedError

    def note_attached(self, newcomer: QueueConsumer) -> None:
        """Note that `newcomer`, which acquires, is attached and stands by."""
        raise NotImplementedError

    def note_detached(self) -> None:
        """Elect the next consumer if the active one was detached. The detached one's entries are released."""
        raise NotImplementedError

    def note_delivery_end(self) -> None:
        """Note that a delivery has been settled or returned. The queue's state is consistent."""
        raise NotImplementedError

    def prefer(self, consumer: QueueConsumer) -> None:
        """Serve `consumer`, an attached candidate, when no other one has an unsettled delivery."""
        raise NotImplementedError

    def activity_of(self, consumer: QueueConsumer) -> str:
        """Return the activity of `consumer`, which acquires.

        The activity is SINGLE_ACTIVE, WAITING or DRAINING, and UP before the election begins.
        """
        raise NotImplementedError


class GateHook(TimedTask):
    """The gate of a queue, shut until enough consumers are attached; see `broker.core.queues.election`.

    `is_open`: consumers are served.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_open: bool = False

    def note_attached(self) -> None:
        """Count a new acquiring consumer, which waits behind the gate if it is shut."""
        raise NotImplementedError

    def note_detached(self) -> None:
        """Uncount an acquiring consumer that was detached."""
        raise NotImplementedError

    def apply(self, wanted: i64, delay: i64) -> None:
        """Apply a new number of consumers and a new delay in milliseconds."""
        raise NotImplementedError

    def open(self) -> None:
        """Open the gate: all waiting consumers are served."""
        raise NotImplementedError

    def stop(self) -> None:
        """Cancel the task: the queue is deleted."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Settlement(Chore):
    """Deliveries that were settled or returned, and are processed in slices.

    See `broker.core.queues.returns`.
    """

    def finish_queue(self, queue: QueueState) -> None:
        """Process the deliveries of `queue` at once."""
        raise NotImplementedError

    def finish_before_deletion(self, queue: QueueState) -> None:
        """Process the deliveries of `queue`, which is about to be deleted."""
        self.finish_queue(queue)

    def drop_all(self) -> None:
        """Drop deliveries: all queues are about to be deleted, with their virtual host and their entries."""


class DiscardsHook(Chore):
    """Rejected entries that leave in later turns; see `broker.core.queues.returns`."""

    def add(self, entries: list[QueueEntry], consumer: QueueConsumer, reason: i64) -> None:
        """Append `entries`, which `consumer` owns and which leave after all earlier entries."""
        raise NotImplementedError


class UndeliverableHook(Chore):
    """The entries that consumers cannot process themselves; see `broker.core.queues.undeliverable`."""

    def add(self, entries: list[QueueEntry]) -> None:
        """Note entries that a consumer returns as undeliverable to itself; they are about to be requeued."""
        raise NotImplementedError

    def check_returns(self, entries: list[QueueEntry]) -> None:
        """Check which of `entries`, all requeued, no consumer can get any more."""
        raise NotImplementedError

    def note_detached(self) -> None:
        """Check all noted entries: a consumer of the queue was detached."""
        raise NotImplementedError


class BacklogHook(Chore):
    """The messages of a queue that wait to be dead-lettered; see `broker.core.queues.dead_letter_backlog`."""

    def try_soon(self) -> None:
        """Try all waiting messages soon, because routes or limits have changed."""
        raise NotImplementedError


class MemoryHook(Chore):
    """The duplicates filter of a queue; see `broker.core.queues.duplicates`."""


class MemberHook:
    """The membership of a queue in a partitioned queue; see `broker.core.partitions.partitioned`.

    `front_name`: the name of the partitioned queue. `arguments`: its effective arguments, which concern its
    consumers. `is_leaving`: the mapping does not name the member any more.
    """

    def __init__(self) -> None:
        self.is_leaving = False

    @property
    def front_name(self) -> str:
        """The name of the partitioned queue."""
        raise NotImplementedError

    @property
    def arguments(self) -> dict[str, object]:
        """The effective arguments of the partitioned queue."""
        raise NotImplementedError

    def note_arrival(self, entry: QueueEntry) -> None:
        """Note that `entry` is new and has not been announced. It is HELD if others must leave before."""
        raise NotImplementedError

    def note_departure(self, entry: QueueEntry) -> None:
        """Note that `entry` is DEQUEUED."""
        raise NotImplementedError

    def take_back(self, entry: QueueEntry) -> None:
        """Make `entry` AVAILABLE if it is HELD by the membership: a reader had it before a restart."""
        raise NotImplementedError

    def postpone_expiry(self, entry: QueueEntry) -> bool:
        """Let `entry`, whose time to live is 0, expire unless a consumer takes it soon after its release.

        False if the membership does not hold the entry.
        """
        raise NotImplementedError

    def reserve(self, count: i64) -> None:
        """Expect so many messages, whose enqueue follows later; negative: expect so many fewer."""
        raise NotImplementedError

    def note_renamed(self, name: str) -> None:
        """Note that the queue, which had this name, has another name now."""
        raise NotImplementedError

    def note_deleted(self) -> None:
        """Note that the queue has been deleted. Its entries leave in later turns."""
        raise NotImplementedError


class PartitionsHook:
    """The members of a partitioned queue; see `broker.core.partitions.partitioned`."""

    @property
    def has_members_elsewhere(self) -> bool:
        """Whether a member is in another broker."""
        raise NotImplementedError

    def attach(self, consumer: QueueConsumer) -> None:
        """Attach a consumer of the partitioned queue to all members. Raises the errors of `attach`."""
        raise NotImplementedError

    def detach(self, consumer: QueueConsumer) -> None:
        """Detach a consumer of the partitioned queue from it and from all members."""
        raise NotImplementedError

    def member_queues(self) -> list[QueueState]:
        """Return the queues that have messages of the partitioned queue, in the order of the mapping."""
        raise NotImplementedError

    def apply(self) -> None:
        """Apply the effective arguments of the partitioned queue to its members."""
        raise NotImplementedError

    def stop(self) -> None:
        """Cancel all tasks, because the partitioned queue is deleted."""
        raise NotImplementedError

    def end(self) -> None:
        """Detach all parts and end all memberships. The members keep their messages."""
        raise NotImplementedError


class RemoteHook:
    """The other broker's side of a remote queue; see `broker.core.remotes.remote`.

    The remote queue and its inlet, which has the messages that came from the other broker, share one hook.
    """

    def inlet_for(self, consumer: QueueConsumer) -> QueueState:
        """Return the inlet, to which a consumer of the remote queue is attached instead.

        Raises:
            PreconditionFailed: the other broker cannot serve such a consumer.
            InUse: a consumer is exclusive, and the other one browses.
        """
        raise NotImplementedError

    def note_dropped(self, message: Message) -> None:
        """Note that a message has left the remote queue, and is not in the other broker."""
        raise NotImplementedError

    def note_demand(self) -> None:
        """Note that the consumers of the inlet may want more messages, or fewer."""
        raise NotImplementedError

    def settle(self, entry: QueueEntry) -> None:
        """Have the other broker settle an entry of the inlet, which is DEQUEUED."""
        raise NotImplementedError

    def reject(self, entry: QueueEntry) -> None:
        """Have the other broker reject an entry of the inlet, which is DEQUEUED."""
        raise NotImplementedError

    def requeue(self, entry: QueueEntry) -> None:
        """Have the other broker requeue an entry of the inlet, which is DEQUEUED."""
        raise NotImplementedError

    def check_purge(self) -> None:
        """Check that the other broker can be reached for a purge. Raises PreconditionFailed."""
        raise NotImplementedError

    def purge(self, done: Callable[[i64, str], None]) -> None:
        """Purge the queue of the other broker.

        `done` gets the number of messages, and why messages may be left, "" if none are left.

        Raises:
            PreconditionFailed: the other broker cannot be reached.
        """
        raise NotImplementedError

    def consumer_count(self) -> int:
        """Return the number of consumers of the remote queue."""
        raise NotImplementedError

    def subscription_count(self) -> int:
        """Return the same without the consumers of the partitioned queue that has this member."""
        raise NotImplementedError

    def end(self) -> QueueState:
        """End the link to the other broker: the remote queue has been deleted. Return the inlet."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamSink(StreamWatcher):
    """The stream of a queue; see `broker.core.streams.stream`."""

    def apply(self, effective: dict[str, object]) -> None:
        """Apply the arguments from now on."""
        raise NotImplementedError

    def append(self, message: Message, source: Source) -> None:
        """Append a message from `source`; the store accepts appends."""
        raise NotImplementedError

    def open_cursor(self, consumer: QueueConsumer) -> Cursor:
        """Make the cursor of a consumer that is being attached.

        Raises:
            PreconditionFailed: too many named consumers, or its partition does not exist.
        """
        raise NotImplementedError

    def drop(self) -> None:
        """Drop the stream: the queue has been deleted."""
        raise NotImplementedError


@final
class Stops:
    """The operations of a queue that are switched off. `Queue.stops` is None if none is.

    `enqueue`: publishes are refused. Messages that the broker itself puts there (dead letters, delayed
    messages, messages that an operator moves, requeued messages) are accepted all the same, or they would be
    lost.
    `dequeue`: consumers stay attached and get nothing, and basic.get is refused. Browsers are still served.
    Clients may settle and return their deliveries.
    """

    def __init__(self, enqueue: bool, dequeue: bool) -> None:
        self.enqueue = enqueue
        self.dequeue = dequeue
