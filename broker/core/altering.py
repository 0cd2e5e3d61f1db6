"""What is changed of a queue that is there: one change of the definitions, in force at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.definitions import queue_change
from broker.core.stopping import set_stopped, stopped

if TYPE_CHECKING:
    from broker.core.queue import Queue
    from broker.core.topology import Topology


def stop_queue(topology: Topology, queue: Queue, names: list[str]) -> None:
    """Have exactly these of `stopping.ENQUEUE` and `DEQUEUE` be switched off.

    Raises:
        StoreFailed: the queue is durable and the log has stopped.
    """
    if stopped(queue) == names:
        return
    if queue.durable:
        topology.store.require()
    set_stopped(queue, names)
    if queue.durable:
        topology.store.append_definition(queue_change(topology.name, queue))
