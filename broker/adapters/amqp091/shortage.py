"""The publishers that are held while memory or disk space is short. [RabbitMQ connection.blocked]"""

from __future__ import annotations

from typing import Final, final

import structlog

from broker.adapters.amqp091.state import Connection091State, HeldConnection
from broker.adapters.peers.connections import HELD_FOR_SHORTAGE
from protocol.amqp091 import methods
from protocol.amqp091.closing import asks_to_close

CAPABILITY: Final = "connection.blocked"
KEPT_BYTES_MAX: Final = 16384  # for each held publisher; with more bytes the connection is no longer read

_log = structlog.get_logger("amqpd.connection")


@final
class HeldPublisher(HeldConnection):
    """A connection of AMQP 0-9-1 that has published during a shortage.

    The connection's frames are kept back. The connection is still read until KEPT_BYTES_MAX are kept, so that
    heartbeats and the end of the connection are noticed. If the client closes the connection, the frames
    before the close are taken after all.
    """

    def __init__(self, connection: Connection091State) -> None:
        self.connection = connection
        self._is_notified = connection.client_capabilities.get(CAPABILITY) is True
        self._is_closing = False
        shortage = connection.server.shortage
        shortage.held[self] = None
        _log.info("publisher held", peer=connection.peer, user=connection.user, reason=shortage.reason)
        if self._is_notified:
            connection.out.write(methods.connection_blocked(shortage.reason))

    def check_kept_frames(self) -> None:
        """Look for a close in the kept frames: more bytes have come."""
        connection = self.connection
        if self._is_closing:
            return
        kept = connection.wire.kept()
        if asks_to_close(kept):
            self._is_closing = True
            connection.release(HELD_FOR_SHORTAGE)
        elif len(kept) > KEPT_BYTES_MAX:
            connection.edge.hold(HELD_FOR_SHORTAGE)

    def end(self) -> None:
        """Release the connection: the shortage is over."""
        connection = self.connection
        self.forget()
        if self._is_notified and connection.is_open():
            connection.out.write(methods.connection_unblocked())
        connection.release(HELD_FOR_SHORTAGE)

    def forget(self) -> None:
        """Forget a connection that has ended or is no longer held."""
        self.connection.server.shortage.held.pop(self, None)
        self.connection.held = None


def hold_publisher(connection: Connection091State) -> None:
    """Hold a connection that publishes, unless it is held already."""
    if connection.held is None:
        connection.held = HeldPublisher(connection)
        connection.keep_frames(HELD_FOR_SHORTAGE)
