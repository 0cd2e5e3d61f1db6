"""Deliveries that are refused for good: very many leave in slices, as each may become a dead letter."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.consumer import QueueConsumer
from broker.core.dead_letter import REJECTED, dead_letter
from broker.core.entry import ACQUIRED, QueueEntry
from broker.core.schedule import Alarm, Schedule

if TYPE_CHECKING:
    from broker.core.queue import Queue

SLICE: Final[i64] = 100  # entries that leave in one turn: dead-lettering takes up to 50 us each


def discard_all(queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """ACQUIRED → DEQUEUED of those of `entries` that `consumer` has, in their order, as by `Queue.discard`.

    What is too much for one turn stays with `consumer` until turns to come, and what is refused later leaves
    after it.
    """
    refused = [entry for entry in entries if entry.is_with(consumer)]
    later = queue.manager.discards
    if later is None and len(refused) > SLICE and queue.topology is not None:
        later = queue.manager.discards = DiscardedLater(queue, queue.topology.schedule)
    if later is not None:
        later.add(refused)
        return
    for entry in refused:
        dead_letter(queue, entry, REJECTED)


@final
class DiscardedLater(Alarm):
    """Entries that a client has refused and that leave in turns to come.

    Nobody can settle them any more, or give them back. If the queue is deleted meanwhile they leave before.
    """

    def __init__(self, queue: Queue, schedule: Schedule) -> None:
        super().__init__()
        self._queue = queue
        self._schedule = schedule
        self._waiting: deque[QueueEntry] = deque()

    def add(self, entries: list[QueueEntry]) -> None:
        """Have these leave after the others."""
        self._waiting.extend(entries)
        if self.due == 0:
            self._schedule.set(self, self._schedule.now())

    def ring(self) -> None:
        """Have another slice leave (Alarm)."""
        self._leave(SLICE)

    def finish(self) -> None:
        """Have all of them leave: the queue is about to be deleted."""
        self._leave(len(self._waiting))

    def _leave(self, most: i64) -> None:
        queue = self._queue
        waiting = self._waiting
        if queue.deleted:
            waiting.clear()
        while waiting and most > 0:
            entry = waiting.popleft()
            most -= 1
            if entry.state == ACQUIRED:
                dead_letter(queue, entry, REJECTED)
        if waiting:
            self._schedule.set(self, self._schedule.now())
        else:
            self._schedule.cancel(self)
            queue.manager.discards = None
