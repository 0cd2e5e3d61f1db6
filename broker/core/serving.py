"""How a queue serves its consumers, as its arguments say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.arguments import DISPATCH, STRICT
from broker.core.exclusive import declared_election
from broker.core.schedule import Schedule
from broker.core.start_gate import declared_gate

if TYPE_CHECKING:
    from broker.core.queue import Queue


def arrange_serving(queue: Queue, schedule: Schedule) -> None:
    """Have a new queue serve one consumer at a time, each in its turn or in order, or not yet."""
    queue.election = declared_election(queue)
    queue.manager.gate = declared_gate(queue, schedule)
    queue.manager.strict = queue.arguments.get(DISPATCH) == STRICT
