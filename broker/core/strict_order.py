"""One entry at a time: nothing overtakes what has been given out and may come back. [x-strict-order]"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.core.consumer import QueueConsumer
from broker.core.discipline import Discipline
from broker.core.entry import AVAILABLE, QueueEntry
from broker.core.notifying import notify_if_nobody_comes, notify_one

if TYPE_CHECKING:
    from broker.core.queue import Queue


@final
class StrictOrder(Discipline):
    """Only the first entry of the queue is ever given out, whoever sees what.

    So at most one entry is out, and as long as it is neither settled nor returned nobody gets another. A
    first entry that nobody sees, or that is kept for later, holds up all others.
    """

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue, False)

    def next_entry(self, consumer: QueueConsumer) -> QueueEntry | None:
        """The first entry, if it is not out and `consumer` sees it (Discipline)."""
        context = consumer.context
        context.more = False
        first = self._first()
        if first is None or not context.sees(first):
            return None
        return context.get_next_available_entry()  # which it is; the cursor moves along

    def is_open(self, entry: QueueEntry) -> bool:
        """Whether it is the first, and nothing is out (Discipline)."""
        return self._first() is entry

    def left(self, entry: QueueEntry, owner: QueueConsumer | None) -> None:
        """What is first now may be given out, if `entry` was first, or out (Discipline)."""
        first = self._first()
        if first is None:
            return
        if owner is not None:
            notify_one(self.queue, first)
        elif entry.precedes(first):  # a purge or many that expire come here: one is enough for all
            notify_if_nobody_comes(self.queue, first)

    def wake(self) -> None:
        """One that has come meanwhile may precede what is back (Discipline)."""
        first = self._first()
        if first is not None:
            notify_if_nobody_comes(self.queue, first)

    def _first(self) -> QueueEntry | None:
        """The entry that may be given out now."""
        queue = self.queue
        if queue.unacked != 0:
            return None
        first = queue.entries.next(queue.entries.head)
        return first if first is not None and first.state == AVAILABLE else None
