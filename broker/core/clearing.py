"""Entries that leave without being settled: purge, delete, an immediate message that nobody took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.attaching import forget
from broker.core.consumer import QueueConsumer
from broker.core.entry import ACQUIRED, AVAILABLE, DEQUEUED, QueueEntry
from broker.core.leaving import drop

if TYPE_CHECKING:
    from broker.core.queue import Queue


def purge(queue: Queue) -> int:
    """Drop every AVAILABLE entry; what is with clients stays theirs. Returns how many were dropped."""
    dropped = 0
    entry = queue.entries.next(queue.entries.head)
    while entry is not None:
        following = queue.entries.next(entry)
        if entry.state == AVAILABLE:
            drop(queue, entry)
            dropped += 1
        entry = following
    return dropped


def dispose(queue: Queue) -> None:
    """Empty a deleted queue and let its consumers go. Iterative: entries are not collected in cycles.

    What clients hold is taken back: their targets learn it through `acquisition_removed`, then through
    `consumer_cancelled` that the queue is gone; settling or releasing it later changes nothing.
    """
    queue.deleted = True
    if queue.rules is not None:
        queue.rules.stop()
        queue.rules = None
    queue.election = None
    consumers = list(queue.manager.all)
    for consumer in consumers:
        forget(queue, consumer)
    queue.browser_contexts.clear()
    queue.context.behind.clear()
    queue.context.last = queue.entries.head
    taken: list[tuple[QueueConsumer, QueueEntry]] = []
    entry = queue.entries.next(queue.entries.head)
    while entry is not None:
        following = queue.entries.next(entry)
        owner = entry.owner
        if entry.state == ACQUIRED and owner is not None:
            owner.inflight -= 1
            taken.append((owner, entry))
        entry.state = DEQUEUED
        entry.owner = None
        queue.entries.unlink(entry)
        if queue.logged and entry.message.sequence != 0:
            queue.store.forget(entry.message, queue)
        entry = following
    queue.ready = queue.ready_bytes = queue.unacked = queue.unacked_bytes = 0
    for owner, entry in taken:
        owner.target.acquisition_removed(entry)
    for consumer in consumers:
        consumer.target.consumer_cancelled(consumer)
