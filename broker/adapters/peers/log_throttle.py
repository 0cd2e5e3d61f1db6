"""The throttle of publishers that are ahead of the log: such publishers wait for the disk."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.peers.connections import HELD_FOR_LOG
from broker.adapters.peers.peer import ServedConnection
from broker.core.ports import DurableWaiter

UNSYNCED_BYTES_MAX: Final = 8388608  # appended, and not on disk: beyond this a publisher is not read
FAR_BEHIND_BYTES: Final = 67108864  # beyond this all publishers wait, also idle ones


def throttle(connection: ServedConnection) -> None:
    """Make the publisher, or all publishers, wait for the log, which is behind.

    However many publishers there are, a batch stays far below the 4 GiB that its header can express.
    """
    connection.throttle_publisher()
    server = connection.server
    if server.store.unsynced_bytes > FAR_BEHIND_BYTES:
        for other in list(server.connections.all):
            other.throttle_publisher()


@final
class LogThrottle(DurableWaiter):
    """The throttle of a publisher while the log is behind: so batches, memory and stalls stay small."""

    def __init__(self, connection: ServedConnection) -> None:
        self.connection = connection

    def on_durable(self, batch: i64) -> None:
        """Release the publisher: everything that it had published is on disk."""
        self._let_go()

    def on_store_failed(self, reason: str) -> None:
        """Release the publisher, whose next publish is refused."""
        self._let_go()

    def _let_go(self) -> None:
        self.connection.waits_for_log = False
        self.connection.edge.release(HELD_FOR_LOG)


def wait_for_log(connection: ServedConnection) -> None:
    """Read nothing from a connection until everything appended is on disk."""
    connection.waits_for_log = True
    connection.edge.hold(HELD_FOR_LOG)
    connection.server.store.wait(LogThrottle(connection))
