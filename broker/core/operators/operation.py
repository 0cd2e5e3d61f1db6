"""Operations: an operator moves, copies, edits or removes many messages of a queue, all or none.

[Bernstein and Newcomer, Principles of Transaction Processing 4.5: random access, queue forwarding]

An operation marks its entries one after the other, in as many turns as it needs. A marked entry is acquired,
so that no consumer gets it. Marking is no delivery and does not count as one. An operation seizes messages
that wait to be dead-lettered in their backlog instead. Then a single transaction does everything. After an
abort or a refusal, every message is back at its place in the queue, unchanged.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from broker.core.entries.entry import AVAILABLE, QueueEntry
from broker.core.errors import NotFound
from broker.core.message import TELLS_CONSUMED, Message
from broker.core.publishing.publisher import Outcome, Publisher
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.consumers import wake_waiters
from broker.core.queues.dead_letter_backlog import existing_backlog
from broker.core.queues.death import Death
from broker.core.queues.queue import Queue, offer_again, replace_outdated, stop_timer
from broker.core.queues.source import COPIED, PUBLISHED, Source
from broker.core.queues.state import make_acquired, make_available, owns
from broker.core.routing.graph import Route
from broker.core.transactions.transaction import REMOVE, HeldPublish, Transaction


def is_over(queue: Queue, entry: QueueEntry) -> bool:
    """Whether `entry` has expired, so that it is about to leave the queue."""
    timer = entry.timer
    return timer is not None and queue.limits is not None and timer.due <= queue.limits.schedule.now()


def mark(queue: Queue, entry: QueueEntry, holder: QueueConsumer) -> None:
    """Acquire `entry` for `holder`, which is not attached: AVAILABLE → ACQUIRED. This is no delivery."""
    assert entry.state == AVAILABLE, "only AVAILABLE entries are marked"
    if entry.timer is not None:
        stop_timer(queue, entry)
    make_acquired(queue, entry, holder)
    holder.target.use_credit(entry.message.size)
    if queue.discipline is not None:
        queue.discipline.note_acquisition(entry, holder)
    if queue.waiters:
        wake_waiters(queue, entry)


def unmark(queue: Queue, entries: list[QueueEntry], holder: QueueConsumer) -> None:
    """Release the `entries` that `holder` still owns, in place and unchanged: ACQUIRED → AVAILABLE.

    Entries that have been replaced meanwhile leave the queue instead.
    """
    latest = queue.entries.latest
    back: list[QueueEntry] = []
    outdated: list[QueueEntry] = []
    for entry in entries:
        if not owns(holder, entry, queue):
            continue  # the queue has taken the entry back
        size = entry.message.size
        if latest is not None and latest.is_outdated(entry):
            holder.target.restore_all(1, size)
            outdated.append(entry)
            continue
        make_available(queue, entry)
        holder.target.restore_all(1, size)
        back.append(entry)
    discipline = queue.discipline
    if back:
        if discipline is not None:
            discipline.note_return(back)
        offer_again(queue, back)
        if discipline is not None:
            discipline.wake()
    for entry in outdated:
        if owns(holder, entry, queue):  # else an earlier one of `outdated` has removed it
            replace_outdated(queue, entry)


@mypyc_attr(allow_interpreted_subclasses=True)
class OperatorPublish(HeldPublish):
    """A message that an operation publishes: into stopped queues too, but never without any queue.

    A receipt for its arrival, if wanted, has been sent before. A receipt for its consumption is sent once.
    """

    def __init__(self, route: Route, message: Message, copied: bool) -> None:
        super().__init__(route, message, [], False)
        self.own = True
        message.marks = 0 if copied else message.marks & TELLS_CONSUMED

    def resolve(self, publisher: Publisher, source: Source) -> str:
        """Find the queues."""
        refusal = super().resolve(publisher, source)
        if refusal or self.passage.queues or self.passage.keepers:
            return refusal
        address = self.route.address
        return f"exchange '{address.exchange}' leads nowhere with routing key '{address.routing_key}'"

    def report_outcome(self, outcome: Outcome) -> None:
        """Do nothing: no client waits for the outcome."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Operation(Transaction):
    """An operation on one queue. The `holder` owns the marked entries and no others.

    `way`: the journal's word for the operation, a constant of `broker.core.queues.source`. PUBLISHED: the
    journal has no word for it and records its steps only.
    `commit`, which also publishes `publishes`, or `abort` ends the operation.
    """

    def __init__(
        self, publisher: Publisher, queue: Queue, holder: QueueConsumer, way: i64 = PUBLISHED
    ) -> None:
        super().__init__(publisher, Source(way))
        self.way = way
        self.queue = queue
        self.holder = holder
        self.deaths: list[Death] = []  # deaths of waiting dead letters that the commit removes
        self._by = publisher.host.journal.current_actor()

    def remove(self, entry: QueueEntry) -> None:
        """Mark an entry, which leaves the queue with the commit."""
        mark(self.queue, entry, self.holder)
        self.hold_settlement(0, entry, self.holder, REMOVE)

    def remove_dead(self, death: Death) -> None:
        """Seize a message that waits to be dead-lettered; it leaves the queue with the commit."""
        backlog = existing_backlog(self.queue)
        assert backlog is not None, "a message in a backlog is seized"
        backlog.seize(death)
        self.deaths.append(death)

    def publish(self, route: Route, message: Message) -> None:
        """Publish a new message along a route with the commit. If `way` is COPIED, the old message stays."""
        self.publishes.append(OperatorPublish(route, message, self.way == COPIED))

    def commit(self) -> None:
        """Commit the operation. Raises NotFound too, if the queue has been deleted."""
        if self.queue.deleted:
            raise NotFound(f"no queue '{self.queue.name}' in vhost '{self.queue.vhost}'")
        journal = self.host.journal
        before = journal.actor
        journal.actor = self._by
        try:
            super().commit()
        finally:
            journal.actor = before

    def abort(self) -> None:
        """Release everything that the operation has marked, and forget its publishes."""
        entries = [entry for settlement in self.settlements for entry in settlement.entries]
        self.settlements = []
        self.publishes = []
        deaths, self.deaths = self.deaths, []
        unmark(self.queue, entries, self.holder)
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
            backlog.remove(deaths, self.way)
        super()._done()

    def on_durable(self, batch: i64) -> None:
        """Finish: the batch of the operation is on disk, or nothing was appended."""
        journal = self.host.journal
        before = journal.actor
        journal.actor = self._by
        try:
            super().on_durable(batch)
        finally:
            journal.actor = before

    def on_store_failed(self, reason: str) -> None:
        """Abort: the log has failed."""
        self._unreserve()
        self.abort()
        self.on_commit_failed(reason)

    def _refusal_text(self, number: int, why: str) -> str:
        return f"message {number} of {len(self.publishes)}: {why}"
