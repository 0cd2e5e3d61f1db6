"""A queue: entries in strict order, and consumers that pull them when notified."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from broker.core.consumer import BLOCKED_BY_TARGET, INTERESTED, NOT_INTERESTED, NOTIFIED, QueueConsumer
from broker.core.consumer_manager import QueueConsumerManager
from broker.core.context import QueueContext
from broker.core.contexts import concerns_cursors, forget_everywhere
from broker.core.counters import Counters
from broker.core.dead_letter import REJECTED, dead_letter
from broker.core.delivery_limit import note_delivery
from broker.core.discipline import Discipline, next_entry
from broker.core.effect import NO_EFFECT, Effect
from broker.core.entry import ACQUIRED, DEQUEUED, QueueEntry
from broker.core.entry_list import QueueEntryList
from broker.core.exclusive import Election
from broker.core.expiry import is_late_for
from broker.core.message import Message
from broker.core.notifying import found_nothing, is_outranked, notify_browsers, notify_one, share_work
from broker.core.places import note_change
from broker.core.ports import MessageStore
from broker.core.replacing import placed
from broker.core.waiting import set_blocker, wait_for_size, wake_for_earlier, wake_waiters

if TYPE_CHECKING:
    from broker.core.browsers import Browsers
    from broker.core.dead_letter_backlog import Backlog
    from broker.core.index import Index
    from broker.core.journal import QueueJournal
    from broker.core.memory import Memory
    from broker.core.places import Places
    from broker.core.retry import Retry
    from broker.core.rules import Rules
    from broker.core.stopping import Stops
    from broker.core.streaming import QueueStream
    from broker.core.topology import Topology
    from broker.core.volatile import Volatile


@final
class Queue:
    """The model: publishers link entries and notify; consumers, when they have their turn, pull.

    Synchronous and single-threaded: what one method does is atomic. Every method changes state first, lists
    second, and notifies last; notifying only asks for a turn and never delivers.
    While entries are ready, the highest priority at which some consumer has no blocker has a NOTIFIED
    consumer, which pulls until it gets nothing; if it drops out, `pass_baton` notifies another. Consumers
    that see everything share `context`, those with the same filter one of `filtered`, and each browser has
    its own. `alike`: all see the same, so it does not matter who is told of which entry.

    `store` is told what is settled if the queue is `logged`, by its `number`. `counters` are the broker's.
    `ready`, `unacked`, `held`, `dead` and their `_bytes` (of bodies) are what is in it now; `published`,
    `delivered`, `acked` and `redelivered` count since start. `vhost` is its virtual host's name, for messages
    to clients. `arguments` are those of the declaration, `effective` what `effect`, its policies, makes of
    them. `election`: who is served, if only one consumer is at a time. `discipline`: who may have which
    entry, if not whoever sees it; set before there are entries. `rules`: what limits it in time and space.
    `backlog`: the `dead`, messages that wait to be dead-lettered. `retry`: what becomes of what comes back.
    `memory`: what it knows duplicates by. `topology`: where it is. `stops`: what is switched off. `volatile`:
    what it loses. `stream`: what it keeps for good. `sample`: what showed its counters last. `journal`: who
    is told of every step, if anybody. `places`: which entry stands where, while somebody asks for that.
    """

    def __init__(
        self,
        name: str,
        store: MessageStore,
        entries: QueueEntryList,
        counters: Counters,
        durable: bool = False,
        logged: bool = False,
        number: i64 = 0,
        vhost: str = "/",
    ) -> None:
        self.name = name
        self.vhost = vhost
        self.store = store
        self.entries = entries
        self.counters = counters
        self.durable = durable
        self.logged = logged
        self.number = number
        self.exclusive_owner: object | None = None
        self.auto_delete: bool = False
        self.arguments: dict[str, object] = {}
        self.effect: Effect = NO_EFFECT
        self.effective: dict[str, object] = self.arguments
        self.delivery_limit: i64 = -1  # see `delivery_limit.set_limit`
        self.counts: bool = False
        self.deleted: bool = False
        self.ready: i64 = 0
        self.ready_bytes: i64 = 0
        self.unacked: i64 = 0
        self.unacked_bytes: i64 = 0
        self.held: i64 = 0
        self.held_bytes: i64 = 0
        self.dead: i64 = 0
        self.dead_bytes: i64 = 0
        self.published: i64 = 0
        self.delivered: i64 = 0
        self.redelivered: i64 = 0
        self.acked: i64 = 0
        self.manager = QueueConsumerManager(counters)
        self.context = QueueContext(entries)
        self.filtered: list[QueueContext] = []
        self.browsers: Browsers | None = None
        self.index: Index | None = None
        self.alike: bool = True
        self.waiting: dict[QueueConsumer, None] = {}  # whose next entry is too large for their byte window
        self.gated: dict[QueueConsumer, None] = {}  # whose next entry is left to one of higher priority
        self.awaited: dict[QueueEntry, list[QueueConsumer]] = {}  # both of them, by what they wait on
        self.rules: Rules | None = None
        self.backlog: Backlog | None = None
        self.retry: Retry | None = None
        self.memory: Memory | None = None
        self.volatile: Volatile | None = None
        self.stream: QueueStream | None = None
        self.topology: Topology | None = None
        self.election: Election | None = None
        self.stops: Stops | None = None
        self.discipline: Discipline | None = None
        self.sample: object | None = None
        self.journal: QueueJournal | None = None
        self.places: Places | None = None

    @property
    def consumer_count(self) -> int:
        """The number of consumers that are attached, browsers included."""
        return len(self.manager.all)

    @property
    def depth(self) -> i64:
        """The number of linked entries."""
        return self.ready + self.unacked + self.held

    @property
    def messages(self) -> i64:
        """The count of messages: linked entries, and messages that wait to be dead-lettered."""
        return self.depth + self.dead

    def enqueue(self, message: Message) -> QueueEntry:
        """Link `message` at its place and notify. Appending it to the log was the caller's business."""
        entry = self.link(message)
        self.published += 1
        self.counters.made_ready += 1
        if self.journal is not None:
            self.journal.enqueued(entry)
        if self.rules is not None and not self.rules.admit(entry):
            return entry
        if self.manager.interested != 0 or self.manager.non_acquiring.head is not None or self.waiting:
            self.notify_work(entry)
        return entry

    def notify_work(self, entry: QueueEntry) -> None:
        """`entry` is new: browsers are told if they see it, and one consumer that can take it is NOTIFIED."""
        if self.stream is None and self.manager.non_acquiring.head is not None:
            notify_browsers(self)
        if self.waiting and not self.entries.in_order:
            wake_for_earlier(self, entry)
        if self.manager.interested != 0:
            notify_one(self, entry)

    def set_notify_work_desired(self, consumer: QueueConsumer, desired: bool) -> None:
        """The consumer's target wants work, or wants none. Called by targets only."""
        set_blocker(self, consumer, BLOCKED_BY_TARGET, not desired)

    def deliver_single_message(self, consumer: QueueConsumer) -> bool:
        """Give `consumer` its next entry through `consumer.target.deliver`, if it may have one now.

        False and still NOTIFIED (a browser: `context.more`) means: not all was looked at yet, come again.
        True also when the next entry's time was over: it has left the queue, and the one after it is next.
        """
        if consumer.state <= NOT_INTERESTED:
            return False
        entry = next_entry(self, consumer)
        if entry is None:
            found_nothing(self, consumer)
            return False
        size = entry.message.size
        target = consumer.target
        credit = target.credit
        # a consumer with a count window that is exhausted is NOT_INTERESTED: here only bytes can be too few
        if (credit.bytes_max != 0 or target.session_credit is not None) and not target.fits(size):
            wait_for_size(self, consumer, entry)
            return False
        manager = self.manager
        if (
            consumer.acquires
            and (self.index is not None or manager.levels[0] is not consumer.level)
            and is_outranked(self, consumer, entry)
        ):
            found_nothing(self, consumer)
            return False
        if entry.timer is not None and is_late_for(self, entry, consumer):
            return True
        if consumer.acquires:
            self.acquire(entry, consumer)
            if consumer.state == INTERESTED:
                manager.move(consumer, NOTIFIED)
        else:
            consumer.context.passed(entry)
            if self.stream is not None and self.journal is not None:
                self.journal.shown(entry, consumer)
        credit.use(size)
        if target.session_credit is not None:
            target.session_credit.use_for(target, size)
        target.deliver(consumer, entry)
        if consumer.no_ack and consumer.acquires:
            self.settle(entry)
        if not self.alike and consumer.state == NOTIFIED:
            share_work(self, consumer)
        return True

    def acquire(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """AVAILABLE → ACQUIRED of the next entry of the consumer's context, for delivery."""
        context = consumer.context
        if context.behind or context.late is not None:
            context.passed(entry)
        else:
            context.last = entry
        size = entry.message.size
        entry.state = ACQUIRED
        entry.owner = consumer
        entry.delivery_count += 1
        consumer.inflight += 1
        consumer.woken = False
        self.ready -= 1
        self.ready_bytes -= size
        self.unacked += 1
        self.unacked_bytes += size
        self.delivered += 1
        self.counters.delivered += 1
        if entry.redelivered:
            self.redelivered += 1
            self.counters.redelivered += 1
        if self.journal is not None:
            self.journal.delivered(entry, consumer)
        if self.counts:
            note_delivery(self, entry, consumer)
        if self.discipline is not None:
            self.discipline.acquired(entry, consumer)
        if self.awaited:
            wake_waiters(self, entry)
        if self.places is not None:
            note_change(self, self.places, entry, -1)

    def settle(self, entry: QueueEntry) -> None:
        """ACQUIRED → DEQUEUED: the client is done with it. Ignored if the queue took it back, or is gone."""
        owner = entry.owner
        if entry.state != ACQUIRED or owner is None or self.deleted:
            return
        message = entry.message
        entry.state = DEQUEUED
        entry.owner = None
        owner.inflight -= 1
        self.unacked -= 1
        self.unacked_bytes -= message.size
        if not owner.no_ack:
            self.acked += 1
            self.counters.acked += 1
        if self.journal is not None:
            self.journal.settled(entry, owner)
        if self.logged and message.sequence != 0:
            self.store.append_settle(message, self)
        if self.context.last is entry or concerns_cursors(self, entry):
            self.unlink(entry)
        else:  # no cursor needs to know
            self.entries.unlink(entry)
        if self.election is not None:
            self.election.delivery_ended()
        if self.discipline is not None:
            self.discipline.left(entry, owner)
        if message.marks != 0 and self.topology is not None:
            self.topology.receipts.consumed(message, self)

    def discard(self, entry: QueueEntry) -> None:
        """ACQUIRED → DEQUEUED: refused for good, so dead-lettered. Ignored where `settle` is."""
        if entry.state == ACQUIRED and not self.deleted:
            dead_letter(self, entry, REJECTED)

    def link(self, message: Message) -> QueueEntry:
        """Put `message` at its place, without notifying."""
        entry = self.entries.append(message)
        self.ready += 1
        self.ready_bytes += message.size
        if self.discipline is not None:
            self.discipline.linked(entry)
        if self.places is not None:
            self.places.linked(entry)
        if self.index is not None or not self.entries.in_order:
            placed(self, entry)
        return entry

    def unlink(self, entry: QueueEntry) -> None:
        """Take a DEQUEUED entry, no longer counted, out of the list and from under the cursors."""
        forget_everywhere(self, entry)
        self.entries.unlink(entry)
