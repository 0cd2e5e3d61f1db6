"""Performatives that concern the connection itself. [amqp-1.0 2.4]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog
from mypy_extensions import i64

from broker.adapters.amqp10.ending import closed_by_peer, end_output
from broker.adapters.amqp10.opening import open_connection
from broker.adapters.amqp10.states import CLOSING, OPENING
from protocol.amqp10.composing import decode_composite
from protocol.amqp10.conditions import (
    FRAMING_ERROR,
    ILLEGAL_STATE,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    DecodeError,
    PeerError,
)
from protocol.amqp10.performatives import Close, Open
from protocol.amqp10.types import Composite
from protocol.amqp10.unsettled import decode_attach

if TYPE_CHECKING:
    from broker.adapters.amqp10.connection import Connection10

PERFORMATIVE_BYTES_MAX: Final = 32768  # to decode one takes milliseconds; without what is unsettled on a link

_log = structlog.get_logger("amqpd.connection")


def control(connection: Connection10, channel: i64, data: bytes, start: i64, end: i64) -> None:
    """Take the performative of one frame that concerns the connection. Raises PeerError."""
    performative = decode(data, start, end)
    if connection.state == CLOSING:
        if isinstance(performative, Close):
            end_output(connection)
    elif connection.state == OPENING:
        if not isinstance(performative, Open):
            raise PeerError(ILLEGAL_STATE, f"{name_of(performative)} where open is expected")
        if channel != 0:
            raise PeerError(FRAMING_ERROR, f"open on channel {channel}")
        open_connection(connection, performative)
    elif isinstance(performative, Close):
        if performative.error is not None:
            reason = f"{performative.error.condition}: {performative.error.description}"
            _log.info("connection closed by the peer", peer=connection.peer, reason=reason)
        closed_by_peer(connection)
    else:
        raise PeerError(NOT_ALLOWED, f"{name_of(performative)} on a connection that is open")


def decode(data: bytes, start: i64, end: i64) -> Composite:
    """The performative that is all of a frame. What an attach says of deliveries may make it longer.

    Raises PeerError.
    """
    if end - start > PERFORMATIVE_BYTES_MAX:
        attach = decode_attach(data, start, end, PERFORMATIVE_BYTES_MAX)
        if attach is None:
            raise PeerError(RESOURCE_LIMIT_EXCEEDED, f"performative of {end - start} bytes")
        return attach
    performative, behind = decode_composite(data, int(start), int(end))
    if behind != end:
        raise DecodeError(f"{name_of(performative)}: there are bytes behind it")
    return performative


def name_of(performative: Composite) -> str:
    """What the specification calls it."""
    return type(performative).__name__.lower()
