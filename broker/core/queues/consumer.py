"""One subscription to one queue, as the queue sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.arguments.consumer import Extent
from broker.core.entries.cursor import QueueContext
from broker.core.entries.entry import EntryFilter, Holder, QueueEntry
from broker.core.queues.lease import Lease
from broker.core.queues.state import QueueState

# States. The order matters: up to NOT_INTERESTED nothing is delivered; from NOTIFIED on a turn is kept.
REMOVED: Final = 0  # not, or no longer, attached
NOT_INTERESTED: Final = 1  # some blocker is set: nobody relies on it
INTERESTED: Final = 2  # would take an entry now
NOTIFIED: Final = 3  # relied upon: it pulls until it gets nothing, or says that it is not interested
NON_ACQUIRING: Final = 4  # a browser: told about every entry

# Blockers: why a consumer is NOT_INTERESTED. Bits, so that further reasons are further bits.
BLOCKED_BY_TARGET: Final = 1  # no credit, flow off, transport full, closed
BLOCKED_BY_SIZE: Final = 2  # its next entry is too large for what is left of its byte window
BLOCKED_BY_STANDBY: Final = 4  # the queue serves one consumer at a time, and that is not its turn yet
BLOCKED_BY_STOP: Final = 8  # dequeue is switched off
BLOCKED_BY_GATE: Final = 16  # the queue waits until there are enough consumers
BLOCKED_BY_PURGE: Final = 32  # what the queue has is about to go
BLOCKED_BY_GROUPS: Final = 64  # whose groups are whose is being found out
BLOCKED_BY_RETURNS: Final = 128  # what comes before its next entry may be on its way back

# Activities, as clients are shown them. [RabbitMQ activity_status]
UP: Final = "up"  # any number of consumers of its queue are served
SINGLE_ACTIVE: Final = "single_active"  # the one that is served
WAITING: Final = "waiting"  # stands by
DRAINING: Final = "draining"  # was served, and the next one waits for the deliveries that it still has

# Why a consumer comes to be served, or ceases to be.
ATTACHED: Final = "attached"  # it came, and nobody was to be waited for
ELECTED: Final = "elected"  # it is the one that is served
ELECTION_OVER: Final = "election-over"  # everybody is served again
OUTRANKED: Final = "outranked"  # another one is served alone
DETACHED: Final = "detached"  # it was cancelled, or its channel, connection or queue has gone


@mypyc_attr(allow_interpreted_subclasses=True)
class TargetSession:
    """The session of consumer targets, as queues know it; `broker.core.delivery.session` extends this class.

    `targets`: the targets of the session, in the order in which they came.
    """

    def __init__(self) -> None:
        self.targets: dict[ConsumerTarget, None] = {}


@mypyc_attr(allow_interpreted_subclasses=True)
class ConsumerTarget:
    """The client's end of its consumers, as queues know it: a consumer tag or a link.

    `consumers`: its consumers, usually one. `peers`: the session that it belongs to. `desired`: work is
    wanted: there is credit, the flow is on, the transport takes data, and the target is not `closed`.

    The call-outs must not call back into the queue, except that `deliver` may restore credit as its last act,
    and that `shown_all` removes the consumer.
    """

    def __init__(self, peers: TargetSession) -> None:
        self.peers = peers
        self.consumers: list[QueueConsumer] = []
        self.closed: bool = False
        self.desired: bool = False

    # ---- what the queue asks

    def fits(self, size: i64) -> bool:
        """Whether the windows have room for a message of `size` bytes."""
        raise NotImplementedError

    def use_credit(self, size: i64) -> None:
        """A message of `size` bytes is being sent."""
        raise NotImplementedError

    def restore_credit(self, size: i64) -> None:
        """A message of `size` bytes has been settled, released or discarded."""
        raise NotImplementedError

    def restore_all(self, count: i64, size: i64) -> None:
        """So many messages, with `size` bytes together, have been settled, released or discarded."""
        raise NotImplementedError

    def wants_work(self) -> bool:
        """Whether it is open, and credit, flow and transport let it have something."""
        raise NotImplementedError

    def update(self) -> None:
        """Recompute `desired`, and tell the queues if it has changed."""
        raise NotImplementedError

    def close(self) -> None:
        """Want nothing any more; afterwards remove the consumers from their queues."""
        raise NotImplementedError

    def notify_work(self) -> None:
        """A queue of the target may have work: ask for a turn."""
        raise NotImplementedError

    def flush_soon(self) -> None:
        """A message has been delivered out of turn: ask for a turn, which flushes it."""
        raise NotImplementedError

    # ---- call-outs

    def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        """Send `entry.message` to the client.

        The entry is ACQUIRED by `consumer` (AVAILABLE if it browses).
        """
        raise NotImplementedError

    def no_messages_available(self, consumer: QueueConsumer) -> None:
        """`consumer` asked for an entry and there is none for it now, though it has credit."""

    def acquisition_removed(self, entry: QueueEntry) -> None:
        """A deleted queue has taken back what was with this target: settling or releasing it does nothing.

        The client does not know, and its credit is restored when it has settled that.
        """

    def consumer_cancelled(self, consumer: QueueConsumer) -> None:
        """The queue is gone, and `consumer` with it."""

    def shown_all(self, consumer: QueueConsumer) -> None:
        """`consumer`, a browser, has been sent all that it was to see: remove it from its queue."""

    def activity_changed(self, consumer: QueueConsumer, active: bool, why: str) -> None:
        """`consumer`, which acquires, is served from now on, or no longer; `why` is ATTACHED, ELECTED, ..."""


class OwnedGroups:
    """The message groups that a consumer owns; `broker.core.queues.groups` extends this class."""

    def owns_some(self) -> bool:
        """Whether the consumer owns a group."""
        raise NotImplementedError


@final
class QueueConsumer(Holder):
    """A subscription of `target` to `queue`.

    It takes part from `queue.add_consumer` to `queue.remove_consumer`.

    `acquires`: False makes it a browser, which sees every entry in order and takes none.
    `priority`: consumers of higher priority are served first while they have credit; default 0. [RabbitMQ
    x-priority] `rank`: the order that this comes to, see `QueueConsumerManager.strict`.
    `exclusive`: refuse every other consumer of the queue. [AMQP 0-9-1 basic.consume.exclusive]
    `candidate`: it is to be the only one that is served, in its turn. [ActiveMQ exclusive consumer]
    `getting`: it is a basic.get that waits for one message, which does not count as a consumer.
    `tag`: the client's name for it; the core does not read it.
    `name`: what the journal calls it, once it has been asked.
    `lease`: how long each of its deliveries may be kept, None: for ever; its target begins it.
    `no_ack`: the queue settles each entry as soon as `target.deliver` has returned.
    `filter`: which entries it sees, None: all.
    `extent`: which part of the queue a browser sees, None: all. Set before it is attached.
    `inflight`: entries that it has acquired and that are neither settled nor released, also after its
    removal.
    `woken`: it is NOTIFIED, and has had no message since it was told of work.
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
        self.extent: Extent | None = None
        self.lease: Lease | None = None
        self.candidate: bool = False
        self.rank: i64 = priority
        self.getting: bool = False
        self.state: i64 = REMOVED
        self.blockers: i64 = 0
        self.woken: bool = False
        self.context: QueueContext = queue.context
        self.waiting_on: QueueEntry | None = None
        self.holding: OwnedGroups | None = None  # the groups that it owns, once it has had one
        # set and read by the queue's QueueConsumerManager only
        self.level: ConsumerLevel | None = None
        self.prev: QueueConsumer | None = None
        self.next: QueueConsumer | None = None

    def acquisition_removed(self, entry: QueueEntry) -> None:
        """Tell the target that a deleted queue has taken `entry` back (Holder)."""
        self.target.acquisition_removed(entry)

    def notify_work(self) -> None:
        """There may be work on the queue: ask for a turn. Never delivers from here."""
        self.target.notify_work()


