"""Somebody who may own entries of a queue, and to whom nothing is ever delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.core.connection import Connection, Scheduler
from broker.core.consumer import QueueConsumer
from broker.core.consumer_target import ConsumerTarget
from broker.core.credit import Credit
from broker.core.session import Session

if TYPE_CHECKING:
    from broker.core.queue import Queue


@final
class NoTurns(Scheduler):
    """Nothing is ever delivered here, so no turn is needed."""

    def schedule(self, connection: Connection) -> None:
        """Ignored (Scheduler)."""


def taker_of(queue: Queue, tag: str = "") -> QueueConsumer:
    """Somebody who may own entries that are taken one by one; `tag`: what the journal calls it."""
    return QueueConsumer(ConsumerTarget(Session(Connection(NoTurns())), Credit()), queue, tag=tag)
