"""How a queue serves its consumers, as its arguments say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.arguments import DISPATCH, STRICT
from broker.core.exclusive import declared_election

if TYPE_CHECKING:
    from broker.core.queue import Queue


def arrange_serving(queue: Queue) -> None:
    """Have a new queue serve one consumer at a time, or each in its turn or in order."""
    queue.election = declared_election(queue)
    queue.manager.strict = queue.arguments.get(DISPATCH) == STRICT
