"""Switching a queue off and on: what may be put in, and what consumers may take, each for itself.

[Bernstein and Newcomer, Principles of Transaction Processing 4.5, queue management]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.core.consumer import BLOCKED_BY_STOP
from broker.core.errors import QueueStopped
from broker.core.waiting import clear_blocker, suspend

if TYPE_CHECKING:
    from broker.core.queue import Queue

ENQUEUE: Final = "enqueue"
DEQUEUE: Final = "dequeue"
OPERATIONS: Final[tuple[str, str]] = (ENQUEUE, DEQUEUE)


@final
class Stops:
    """What of a queue is switched off. `Queue.stops` is None for a queue of which nothing is.

    `enqueue`: publishers are refused. What the broker itself puts there (dead letters, what was delayed, what
    an operator moves, what is returned) comes in all the same, or it would be lost.
    `dequeue`: consumers stay and get nothing, basic.get is refused. Browsers only look, and go on. What
    clients have may be settled and returned.
    """

    def __init__(self, enqueue: bool, dequeue: bool) -> None:
        self.enqueue = enqueue
        self.dequeue = dequeue


def stopped(queue: Queue) -> list[str]:
    """What of `queue` is switched off: ENQUEUE, DEQUEUE, both or neither."""
    stops = queue.stops
    if stops is None:
        return []
    return [name for name, off in ((ENQUEUE, stops.enqueue), (DEQUEUE, stops.dequeue)) if off]


def is_stopped(queue: Queue) -> bool:
    """Whether publishers are refused."""
    stops = queue.stops
    return stops is not None and stops.enqueue


def set_stopped(queue: Queue, names: list[str]) -> None:
    """Have exactly these of ENQUEUE and DEQUEUE be switched off from now on."""
    was = stopped(queue)
    queue.stops = Stops(ENQUEUE in names, DEQUEUE in names) if names else None
    if (ENQUEUE in was) != (ENQUEUE in names) and queue.topology is not None:
        queue.topology.changed()  # routes know it
    if DEQUEUE in names and DEQUEUE not in was:
        for consumer in queue.manager.takers():
            suspend(queue, consumer, BLOCKED_BY_STOP)  # nobody takes over
    elif DEQUEUE in was and DEQUEUE not in names:
        clear_blocker(queue, queue.manager.takers(), BLOCKED_BY_STOP)


def check_enqueue(queues: list[Queue]) -> None:
    """Refuse what is published to these queues if one of them takes nothing. Raises QueueStopped."""
    queue = first_stopped(queues)
    if queue is not None:
        raise QueueStopped(stop_refusal(queues), queue)


def check_dequeue(queue: Queue, stops: Stops) -> None:
    """Refuse a basic.get if the queue gives nothing. Raises QueueStopped."""
    if stops.dequeue:
        raise QueueStopped(
            f"queue '{queue.name}' in vhost '{queue.vhost}' is stopped: it gives out no messages", queue
        )


def stop_refusal(queues: list[Queue]) -> str:
    """Why one of these queues does not take a message, for its publisher; "" if none is stopped."""
    queue = first_stopped(queues)
    if queue is None:
        return ""
    return f"queue '{queue.name}' in vhost '{queue.vhost}' is stopped: it takes no messages"


def first_stopped(queues: list[Queue]) -> Queue | None:
    """Return the first of the queues that takes nothing from publishers."""
    for queue in queues:
        if is_stopped(queue):
            return queue
    return None
