"""The shortage of memory or disk space, during which publishers are held. [RabbitMQ alarms]"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from broker.adapters.peers.connections import Connections

MEASURE_BYTES: Final = 16777216
"""Received bytes after which memory is measured: a fast client fills it several times a second."""


class Held:
    """A publisher that is held during a shortage."""

    def end(self) -> None:
        """Release the publisher: the shortage is over."""
        raise NotImplementedError


@final
class Shortage:
    """The shortage of memory or disk space, and the held publishers. `reason` is empty without a shortage.

    As in RabbitMQ, a connection is held when it publishes during a shortage, and gets connection.blocked if
    the client supports this. Connections that only consume continue, and free space. `measure` measures
    memory and disk space, and may call `set_shortages`.
    """

    def __init__(self, connections: Connections) -> None:
        self.memory = False
        self.disk = False
        self.reason = ""
        self.held: dict[Held, None] = {}
        self.measure: Callable[[], None] = _measure_nothing
        self._connections = connections
        self._unmeasured: i64 = 0  # bytes received since the last measurement

    def set_shortages(self, memory: bool, disk: bool) -> None:
        """Set the shortages; hold publishers from their next publish on, or release them."""
        self.memory = memory
        self.disk = disk
        words = [word for word, short in (("memory", memory), ("disk", disk)) if short]
        before = self.reason
        self.reason = "low on " + " & ".join(words) if words else ""
        if self.reason and not before:
            for connection in list(self._connections.all):
                connection.on_shortage()
        elif before and not self.reason:
            for publisher in list(self.held):
                publisher.end()

    def count_received(self, size: i64) -> None:
        """Count bytes that a client has sent, before they are handled; may begin a shortage and ends none."""
        self._unmeasured += size
        if self._unmeasured >= MEASURE_BYTES:
            self._unmeasured = 0
            if not self.reason:
                self.measure()


def _measure_nothing() -> None:
    """Do nothing: no resource is watched."""
