"""Several targets stop wanting work at the same moment, or begin to: a connection is full, a window, a flow.

All of them are NOT_INTERESTED before anybody takes over, or one of them would be told of work that it is
about to say it does not want.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.consumer import BLOCKED_BY_TARGET
from broker.core.notifying import pass_baton
from broker.core.waiting import suspend

if TYPE_CHECKING:
    from broker.core.consumer_target import ConsumerTarget
    from broker.core.queue import Queue


def update_together(targets: list[ConsumerTarget]) -> None:
    """Recompute whether `targets` want work, and tell their queues of those that have changed their minds."""
    left: dict[Queue, None] = {}
    for target in targets:
        if target.desired and not target.wants_work():
            target.desired = False
            for consumer in target.consumers:
                if suspend(consumer.queue, consumer, BLOCKED_BY_TARGET):
                    left[consumer.queue] = None
    for queue in left:
        pass_baton(queue)
    for target in targets:
        target.update()


def close_together(targets: list[ConsumerTarget]) -> None:
    """Close `targets`: none of them catches what another one leaves."""
    for target in targets:
        target.closed = True
    update_together(targets)
    for target in targets:
        target.close()
