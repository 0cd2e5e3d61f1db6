"""What the machine runs short of: as long as it does, publishers wait. [RabbitMQ resource alarms]"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from broker.adapters.connections import Connections

LOOK_BYTES: Final = 16777216
"""Received bytes after which memory is looked at: a fast client fills it several times in a second."""


class Held:
    """Somebody who publishes and is held."""

    def end(self) -> None:
        """There is enough again."""
        raise NotImplementedError


@final
class Shortage:
    """Whether there is one, of what, and whom it holds. `reason` is empty while there is none.

    As with RabbitMQ a connection is held when it publishes during a shortage, and told so if it understands
    that. Who only consumes goes on, and makes room. `look` measures, and may call `update`.
    """

    def __init__(self, connections: Connections) -> None:
        self.memory = False
        self.disk = False
        self.reason = ""
        self.held: dict[Held, None] = {}
        self.look: Callable[[], None] = _look_nowhere
        self._connections = connections
        self._unlooked: i64 = 0  # bytes that were received since the last look

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

    def received(self, size: i64) -> None:
        """Count bytes that a client has sent, before they are taken; may begin a shortage and ends none."""
        self._unlooked += size
        if self._unlooked >= LOOK_BYTES:
            self._unlooked = 0
            if not self.reason:
                self.look()


def _look_nowhere() -> None:
    """Nothing is watched."""
