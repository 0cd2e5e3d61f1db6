"""Very many deliveries of one consumer are settled at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from broker.core.consumer import QueueConsumer
from broker.core.contexts import concerns_cursors
from broker.core.entry import ACQUIRED, DEQUEUED, QueueEntry

if TYPE_CHECKING:
    from broker.core.queue import Queue


def settle_all(queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """ACQUIRED → DEQUEUED of those of `entries` that `consumer` has.

    As `Queue.settle` of each, in their order, but counted together and for less: a client may acknowledge
    100,000 by one frame, and all of it is one step.
    """
    if queue.deleted:
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
