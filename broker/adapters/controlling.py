"""The methods of channel 0, which concern the connection itself. [amqp-0-9-1 1.4]"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.adapters import ending
from broker.adapters.opening import renew_secret
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods
from protocol.amqp091.connection import CLOSED, OPEN, advance
from protocol.errors import CHANNEL_ERROR, ProtocolError

if TYPE_CHECKING:
    from broker.adapters.connection091 import Connection091


def control(connection: Connection091, method: int, payload: bytes) -> None:
    """Take one. Raises ProtocolError."""
    if method >> 16 != c.CLASS_CONNECTION:
        methods.decode_method(method, payload)
        raise ProtocolError(CHANNEL_ERROR, f"method of class {method >> 16} on channel 0", method)
    frame = methods.decode_method(method, payload)
    state = advance(connection.state, method)
    if state == CLOSED:
        ending.closed_by_peer(connection)
    elif method == c.CONNECTION_UPDATE_SECRET:
        renew_secret(connection)
    elif connection.handshake is not None:
        connection.state = state
        connection.handshake.on_method(method, frame)
        if connection.state == OPEN:
            connection.handshake = None
