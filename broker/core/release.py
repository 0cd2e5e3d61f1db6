"""Giving entries back to the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.consumer import QueueConsumer
from broker.core.delivery_limit import give_up, is_exhausted
from broker.core.entry import ACQUIRED, AVAILABLE, QueueEntry
from broker.core.notifying import notify_one
from broker.core.waiting import wake_for_earlier

if TYPE_CHECKING:
    from broker.core.queue import Queue


def release(queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """Make those of `entries` that `consumer` owns AVAILABLE again where they stand, flagged redelivered.

    Those that have come back too often leave the queue instead.

    All of them are back before anybody is notified, or a later one could go out before an earlier one is
    visible. Dead letters come last: they may come back into this very queue.
    """
    back: list[QueueEntry] = []
    exhausted: list[QueueEntry] = []
    for entry in entries:
        if entry.state != ACQUIRED or entry.owner is not consumer:
            continue  # the queue has taken it back meanwhile
        if is_exhausted(queue, entry):
            exhausted.append(entry)
            continue
        size = entry.message.size
        entry.state = AVAILABLE
        entry.owner = None
        entry.redelivered = True
        consumer.inflight -= 1
        queue.unacked -= 1
        queue.unacked_bytes -= size
        queue.ready += 1
        queue.ready_bytes += size
        back.append(entry)
    if back:
        _return(queue, back, consumer)
    for entry in exhausted:
        if entry.state == ACQUIRED and entry.owner is consumer:
            give_up(queue, entry)


def _return(queue: Queue, back: list[QueueEntry], consumer: QueueConsumer) -> None:
    """`back` are AVAILABLE and counted: show them to cursors, limits and consumers."""
    depth = queue.ready + queue.unacked
    queue.counters.made_ready += len(back)
    if len(back) > 8:
        queue.context.offer_many(back, depth)
    else:
        for entry in back:
            queue.context.offer(entry, depth)
    for context in queue.filtered:
        context.offer_many(back, depth)
    if queue.rules is not None:
        queue.rules.returned(back)  # some may be gone after it
    if queue.waiting:
        for entry in back:
            wake_for_earlier(queue, entry)
    if queue.election is not None:
        queue.election.delivery_ended()
    for entry in back:
        if queue.manager.interested == 0:
            break
        if entry.state == AVAILABLE:
            notify_one(queue, entry)
