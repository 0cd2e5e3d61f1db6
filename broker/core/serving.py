"""How a queue serves its consumers, as its arguments say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.arguments import DISPATCH, STRICT
from broker.core.schedule import Schedule
from broker.core.start_gate import apply_gate

if TYPE_CHECKING:
    from broker.core.queue import Queue


def apply_serving(queue: Queue, schedule: Schedule) -> None:
    """Have the queue's arguments hold as they are now, `queue.effective`: who is served at all, and in turns.

    Whoever is served already still is, and consumers take turns or not for as long as one of them is there.
    """
    apply_gate(queue, schedule)
    queue.manager.strict = queue.effective.get(DISPATCH) == STRICT
