"""The discipline that the arguments of a queue ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.discipline import Discipline
from broker.core.discipline_arguments import (
    GROUP_KEY,
    GROUP_KIND,
    GROUP_LIMIT,
    GROUP_REBALANCE,
    SHARED,
    STRICT_ORDER,
    has_groups,
)
from broker.core.group_key import GroupKeys
from broker.core.groups import IDLE_MAX, Groups
from broker.core.schedule import Schedule
from broker.core.strict_order import StrictOrder
from broker.core.view import Views

if TYPE_CHECKING:
    from broker.core.queue import Queue


def new_discipline(queue: Queue, views: Views, schedule: Schedule) -> Discipline | None:
    """Make the discipline of `queue`, which has neither entries nor consumers yet; None if it needs none."""
    arguments = queue.arguments
    strict = arguments.get(STRICT_ORDER) is True
    if not has_groups(arguments):
        return StrictOrder(queue) if strict else None
    header = arguments.get(GROUP_KEY, "")
    idle_max = arguments.get(GROUP_LIMIT, IDLE_MAX)
    assert isinstance(header, str), "arguments are checked before a queue is made"
    assert isinstance(idle_max, int), "arguments are checked before a queue is made"
    return Groups(
        queue,
        GroupKeys(views, queue.store, header),
        schedule,
        arguments.get(GROUP_KIND) != SHARED,
        strict,
        arguments.get(GROUP_REBALANCE) is True,
        idle_max,
    )