@final
class QueueConsumerList:
    """Consumers in one state, linked through themselves: O(1) append at the tail, O(1) removal of any."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.head: QueueConsumer | None = None
        self.tail: QueueConsumer | None = None

    def append(self, consumer: QueueConsumer) -> None:
        """Put `consumer`, which is in no list, at the tail: this is what rotates consumers fairly."""
        tail = self.tail
        consumer.prev = tail
        if tail is None:
            self.head = consumer
        else:
            tail.next = consumer
        self.tail = consumer
        self.count += 1

    def remove(self, consumer: QueueConsumer) -> None:
        """Take out `consumer`, which is in this list."""
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
        """All in order, for cold use; the list must not change meanwhile."""
        consumer = self.head
        while consumer is not None:
            yield consumer
            consumer = consumer.next


@final
class ConsumerLevel:
    """The acquiring consumers of one rank that see the same entries, those of `context`.

    `members` counts them in whatever state they are. `home` is the list that the level is in while one of
    them wants work; `listed`: it is there. `turn`: when one of them was told of work last.
    """

    def __init__(self, rank: i64, context: QueueContext, home: list[ConsumerLevel]) -> None:
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
        """Whether one of them would take an entry."""
        return self.interested.head is not None or self.notified.head is not None

    def enlist(self) -> None:
        """Put the level into `home`: behind higher ranks, and behind levels of its rank that wait longer."""
        home = self.home
        self.listed = True
        if len(home) == 1 and not home[0].wants_work:
            home[0].listed = False
            home[0] = self
        else:
            home.insert(self._place(), self)

    def delist(self) -> None:
        """Take the level, which is in `home`, out of it."""
        home = self.home
        self.listed = False
        if home[0] is self:  # as it mostly is
            del home[0]
            return
        index = self._place() - 1
        while home[index] is not self:  # equals that came later stand behind it
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
