"""A consumer of a queue: one subscription, its states and blockers, and its target, the client's end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.arguments.consumer import BrowseRange
from broker.core.entries.cursor import Cursor
from broker.core.entries.entry import EntryFilter, Holder, QueueEntry
from broker.core.queues.lease import Lease
from broker.core.queues.source import PUBLISHED, Source
from broker.core.queues.state import QueueState

# States. The order matters: up to NOT_INTERESTED nothing is delivered; from NOTIFIED on a turn is kept.
REMOVED: Final = 0  # not attached
NOT_INTERESTED: Final = 1  # some blocker is set: the queue does not rely on the consumer
INTERESTED: Final = 2  # the consumer would take an entry now
NOTIFIED: Final = 3  # the queue relies on the consumer to pull until it gets nothing or is suspended
NON_ACQUIRING: Final = 4  # a browser: notified of every entry

# Blockers: why a consumer is NOT_INTERESTED. Bits, so that further reasons are further bits.
BLOCKED_BY_TARGET: Final = 1  # no credit, flow off, transport full, closed
BLOCKED_BY_SIZE: Final = 2  # the next entry is larger than the rest of the consumer's byte window
BLOCKED_BY_STANDBY: Final = 4  # the queue serves another consumer alone
BLOCKED_BY_STOP: Final = 8  # dequeue is switched off
BLOCKED_BY_GATE: Final = 16  # the queue waits until there are enough consumers
BLOCKED_BY_PURGE: Final = 32  # the queue is being purged
BLOCKED_BY_GROUPS: Final = 64  # the owners of the message groups are being determined
BLOCKED_BY_RETURNS: Final = 128  # an entry before its next one may be about to be requeued
BLOCKED_BY_MEMBERS: Final = 256  # the queue is partitioned: consumers of its members get the messages

ROOM_MAX: Final[i64] = 1000  # messages that are brought from another broker for a consumer without a limit

# Activities, as clients see them. [RabbitMQ activity_status]
UP: Final = "up"  # any number of consumers of its queue are served
SINGLE_ACTIVE: Final = "single_active"  # the only served consumer
WAITING: Final = "waiting"  # stands by
DRAINING: Final = "draining"  # was served; its successor waits until its deliveries are settled

# Why a consumer starts or stops being served.
ATTACHED: Final = "attached"  # the consumer was attached, and no other consumer had precedence
ELECTED: Final = "elected"  # the consumer is the only served consumer now
ELECTION_OVER: Final = "election-over"  # all consumers are served again
OUTRANKED: Final = "outranked"  # another one is served alone
DETACHED: Final = "detached"  # the consumer was cancelled, its channel was closed or its queue deleted


@mypyc_attr(allow_interpreted_subclasses=True)
class TargetSession(Source):
    """The session of consumer targets, as queues see it; `broker.core.delivery.session` extends this class.

    `targets`: the targets of the session, in the order in which they were attached.
    """

    def __init__(self) -> None:
        super().__init__(PUBLISHED)
        self.targets: dict[ConsumerTarget, None] = {}


@mypyc_attr(allow_interpreted_subclasses=True)
class ConsumerTarget:
    """The client's end of its consumers, as queues see it: a consumer tag (0-9-1) or a link (1.0).

    `consumers`: its consumers, usually one. `peers`: its session. `desired`: the target wants work: it has
    credit, the flow is on, the transport accepts data, and the target is not `closed`. `sized`: `fits`
    depends on the size of the message, or on a window of the session; otherwise the queue does not ask.

    The call-outs must not call back into the queue, with two exceptions: `deliver` may restore credit as its
    last act, and `on_snapshot_end` removes the consumer.
    """

    def __init__(self, peers: TargetSession) -> None:
        self.peers = peers
        self.consumers: list[QueueConsumer] = []
        self.closed: bool = False
        self.desired: bool = False
        self.sized: bool = False

    # ---- questions of the queue

    def is_sized(self) -> bool:
        """Whether the size of a message, or the window of the session, decides if the message fits."""
        raise NotImplementedError

    def fits(self, size: i64) -> bool:
        """Whether the windows have room for a message of `size` bytes."""
        raise NotImplementedError

    def use_credit(self, size: i64) -> None:
        """Charge the windows for a message of `size` bytes that is being sent."""
        raise NotImplementedError

    def restore_credit(self, size: i64) -> None:
        """Restore the credit of a message of `size` bytes that was settled, released or discarded."""
        raise NotImplementedError

    def restore_all(self, count: i64, size: i64) -> None:
        """Restore the credit of `count` settled, released or discarded messages of `size` bytes together."""
        raise NotImplementedError

    def wants_work(self) -> bool:
        """Whether the target is open, and credit, flow and transport allow a delivery."""
        raise NotImplementedError

    def credit_left(self) -> i64:
        """Return how many more messages the target, which wants work, takes; about, and at most ROOM_MAX."""
        return 1

    def update(self) -> None:
        """Recompute `desired`, and inform the queues if it has changed."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop wanting work. The caller removes the consumers from their queues afterwards."""
        raise NotImplementedError

    def notify_work(self) -> None:
        """Request a turn: a queue of the target may have work."""
        raise NotImplementedError

    def flush_soon(self) -> None:
        """Request a turn, to flush a message that was delivered out of turn."""
        raise NotImplementedError

    # ---- call-outs

    def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        """Send `entry.message` to the client.

        The entry is ACQUIRED by `consumer` (AVAILABLE if it browses).
        """
        raise NotImplementedError

    def on_no_messages(self, consumer: QueueConsumer) -> None:
        """Note that `consumer` found no entry, although it has credit."""

    def on_acquisition_removed(self, entry: QueueEntry) -> None:
        """Note that a deleted queue has taken back an entry of this target.

        Settling or releasing the entry has no effect. The client does not know this, so its credit is
        restored when it settles the delivery.
        """

    def on_consumer_cancelled(self, consumer: QueueConsumer) -> None:
        """Note that the queue was deleted, and `consumer` with it."""

    def on_snapshot_end(self, consumer: QueueConsumer) -> None:
        """Remove `consumer`, a browser that has seen its whole snapshot, from its queue."""

    def on_activity_changed(self, consumer: QueueConsumer, active: bool, why: str) -> None:
        """Note that `consumer`, which acquires, is served from now on, or no longer.

        `why` is ATTACHED, ELECTED, ...
        """


