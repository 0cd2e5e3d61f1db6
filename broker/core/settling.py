"""Very many deliveries are settled by one step of their client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.consumer import QueueConsumer
from broker.core.contexts import concerns_cursors
from broker.core.entry import ACQUIRED, DEQUEUED, QueueEntry
from broker.core.message import TELLS_CONSUMED
from broker.core.schedule import Alarm

if TYPE_CHECKING:
    from broker.core.queue import Queue
    from broker.core.session import Session
    from broker.core.topology import Topology

SLICE: Final[i64] = 5000  # deliveries that are settled in one turn: one or two milliseconds
RECEIPT: Final[i64] = 50  # as many deliveries as one whose publisher wants a receipt

Run = tuple[QueueConsumer, list[QueueEntry]]
"""Deliveries of one consumer."""


def settle_all(entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """ACQUIRED → DEQUEUED of those of `entries` that `consumer` has; all of them restore its credit.

    As `Queue.settle` of each, in their order, but counted together and for less.
    """
    leave_all(entries, consumer)
    restore(entries, consumer)


def settle_runs(runs: list[Run], session: Session, topology: Topology) -> None:
    """The same for all of `runs`, which `session` had: a client may acknowledge 100,000 by one frame.

    They go in slices. What is too much for one turn stays with its consumer until turns to come, in which
    nobody else can settle it or give it back.
    """
    count: i64 = 0
    for run in runs:
        count += len(run[1])
    if count <= SLICE // RECEIPT:
        for consumer, entries in runs:
            settle_all(entries, consumer)
        return
    later = SettledLater(runs, session, topology)
    topology.settlements.append(later)
    if len(topology.settlements) == 1:
        later.ring()
    else:  # one slice was enough for this turn
        topology.schedule.set(later, topology.schedule.now())


@final
class SettledLater(Alarm):
    """Deliveries that the client of `session` has settled, and that leave in turns to come.

    What has left is let go of at once: to free it all is as much work as to settle it. `runs` is taken over.
    """

    def __init__(self, runs: list[Run], session: Session, topology: Topology) -> None:
        super().__init__()
        self.session = session
        self._topology = topology
        self._left = runs  # the last one first, and so each of them
        runs.reverse()
        for _, entries in runs:
            entries.reverse()

    def rest(self) -> list[Run]:
        """Those that have not left yet, in no order."""
        return self._left

    def ring(self) -> None:
        """Have a slice of them leave (Alarm)."""
        schedule = self._topology.schedule
        schedule.set(self, schedule.now())  # first: should one slice fail, the others follow
        self._settle(SLICE)
        self._end()

    def finish(self, queue: Queue | None) -> None:
        """Have those leave that `queue` has, which is about to be deleted; None: all."""
        mine: list[Run] = []
        others: list[Run] = []
        for run in self._left:
            (mine if queue is None or run[0].queue is queue else others).append(run)
        self._left = others
        for consumer, entries in reversed(mine):
            entries.reverse()
            settle_all(entries, consumer)
        self._end()

    def _end(self) -> None:
        topology = self._topology
        if not self._left and self in topology.settlements:
            topology.settlements.remove(self)
            topology.schedule.cancel(self)

    def _settle(self, room: i64) -> None:
        while self._left and room > 0:
            consumer, left = self._left[-1]
            entries: list[QueueEntry] = []
            room -= 1  # so that many short runs are no long turn either
            while left and room >= 0:
                entry = left.pop()
                entries.append(entry)
                room -= RECEIPT if entry.message.marks & TELLS_CONSUMED else 1
            if not left:
                self._left.pop()
            settle_all(entries, consumer)


def restore(entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """Give the credit back that these deliveries, which are settled or were given back, have used."""
    size: i64 = 0
    for entry in entries:
        size += entry.message.size
    consumer.target.restore_all(len(entries), size)


def leave_all(entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """ACQUIRED → DEQUEUED of those of `entries` that `consumer` has; nothing restores its credit."""
    queue = consumer.queue
    if not consumer.acquires or queue.deleted:
        return
    settled: list[QueueEntry] = []
    size: i64 = 0
    for entry in entries:
        if entry.state == ACQUIRED and entry.owner is consumer:
            entry.state = DEQUEUED
            entry.owner = None
            size += entry.message.size
            settled.append(entry)
    count: i64 = len(settled)
    consumer.inflight -= count
    queue.unacked -= count
    queue.unacked_bytes -= size
    if not consumer.no_ack:
        queue.acked += count
        queue.counters.acked += count
    linked = queue.entries
    context = queue.context
    discipline = queue.discipline
    plain = discipline is None and not context.behind and not queue.filtered
    plain = plain and queue.index is None and queue.browsers is None
    for entry in settled:
        message = entry.message
        if queue.logged and message.sequence != 0:
            queue.store.append_settle(message, queue)
        if context.last is entry or (not plain and concerns_cursors(queue, entry)):
            queue.unlink(entry)
        else:  # no cursor needs to know
            linked.unlink(entry)
        if discipline is not None:
            discipline.left(entry, consumer)
        if message.marks != 0 and queue.topology is not None:
            queue.topology.receipts.consumed(message, queue)
    if queue.election is not None:
        queue.election.delivery_ended()
