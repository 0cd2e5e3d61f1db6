"""The discipline that the arguments of a queue ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.arguments import STRICT_ORDER
from broker.core.discipline import Discipline
from broker.core.strict_order import StrictOrder

if TYPE_CHECKING:
    from broker.core.queue import Queue


def new_discipline(queue: Queue) -> Discipline | None:
    """Make the discipline of `queue`, which has neither entries nor consumers yet; None if it needs none."""
    if queue.arguments.get(STRICT_ORDER) is True:
        return StrictOrder(queue)
    return None
