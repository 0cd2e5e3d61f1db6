"""Stopped queues: operators switch off enqueues, dequeues or both.

A consumer of a queue with stopped dequeues is NOT_INTERESTED, and is never notified.

[Bernstein and Newcomer, Principles of Transaction Processing 4.5, queue management]
"""

from __future__ import annotations

from typing import Final

from broker.core.errors import QueueStopped
from broker.core.queues.consumer import BLOCKED_BY_STOP
from broker.core.queues.consumers import clear_blocker, suspend
from broker.core.queues.hooks import Stops
from broker.core.queues.queue import Queue

ENQUEUE: Final = "enqueue"
DEQUEUE: Final = "dequeue"
OPERATIONS: Final[tuple[str, str]] = (ENQUEUE, DEQUEUE)


def stopped(queue: Queue) -> list[str]:
    """Return the operations of `queue` that are switched off: ENQUEUE, DEQUEUE, both or neither."""
    stops = queue.stops
    if stops is None:
        return []
    return [name for name, off in ((ENQUEUE, stops.enqueue), (DEQUEUE, stops.dequeue)) if off]


def is_stopped(queue: Queue) -> bool:
    """Whether the queue refuses publishes."""
    stops = queue.stops
    return stops is not None and stops.enqueue


def set_stopped(queue: Queue, names: list[str]) -> None:
    """Switch off exactly these operations, ENQUEUE and DEQUEUE, from now on."""
    was = stopped(queue)
    queue.stops = Stops(ENQUEUE in names, DEQUEUE in names) if names else None
    if (ENQUEUE in was) != (ENQUEUE in names) and queue.host is not None:
        queue.host.on_routes_changed()  # resolved routes depend on this
    if DEQUEUE in names and DEQUEUE not in was:
        for consumer in queue.manager.acquiring_consumers():
            suspend(queue, consumer, BLOCKED_BY_STOP)  # no consumer takes over
    elif DEQUEUE in was and DEQUEUE not in names:
        clear_blocker(queue, queue.manager.acquiring_consumers(), BLOCKED_BY_STOP)


def check_enqueue(queues: list[Queue]) -> None:
    """Refuse a publish to these queues if one of them is stopped. Raises QueueStopped."""
    queue = first_stopped(queues)
    if queue is not None:
        raise QueueStopped(stop_refusal(queues), queue)


def check_dequeue(queue: Queue, stops: Stops) -> None:
    """Refuse a basic.get if dequeues are stopped. Raises QueueStopped."""
    if stops.dequeue:
        raise QueueStopped(
            f"queue '{queue.name}' in vhost '{queue.vhost}' is stopped: it gives out no messages", queue
        )


def stop_refusal(queues: list[Queue]) -> str:
    """Return why one of these queues accepts no message, for its publisher; "" if none is stopped."""
    queue = first_stopped(queues)
    if queue is None:
        return ""
    return f"queue '{queue.name}' in vhost '{queue.vhost}' is stopped: it takes no messages"


def first_stopped(queues: list[Queue]) -> Queue | None:
    """Return the first of the queues that refuses publishes."""
    for queue in queues:
        if is_stopped(queue):
            return queue
    return None