class OwnedGroups:
    """The message groups that a consumer owns; `broker.core.queues.groups` extends this class."""

    def owns_some(self) -> bool:
        """Whether the consumer owns a group."""
        raise NotImplementedError


@final
class QueueConsumer(Holder):
    """A subscription of `target` to `queue`.

    The subscription lasts from `attach` to `detach` of `broker.core.queues.attach`.

    `acquires`: False makes it a browser, which sees every entry in order and takes none.
    `priority`: consumers of higher priority are served first while they have credit; default 0. [RabbitMQ
    x-priority]
    `rank`: the order that follows from the priority, see `QueueConsumerManager.strict`.
    `exclusive`: refuse every other consumer of the queue. [AMQP 0-9-1 basic.consume.exclusive]
    `candidate`: a candidate for exclusive service by the queue. [ActiveMQ exclusive consumer]
    `getting`: a basic.get that waits for one message, or a follower over HTTP; neither counts as a consumer.
    `tag`: the client's name for it; the core does not read it.
    `name`: the journal's name for it, once the journal needs one.
    `lease`: the time limit for settling each delivery, None: no limit; the target starts it.
    `no_ack`: the queue settles each entry as soon as `target.deliver` has returned.
    `filter`: selects the entries that it sees, None: all.
    `extent`: the part of the queue that a browser sees, None: all. Set before it is attached.
    `inflight`: the number of entries that it has acquired and that are neither settled nor released. The
    number counts on after its removal.
    `woken`: it is NOTIFIED, and has had no message since its notification.
    `delivered`: its deliveries since it was attached, of which `redelivered` were not the first ones.
    `parts`: for a consumer of a partitioned queue, its consumers of the members.
    `front`: for such a part, the consumer of the partitioned queue.
    """

    def __init__(
        self,
        target: ConsumerTarget,
        queue: QueueState,
        acquires: bool = True,
        priority: i64 = 0,
        exclusive: bool = False,
        tag: str = "",
        no_ack: bool = False,
        entry_filter: EntryFilter | None = None,
    ) -> None:
        super().__init__(tag, acquires, no_ack)
        self.target = target
        self.queue = queue
        self.priority = priority
        self.exclusive = exclusive
        self.name: object | None = None
        self.filter = entry_filter
        self.extent: BrowseRange | None = None
        self.lease: Lease | None = None
        self.candidate: bool = False
        self.rank: i64 = priority
        self.getting: bool = False
        self.state: i64 = REMOVED
        self.blockers: i64 = 0
        self.woken: bool = False
        self.delivered: i64 = 0
        self.redelivered: i64 = 0
        self.context: Cursor = queue.context
        self.waiting_on: QueueEntry | None = None
        self.holding: OwnedGroups | None = None  # the groups of the consumer, from its first group on
        self.parts: list[QueueConsumer] = NO_PARTS
        self.front: QueueConsumer | None = None
        # set and read by the queue's QueueConsumerManager only
        self.level: ConsumerLevel | None = None
        self.prev: QueueConsumer | None = None
        self.next: QueueConsumer | None = None

    def on_acquisition_removed(self, entry: QueueEntry) -> None:
        """Inform the target that a deleted queue has taken `entry` back."""
        self.target.on_acquisition_removed(entry)

    def notify_work(self) -> None:
        """Request a turn, because the queue may have work. Never delivers from here."""
        self.target.notify_work()


