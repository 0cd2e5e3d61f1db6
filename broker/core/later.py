"""Deliveries that clients have ended, so many at once that they have turns to come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from broker.core.consumer import QueueConsumer
from broker.core.entry import QueueEntry
from broker.core.schedule import Alarm

if TYPE_CHECKING:
    from broker.core.queue import Queue
    from broker.core.session import Session
    from broker.core.topology import Topology

SLICE: Final[i64] = 5000  # deliveries that end in one turn: one or two milliseconds
DEAR: Final[i64] = 50  # as many as one that goes on its way to another queue, or has a receipt
FEW: Final[i64] = SLICE // DEAR  # of which nobody has to think twice

Run = tuple[QueueConsumer, list[QueueEntry]]
"""Deliveries of one consumer."""


def are_few(runs: list[Run]) -> bool:
    """Whether all of `runs` end at once, whatever they are."""
    count: i64 = 0
    for run in runs:
        count += len(run[1])
    return count <= FEW


class Later(Alarm):
    """Deliveries that have ended in one way. A subclass has them leave in `take`, a slice in one turn.

    What has its turn to come stays with its consumer, and nobody else can settle it or give it back. What has
    had it is let go of at once: to free it all is as much work as the rest. `runs` is taken over.
    `session`: the one whose credit they use up until they have left; None: that is up to somebody else.
    """

    def __init__(self, runs: list[Run], session: Session | None, topology: Topology) -> None:
        super().__init__()
        self.session = session
        self._topology = topology
        self._left = runs  # the last one first, and so each of them
        runs.reverse()
        for _, entries in runs:
            entries.reverse()

    def take(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Have these leave, now."""
        raise NotImplementedError

    def cost(self, entry: QueueEntry, consumer: QueueConsumer) -> i64:
        """How much work it is to have `entry` leave, as if it were so many."""
        return 1

    def taken_all(self, consumer: QueueConsumer) -> None:
        """That was the end of a run of `consumer`."""

    def begin(self) -> None:
        """Have a first slice leave, unless there was one in this turn."""
        topology = self._topology
        topology.settlements.append(self)
        if len(topology.settlements) == 1:
            self.ring()
        else:
            topology.schedule.set(self, topology.schedule.now())

    def rest(self) -> list[Run]:
        """Those that have not left yet, in no order."""
        return self._left

    def ring(self) -> None:
        """Have a slice of them leave (Alarm)."""
        schedule = self._topology.schedule
        schedule.set(self, schedule.now())  # first: should one slice fail, the others follow
        self._take_some(SLICE)
        self._end()

    def finish(self, queue: Queue | None) -> None:
        """Have those leave that `queue` has; None: all."""
        mine: list[Run] = []
        others: list[Run] = []
        for run in self._left:
            (mine if queue is None or run[0].queue is queue else others).append(run)
        self._left = others
        for consumer, entries in reversed(mine):
            entries.reverse()
            self.take(entries, consumer)
            self.taken_all(consumer)
        self._end()

    def deleting(self, queue: Queue) -> None:
        """`queue` is about to be deleted."""
        self.finish(queue)

    def vacating(self) -> None:
        """All queues are about to be deleted, with their virtual host: what they have goes with them."""

    def _end(self) -> None:
        topology = self._topology
        if not self._left and self in topology.settlements:
            topology.settlements.remove(self)
            topology.schedule.cancel(self)

    def _take_some(self, room: i64) -> None:
        while self._left and room > 0:
            consumer, left = self._left[-1]
            entries: list[QueueEntry] = []
            room -= 1  # so that many short runs are no long turn either
            while left and room >= 0:
                entry = left.pop()
                entries.append(entry)
                room -= self.cost(entry, consumer)
            over = not left
            if over:
                self._left.pop()
            try:
                self.take(entries, consumer)
            finally:
                if over:
                    self.taken_all(consumer)
