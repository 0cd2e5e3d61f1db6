"""Strict order, and the choice of the discipline that a queue's arguments ask for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from broker.core.arguments.queue import (
    GROUP_KEY,
    GROUP_KIND,
    GROUP_LIMIT,
    GROUP_REBALANCE,
    SHARED,
    STRICT_ORDER,
    has_groups,
)
from broker.core.entries.entry import AVAILABLE, Holder, QueueEntry
from broker.core.message_view import Views
from broker.core.queues.consumer import NOTIFIED, QueueConsumer
from broker.core.queues.consumers import notify, notify_if_unnotified, notify_one
from broker.core.queues.group import GroupKeys
from broker.core.queues.groups import IDLE_MAX, Groups
from broker.core.queues.hooks import Discipline, able_consumers, first_idle
from broker.core.queues.queue import Queue
from broker.core.queues.state import owns
from broker.core.schedule import Schedule


@final
class StrictOrder(Discipline):
    """Strict order: only the first entry of the queue is ever delivered, whatever consumers see.

    So at most one entry is in flight. Until it is settled or requeued, no consumer gets another. A first
    entry that no consumer sees, or that is HELD, holds up all others.

    The exception is one transaction, which may take several entries in order: when its commit will remove all
    entries in flight, its session gets the next one. If it is rolled back, all of them are in flight, or back
    in place. An entry that is requeued while a later one is in the transaction waits for the end of the
    transaction.
    [Bernstein and Newcomer 4.5: "batching up a set of trades and committing them as a group"]
    """

    def __init__(self, queue: Queue) -> None:
        super().__init__(False)
        self.queue = queue
        self._batch: dict[QueueEntry, None] = {}  # the entries that a transaction will remove,
        self._holder: QueueConsumer | None = None  # the consumer that got the latest of these,
        self._last: QueueEntry | None = None  # and the last of these in queue order

    def next_entry(self, consumer: QueueConsumer) -> QueueEntry | None:
        """Return the first entry, if it is not acquired and `consumer` sees it."""
        context = consumer.context
        context.more = False
        first = self._first(consumer)
        if first is None or not context.sees(first):
            return None
        return context.get_next_available_entry()  # returns `first`, and moves the cursor

    def is_open(self, entry: QueueEntry) -> bool:
        """Whether the entry is the first, and none is in flight outside the transaction."""
        return self._first(self._holder) is entry

    def owner(self, entry: QueueEntry) -> QueueConsumer | None:
        """Return a consumer of the session whose transaction has all entries in flight.

        None: no entry is in flight.
        """
        if self.queue.unacked == 0:
            return None
        return first_idle(self._able(entry)) or self._holder

    def contenders(self, entry: QueueEntry) -> list[QueueConsumer]:
        """Return the consumers of the highest priority in that session."""
        able = [] if self.queue.unacked == 0 else list(self._able(entry))
        top = max([consumer.rank for consumer in able], default=0)
        return [consumer for consumer in able if consumer.rank == top]

    def note_departure(self, entry: QueueEntry, owner: Holder | None) -> None:
        """Announce the present first entry, if `entry` was first, or in flight."""
        if self._batch:
            self._leave_batch(entry)
        first = self._first(self._holder)
        if first is None:
            return
        if self.queue.unacked != 0:
            self._wake_holder(first)
        elif owner is not None:
            notify_one(self.queue, first)
        elif entry.precedes(first):  # for a purge or many expiries one notification is enough
            notify_if_unnotified(self.queue, first)

    def note_promise(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """Let the same session get the next entry."""
        holder = self._holder
        if holder is not None and holder.target.peers is not consumer.target.peers:
            return
        if not owns(consumer, entry, self.queue):
            return
        self._holder = consumer
        self._batch[entry] = None
        if self._last is None or self._last.precedes(entry):
            self._last = entry
        first = self._first(consumer)
        if first is not None:
            self._wake_holder(first)

    def note_withdrawal(self, entries: list[QueueEntry]) -> None:
        """Hold up further entries until these are settled or requeued."""
        for entry in entries:
            self._leave_batch(entry)

    def note_return(self, entries: list[QueueEntry]) -> None:
        """Remove these entries from the transaction."""
        if self._batch:
            self.note_withdrawal(entries)

    def wake(self) -> None:
        """Announce the first entry, which may be a new one before the requeued ones."""
        first = self._first(self._holder)
        if first is None:
            return
        if self.queue.unacked != 0:
            self._wake_holder(first)
        else:
            notify_if_unnotified(self.queue, first)

    def notify_another(self) -> None:
        """Notify another consumer of the session whose transaction has all entries in flight."""
        first = self._first(self._holder) if self._batch else None
        if first is not None and all(consumer.state != NOTIFIED for consumer in self._able(first)):
            self._wake_holder(first)

    def _first(self, consumer: QueueConsumer | None) -> QueueEntry | None:
        """Return the entry that may be delivered now: to `consumer`, or, if none is in flight, to any."""
        queue = self.queue
        if queue.unacked == 0:
            first = queue.entries.next(queue.entries.head)
            return first if first is not None and first.state == AVAILABLE else None
        holder = self._holder
        if holder is None or consumer is None or holder.target.peers is not consumer.target.peers:
            return None
        if queue.unacked != len(self._batch) or queue.held != 0:
            return None
        first = queue.context.get_next_available_entry()
        last = self._last
        if first is not None and last is not None and first.redelivered and first.precedes(last):
            return None
        return first

    def _able(self, entry: QueueEntry) -> Iterable[QueueConsumer]:
        """Return the consumers that may have `entry`, of the session whose transaction has all in flight."""
        return () if self._holder is None else able_consumers(self._holder.target.peers, self.queue, entry)

    def _wake_holder(self, first: QueueEntry) -> None:
        consumer = first_idle(self._able(first))
        if consumer is not None:
            notify(self.queue, consumer)

    def _leave_batch(self, entry: QueueEntry) -> None:
        self._batch.pop(entry, None)
        if not self._batch:
            self._holder = self._last = None


def new_discipline(queue: Queue, views: Views, schedule: Schedule) -> Discipline | None:
    """Make the discipline of `queue`, which has neither entries nor consumers yet; None if it needs none."""
    arguments = queue.arguments
    strict = arguments.get(STRICT_ORDER) is True
    if not has_groups(arguments):
        return StrictOrder(queue) if strict else None
    header = arguments.get(GROUP_KEY, "")
    idle_max = arguments.get(GROUP_LIMIT, IDLE_MAX)
    assert isinstance(header, str), "arguments are checked before a queue is made"
    assert isinstance(idle_max, int), "arguments are checked before a queue is made"
    return Groups(
        queue,
        GroupKeys(views, queue.store, header),
        schedule,
        arguments.get(GROUP_KIND) != SHARED,
        strict,
        arguments.get(GROUP_REBALANCE) is True,
        idle_max,
    )
