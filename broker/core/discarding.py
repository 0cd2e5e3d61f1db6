"""Deliveries that are refused for good, or came back too often: very many leave in slices."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.consumer import QueueConsumer
from broker.core.dead_letter import REJECTED, dead_letter
from broker.core.entry import QueueEntry
from broker.core.schedule import Alarm, Schedule
from broker.core.settling import seen

if TYPE_CHECKING:
    from broker.core.queue import Queue

SLICE: Final[i64] = 100  # entries that leave in one turn: dead-lettering takes up to 50 us each


def discard_all(
    queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer, reason: i64 = REJECTED
) -> None:
    """ACQUIRED → DEQUEUED of those of `entries` that `consumer` has, in their order; they die of `reason`.

    What a browser was shown it has seen, and nothing becomes of it.
    What is too much for one turn stays with `consumer` until turns to come, and what is discarded later
    leaves after it. `entries` is taken over: from the next turn on it is what has not left.
    """
    if not consumer.acquires:
        seen(entries, consumer)
        return
    later = queue.manager.discards
    if later is None and len(entries) > SLICE and queue.topology is not None:
        later = queue.manager.discards = DiscardedLater(queue, queue.topology.schedule)
    if later is not None:
        later.add(entries, consumer, reason)
        return
    for entry in entries:
        if entry.is_with(consumer):  # no dead letter of one before it has pushed it out
            dead_letter(queue, entry, reason)


@final
class DiscardedLater(Alarm):
    """Entries that clients have refused, or given back too often, and that leave in turns to come.

    Nobody can settle them any more, or give them back. If the queue is deleted meanwhile they leave before.
    """

    def __init__(self, queue: Queue, schedule: Schedule) -> None:
        super().__init__()
        self._queue = queue
        self._schedule = schedule
        self._waiting: deque[tuple[QueueConsumer, list[QueueEntry], i64]] = deque()

    def add(self, entries: list[QueueEntry], consumer: QueueConsumer, reason: i64) -> None:
        """Have these, which `consumer` has, leave after the others."""
        entries.reverse()
        self._waiting.append((consumer, entries, reason))
        if self.due == 0:
            self._schedule.set(self, self._schedule.now())

    def ring(self) -> None:
        """Have another slice leave (Alarm)."""
        self._leave(SLICE)

    def finish(self) -> None:
        """Have all of them leave: the queue is about to be deleted."""
        while self._waiting:
            self._leave(SLICE)

    def _leave(self, most: i64) -> None:
        queue = self._queue
        waiting = self._waiting
        if queue.deleted:
            waiting.clear()
        while waiting and most > 0:
            consumer, left, reason = waiting[0]
            if not left:
                waiting.popleft()
                continue
            entry = left.pop()
            most -= 1
            if entry.is_with(consumer):
                dead_letter(queue, entry, reason)
        if waiting:
            self._schedule.set(self, self._schedule.now())
        else:
            self._schedule.cancel(self)
            queue.manager.discards = None