NO_PARTS: Final[list[QueueConsumer]] = []
"""The parts of all consumers of other queues. The list is not changed."""


@final
class NoClient(ConsumerTarget):
    """The target of a consumer without a client: it has no windows, and nothing is sent to it."""

    def is_sized(self) -> bool:
        """Whether windows limit the size of a message: never."""
        return False

    def fits(self, size: i64) -> bool:
        """Whether the windows have room for a message: always."""
        return True

    def use_credit(self, size: i64) -> None:
        """Charge nothing: there are no windows."""

    def restore_credit(self, size: i64) -> None:
        """Restore nothing: there are no windows."""

    def restore_all(self, count: i64, size: i64) -> None:
        """Restore nothing: there are no windows."""

    def wants_work(self) -> bool:
        """Whether the target takes deliveries: never."""
        return False


def make_holder(queue: QueueState, tag: str = "", no_ack: bool = False) -> QueueConsumer:
    """Return an owner of entries of `queue` that is never attached: for an operation, a stage or an HTTP get.

    `tag`: the journal's name for the owner. `no_ack`: its settlements do not count as acknowledgements.
    """
    return QueueConsumer(NoClient(TargetSession()), queue, tag=tag, no_ack=no_ack)


@final
class QueueConsumerList:
    """Consumers in one state, linked through themselves: O(1) append at the tail, O(1) removal of any."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.head: QueueConsumer | None = None
        self.tail: QueueConsumer | None = None

    def append(self, consumer: QueueConsumer) -> None:
        """Put `consumer`, which is in no list, at the tail; this makes the service round-robin."""
        tail = self.tail
        consumer.prev = tail
        if tail is None:
            self.head = consumer
        else:
            tail.next = consumer
        self.tail = consumer
        self.count += 1

    def remove(self, consumer: QueueConsumer) -> None:
        """Remove `consumer`, which is in this list."""
        before = consumer.prev
        after = consumer.next
        if before is None:
            self.head = after
        else:
            before.next = after
        if after is None:
            self.tail = before
        else:
            after.prev = before
        consumer.prev = None
        consumer.next = None
        self.count -= 1

    def __iter__(self) -> Iterator[QueueConsumer]:
        """All consumers in order; too slow for the hot path. The list must not change meanwhile."""
        consumer = self.head
        while consumer is not None:
            yield consumer
            consumer = consumer.next


@final
class ConsumerLevel:
    """The acquiring consumers of one rank that share the cursor `context`, and so see the same entries.

    `members` counts them in all states. `home` is the list that contains the level while one of them wants
    work; `listed`: it is there. `turn`: when one of them was last notified.
    """

    def __init__(self, rank: i64, context: Cursor, home: list[ConsumerLevel]) -> None:
        self.rank = rank
        self.context = context
        self.home = home
        self.listed: bool = False
        self.turn: i64 = 0
        self.members: i64 = 0
        self.interested = QueueConsumerList()
        self.notified = QueueConsumerList()

    @property
    def wants_work(self) -> bool:
        """Whether one of the consumers would take an entry."""
        return self.interested.head is not None or self.notified.head is not None

    def enlist(self) -> None:
        """Insert the level into `home`, behind higher ranks and behind equal ranks that waited longer."""
        home = self.home
        self.listed = True
        if len(home) == 1 and not home[0].wants_work:
            home[0].listed = False
            home[0] = self
        else:
            home.insert(self._place(), self)

    def delist(self) -> None:
        """Remove the level from `home`."""
        home = self.home
        self.listed = False
        if home[0] is self:  # most often
            del home[0]
            return
        index = self._place() - 1
        while home[index] is not self:  # equal levels that were inserted later are behind `self`
            index -= 1
        del home[index]

    def _place(self) -> i64:
        """Find the place behind all levels of `home` that do not come after this one."""
        home = self.home
        low: i64 = 0
        high: i64 = len(home)
        while low < high:
            middle = (low + high) >> 1
            other = home[middle]
            if other.rank < self.rank or (other.rank == self.rank and other.turn > self.turn):
                high = middle
            else:
                low = middle + 1
        return low
