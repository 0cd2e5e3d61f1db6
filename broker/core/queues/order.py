"""Strict order, and the discipline that a queue's arguments ask for."""

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
from broker.core.queues.consumer import NOTIFIED, QueueConsumer
from broker.core.queues.consumers import notify, notify_if_nobody_comes, notify_one
from broker.core.queues.groups import IDLE_MAX, GroupKeys, Groups
from broker.core.queues.hooks import Discipline, able_in, first_idle
from broker.core.queues.queue import Queue
from broker.core.queues.state import owns
from broker.core.schedule import Schedule
from broker.core.view import Views


@final
class StrictOrder(Discipline):
    """Only the first entry of the queue is ever given out, whoever sees what.

    So at most one entry is out, and as long as it is neither settled nor returned nobody gets another. A
    first entry that nobody sees, or that is kept for later, holds up all others.

    But for one transaction, which may take several in order: when all that is out is to leave with its
    commit, whoever has that gets the next one. If it is rolled back, all of them are out, or back in place.
    What comes back behind the back of the transaction waits for its end, if something later is in it.
    [Bernstein and Newcomer 4.5: "batching up a set of trades and committing them as a group"]
    """

    def __init__(self, queue: Queue) -> None:
        super().__init__(False)
        self.queue = queue
        self._batch: dict[QueueEntry, None] = {}  # what is to leave with a transaction,
        self._holder: QueueConsumer | None = None  # who has got the latest of that,
        self._last: QueueEntry | None = None  # and what of it was last in the queue

    def next_entry(self, consumer: QueueConsumer) -> QueueEntry | None:
        """The first entry, if it is not out and `consumer` sees it (Discipline)."""
        context = consumer.context
        context.more = False
        first = self._first(consumer)
        if first is None or not context.sees(first):
            return None
        return context.get_next_available_entry()  # which it is; the cursor moves along

    def is_open(self, entry: QueueEntry) -> bool:
        """Whether it is the first, and nothing is out but what is to leave (Discipline)."""
        return self._first(self._holder) is entry

    def owner(self, entry: QueueEntry) -> QueueConsumer | None:
        """A consumer of the session whose transaction has all that is out; None: nothing is (Discipline)."""
        if self.queue.unacked == 0:
            return None
        return first_idle(self._able(entry)) or self._holder

    def contenders(self, entry: QueueEntry) -> list[QueueConsumer]:
        """The consumers of the highest priority in that session (Discipline)."""
        able = [] if self.queue.unacked == 0 else list(self._able(entry))
        top = max([consumer.rank for consumer in able], default=0)
        return [consumer for consumer in able if consumer.rank == top]

    def left(self, entry: QueueEntry, owner: Holder | None) -> None:
        """Give out the entry that is first now, if `entry` was first, or out (Discipline)."""
        if self._batch:
            self._leave_batch(entry)
        first = self._first(self._holder)
        if first is None:
            return
        if self.queue.unacked != 0:
            self._wake_holder(first)
        elif owner is not None:
            notify_one(self.queue, first)
        elif entry.precedes(first):  # a purge or many that expire come here: one is enough for all
            notify_if_nobody_comes(self.queue, first)

    def promised(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """The next one may be given out to the same session (Discipline)."""
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

    def withdrawn(self, entries: list[QueueEntry]) -> None:
        """Give out no more entries before these are settled or back (Discipline)."""
        for entry in entries:
            self._leave_batch(entry)

    def returned(self, entries: list[QueueEntry]) -> None:
        """Have these entries leave with no transaction (Discipline)."""
        if self._batch:
            self.withdrawn(entries)

    def wake(self) -> None:
        """Tell of the first entry, which may have come meanwhile, before those that are back (Discipline)."""
        first = self._first(self._holder)
        if first is None:
            return
        if self.queue.unacked != 0:
            self._wake_holder(first)
        else:
            notify_if_nobody_comes(self.queue, first)

    def passed_on(self) -> None:
        """Notify another consumer of the session whose transaction has all that is out (Discipline)."""
        first = self._first(self._holder) if self._batch else None
        if first is not None and all(consumer.state != NOTIFIED for consumer in self._able(first)):
            self._wake_holder(first)

    def _first(self, consumer: QueueConsumer | None) -> QueueEntry | None:
        """The entry that may be given out now: to `consumer`, or if nothing is out to anybody."""
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
        """The consumers that may have `entry` of the session whose transaction has all that is out."""
        return () if self._holder is None else able_in(self._holder.target.peers, self.queue, entry)

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
