"""Very many deliveries of one consumer are settled at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.consumer import QueueConsumer
from broker.core.contexts import concerns_cursors
from broker.core.entry import ACQUIRED, DEQUEUED, QueueEntry
from broker.core.schedule import Schedule
from broker.core.slices import Slices

if TYPE_CHECKING:
    from broker.core.queue import Queue

SLICE: Final[i64] = 5000  # entries that are settled in one turn: one or two milliseconds
RECEIPT: Final[i64] = 50  # as many entries as one whose publisher wants a receipt


def settle_all(queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """ACQUIRED → DEQUEUED of those of `entries` that `consumer` has; all of them restore its credit.

    As `Queue.settle` of each, in their order, but counted together and for less: a client may acknowledge
    100,000 by one frame. What is too much for one turn stays with `consumer` until turns to come, in which
    nobody else can settle it or give it back.
    """
    if len(entries) <= SLICE // RECEIPT or queue.topology is None or queue.deleted:
        _settle(queue, entries, consumer)
        return
    slices = SettledInSlices(queue, entries, consumer, queue.topology.schedule)
    queue.manager.settlements.append(slices)
    slices.begin()


@final
class SettledInSlices(Slices):
    """`entries`, which `consumer` has settled, leave."""

    def __init__(
        self, queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer, schedule: Schedule
    ) -> None:
        super().__init__(entries, SLICE, schedule)
        self._queue = queue
        self._consumer = consumer

    def reach(self, first: i64) -> i64:
        """Where the slice ends that begins with the entry at `first` (Slices)."""
        room = SLICE
        while room > 0 and first < len(self._entries):
            room -= RECEIPT if self._entries[first].message.marks != 0 else 1
            first += 1
        return first

    def take(self, entries: list[QueueEntry]) -> None:
        """Have these leave (Slices)."""
        if self.is_over():
            self._queue.manager.settlements.remove(self)
        _settle(self._queue, entries, self._consumer)

    def finish(self) -> None:
        """The queue is about to be deleted, and the rest with it, which was settled before."""
        queue = self._queue
        queue.manager.settlements.remove(self)
        rest = self.rest()
        for entry in rest:
            if entry.is_with(self._consumer):
                queue.counters.acked += 1
                _tell_publisher(queue, entry)
        restore(rest, self._consumer)


def restore(entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """Give the credit back that these deliveries, which are settled or were given back, have used."""
    size: i64 = 0
    for entry in entries:
        size += entry.message.size
    consumer.target.restore_all(len(entries), size)


def _settle(queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    if not queue.deleted:
        _leave(queue, entries, consumer)
    restore(entries, consumer)


def _leave(queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
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
        _tell_publisher(queue, entry)
    if queue.election is not None:
        queue.election.delivery_ended()


def _tell_publisher(queue: Queue, entry: QueueEntry) -> None:
    message = entry.message
    if message.marks != 0 and queue.topology is not None:
        queue.topology.receipts.consumed(message, queue)
