"""What the machine runs short of: as long as it does, publishers wait. [RabbitMQ resource alarms]"""

from __future__ import annotations

from typing import final

from broker.adapters.connections import Connections


class Held:
    """Somebody who publishes and is held."""

    def end(self) -> None:
        """There is enough again."""
        raise NotImplementedError


@final
class Shortage:
    """Whether there is one, of what, and whom it holds. `reason` is empty while there is none.

    As with RabbitMQ a connection is held when it publishes during a shortage, and told so if it understands
    that. Who only consumes goes on, and makes room.
    """

    def __init__(self, connections: Connections) -> None:
        self.memory = False
        self.disk = False
        self.reason = ""
        self.held: dict[Held, None] = {}
        self._connections = connections

    def update(self, memory: bool, disk: bool) -> None:
        """Say what is short now; holds publishers from their next publish on, or lets them go."""
        self.memory = memory
        self.disk = disk
        words = [word for word, short in (("memory", memory), ("disk", disk)) if short]
        before = self.reason
        self.reason = "low on " + " & ".join(words) if words else ""
        if self.reason and not before:
            for connection in list(self._connections.all):
                connection.shortage_began()
        elif before and not self.reason:
            for publisher in list(self.held):
                publisher.end()
