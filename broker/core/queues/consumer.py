"""One subscription to one queue, as the queue sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.entries.entry import EntryFilter, QueueEntry

if TYPE_CHECKING:
    from broker.core.arguments.consumer import Extent
    from broker.core.delivery.session import ConsumerTarget
    from broker.core.entries.cursor import QueueContext
    from broker.core.queues.consumers import ConsumerLevel
    from broker.core.queues.groups import Holding
    from broker.core.queues.lease import Lease
    from broker.core.queues.queue import Queue


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


@final
class QueueConsumer:
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
        queue: Queue,
        acquires: bool = True,
        priority: i64 = 0,
        exclusive: bool = False,
        tag: str = "",
        no_ack: bool = False,
        entry_filter: EntryFilter | None = None,
    ) -> None:
        self.target = target
        self.queue = queue
        self.acquires = acquires
        self.priority = priority
        self.exclusive = exclusive
        self.tag = tag
        self.name: object | None = None
        self.no_ack = no_ack
        self.filter = entry_filter
        self.extent: Extent | None = None
        self.lease: Lease | None = None
        self.candidate: bool = False
        self.rank: i64 = priority
        self.getting: bool = False
        self.state: i64 = REMOVED
        self.blockers: i64 = 0
        self.inflight: i64 = 0
        self.woken: bool = False
        self.context: QueueContext = queue.context
        self.waiting_on: QueueEntry | None = None
        self.holding: Holding | None = None  # the groups that it owns, once it has had one
        # set and read by the queue's QueueConsumerManager only
        self.level: ConsumerLevel | None = None
        self.prev: QueueConsumer | None = None
        self.next: QueueConsumer | None = None

    @property
    def activity(self) -> str:
        """Whether it is served: UP, SINGLE_ACTIVE, WAITING or DRAINING."""
        election = self.queue.election
        return UP if election is None or not self.acquires else election.activity_of(self)

    @property
    def active(self) -> bool:
        """Whether it is served, as far as other consumers are concerned."""
        return self.activity in (UP, SINGLE_ACTIVE)

    def notify_work(self) -> None:
        """There may be work on the queue: ask for a turn. Never delivers from here."""
        self.target.notify_work()
