"""What operators do to messages of a queue, many at once: all of it or nothing.

[Bernstein and Newcomer, Principles of Transaction Processing 4.5: random access, queue forwarding]

The entries are marked one after the other, as slowly as it takes: each is acquired as it is found, so that
nobody else gets it, but it is no delivery and is not counted as one. Messages that wait to be dead-lettered
are seized in their backlog instead. Then all is one transaction. What is aborted, or refused, has its place
in the queue again as if nothing had been.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from broker.core.entries.entry import ACQUIRED, AVAILABLE, QueueEntry
from broker.core.errors import NotFound
from broker.core.message import TELLS_CONSUMED, Message
from broker.core.publishing.publisher import Publishing
from broker.core.queues.backlog import existing_backlog
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.consumers import wake_waiters
from broker.core.queues.death import Death
from broker.core.queues.hooks import COPIED, PUBLISHED
from broker.core.queues.queue import Queue, offer_again, replace_outdated, stop_timer
from broker.core.queues.state import note_change, owns
from broker.core.routing.graph import Route
from broker.core.transactions.transaction import REMOVE, HeldPublish, Transaction
from broker.core.vhosts.vhost import VirtualHost


def is_over(queue: Queue, entry: QueueEntry) -> bool:
    """Whether the time of `entry` is over, so that it is about to leave the queue."""
    timer = entry.timer
    return timer is not None and queue.rules is not None and timer.due <= queue.rules.schedule.now()


def mark(queue: Queue, entry: QueueEntry, taker: QueueConsumer) -> None:
    """AVAILABLE → ACQUIRED by `taker`, which was never attached. It is no delivery."""
    assert entry.state == AVAILABLE, "what somebody has is not marked"
    if entry.timer is not None:
        stop_timer(queue, entry)
    size = entry.message.size
    entry.state = ACQUIRED
    entry.owner = taker
    taker.inflight += 1
    taker.target.use_credit(size)
    queue.ready -= 1
    queue.ready_bytes -= size
    queue.unacked += 1
    queue.unacked_bytes += size
    if queue.discipline is not None:
        queue.discipline.acquired(entry, taker)
    if queue.awaited:
        wake_waiters(queue, entry)
    if queue.places is not None:
        note_change(queue, queue.places, entry, -1)


def unmark(queue: Queue, entries: list[QueueEntry], taker: QueueConsumer) -> None:
    """ACQUIRED → AVAILABLE of those that `taker` still has, in place, as they were before.

    Those that have been replaced meanwhile leave the queue instead.
    """
    latest = queue.entries.latest
    back: list[QueueEntry] = []
    outdated: list[QueueEntry] = []
    for entry in entries:
        if not owns(taker, entry, queue):
            continue  # the queue has taken it back meanwhile
        size = entry.message.size
        if latest is not None and latest.is_outdated(entry):
            taker.target.restore_all(1, size)
            outdated.append(entry)
            continue
        entry.state = AVAILABLE
        entry.owner = None
        taker.inflight -= 1
        taker.target.restore_all(1, size)
        queue.unacked -= 1
        queue.unacked_bytes -= size
        queue.ready += 1
        queue.ready_bytes += size
        back.append(entry)
        if queue.places is not None:
            note_change(queue, queue.places, entry, 1)
    discipline = queue.discipline
    if back:
        if discipline is not None:
            discipline.returned(back)
        offer_again(queue, back)
        if discipline is not None:
            discipline.wake()
    for entry in outdated:
        if owns(taker, entry, queue):  # it was not taken back for one of those
            replace_outdated(queue, entry)


@mypyc_attr(allow_interpreted_subclasses=True)
class OperatorPublish(HeldPublish):
    """A message that an operation puts somewhere: into stopped queues too, and never nowhere.

    Its publisher has been told of its arrival, if of anything, and is told once that it was consumed.
    """

    def __init__(self, route: Route, message: Message, copied: bool) -> None:
        super().__init__(route, message, [], False)
        self.own = True
        message.marks = 0 if copied else message.marks & TELLS_CONSUMED

    def resolve(self, virtual_host: Publishing) -> str:
        """Find out where it goes (HeldPublish)."""
        refusal = super().resolve(virtual_host)
        if refusal or self.passage.queues or self.passage.keepers:
            return refusal
        address = self.route.address
        return f"exchange '{address.exchange}' leads nowhere with routing key '{address.routing_key}'"

    def taken(self, count: i64) -> None:
        """Nobody waits for it (HeldPublish)."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Operation(Transaction):
    """An operation on one queue. `taker` holds the marked entries; nobody else has it.

    `way`: what the journal calls it, one of `broker.core.queues.hooks`; PUBLISHED: nothing but what it does.
    `commit`, with what is in `publishes`, or `abort` ends it.
    """

    def __init__(
        self, virtual_host: VirtualHost, queue: Queue, taker: QueueConsumer, way: i64 = PUBLISHED
    ) -> None:
        super().__init__(virtual_host)
        self.way = way
        self.queue = queue
        self.taker = taker
        self.deaths: list[Death] = []  # of messages that wait to be dead-lettered, and are to leave
        self._by = virtual_host.journal.who()

    def remove(self, entry: QueueEntry) -> None:
        """Mark an entry, which is to leave the queue with the commit."""
        mark(self.queue, entry, self.taker)
        self.hold(0, entry, self.taker, REMOVE)

    def remove_dead(self, death: Death) -> None:
        """Seize a message that waits to be dead-lettered: it is to leave with the commit."""
        backlog = existing_backlog(self.queue)
        assert backlog is not None, "what does not wait is not seized"
        backlog.seize(death)
        self.deaths.append(death)

    def publish(self, route: Route, message: Message) -> None:
        """Have a new message be put where a route leads, with the commit; if COPIED the old one stays."""
        self.publishes.append(OperatorPublish(route, message, self.way == COPIED))

    def commit(self) -> None:
        """Do all of it (Transaction). Raises NotFound too: the queue is gone."""
        if self.queue.deleted:
            raise NotFound(f"no queue '{self.queue.name}' in vhost '{self.queue.vhost}'")
        journal = self.virtual_host.journal
        before = journal.actor
        journal.way = self.way  # rows of streams are told as they are appended
        journal.actor = self._by
        try:
            super().commit()
        finally:
            journal.way = PUBLISHED
            journal.actor = before

    def abort(self) -> None:
        """Do nothing of it: what was marked is where it was."""
        entries = [entry for settlement in self.settlements for entry in settlement.entries]
        self.settlements = []
        self.publishes = []
        deaths, self.deaths = self.deaths, []
        unmark(self.queue, entries, self.taker)
        backlog = existing_backlog(self.queue)
        if deaths and backlog is not None and not self.queue.deleted:
            backlog.release(deaths)

    def _append(self) -> bool:
        appended = super()._append()
        queue = self.queue
        for death in self.deaths:
            message = death.message
            if queue.logged and message.sequence != 0:
                queue.store.append_transacted_settle(message, queue)
                appended = True
        return appended

    def _done(self) -> None:
        deaths, self.deaths = self.deaths, []
        backlog = existing_backlog(self.queue)
        if deaths and backlog is not None and not self.queue.deleted:
            backlog.remove(deaths)
        super()._done()

    def on_durable(self, batch: i64) -> None:
        """The batch with all of it is on disk, or nothing of it has to be (DurableWaiter)."""
        journal = self.virtual_host.journal
        before = journal.actor
        journal.way = self.way
        journal.actor = self._by
        try:
            super().on_durable(batch)
        finally:
            journal.way = PUBLISHED
            journal.actor = before

    def on_store_failed(self, reason: str) -> None:
        """The log has failed (DurableWaiter)."""
        self._unreserve()
        self.abort()
        self.failed(reason)

    def _which(self, number: int, why: str) -> str:
        return f"message {number} of {len(self.publishes)}: {why}"
