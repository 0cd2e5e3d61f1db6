"""An entry leaves its queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.entry import DEQUEUED, HELD, QueueEntry
from broker.core.places import note_change
from broker.core.waiting import wake_waiters

if TYPE_CHECKING:
    from broker.core.queue import Queue


def take_out(queue: Queue, entry: QueueEntry) -> None:
    """AVAILABLE, ACQUIRED or HELD → DEQUEUED, in memory only: what the log is told is up to the caller."""
    assert entry.state != DEQUEUED, "an entry leaves its queue once"
    size = entry.message.size
    owner = entry.owner
    if entry.state == HELD and queue.retry is not None:
        queue.retry.let_go(entry)
        queue.held -= 1
        queue.held_bytes -= size
    elif owner is None:
        queue.ready -= 1
        queue.ready_bytes -= size
        if queue.places is not None:
            note_change(queue, queue.places, entry, -1)
    else:
        owner.inflight -= 1
        queue.unacked -= 1
        queue.unacked_bytes -= size
    entry.state = DEQUEUED
    entry.owner = None
    timer = entry.timer
    if timer is not None and queue.rules is not None:
        queue.rules.timers.stop(timer)
    queue.unlink(entry)
    if queue.discipline is not None:
        queue.discipline.left(entry, owner)
    if queue.awaited:
        wake_waiters(queue, entry)
    if owner is not None and queue.election is not None:
        queue.election.delivery_ended()


def drop(queue: Queue, entry: QueueEntry) -> None:
    """AVAILABLE, ACQUIRED or HELD → DEQUEUED; the log is told that the queue has the message no longer."""
    message = entry.message
    if queue.logged and message.sequence != 0:
        queue.store.append_settle(message, queue)
    take_out(queue, entry)
