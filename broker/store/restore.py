"""Recovery's way into the broker: definitions become topology, messages become entries."""

from __future__ import annotations

from typing import final

from broker.core.broker import Broker
from broker.core.message import Message
from broker.core.restoring import restore
from broker.store.recovery import RecoverySink


@final
class Recovered(RecoverySink):
    """Fills a broker that has nothing yet."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apply(self, change: dict[str, object]) -> None:
        """A definition (RecoverySink)."""
        self.broker.apply(change)

    def message(self, message: Message, queues: list[int], redelivered: bool, counts: dict[int, int]) -> int:
        """A message and the queues that hold it (RecoverySink)."""
        taken = 0
        for number in queues:
            queue = self.broker.queue_numbered(number)
            if queue is not None:
                restore(queue, message, redelivered, counts.get(number, 0))
                taken += 1
        return taken
