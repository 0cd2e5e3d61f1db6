"""Open and close of connections of AMQP 1.0. [amqp-1.0 2.4.1, 2.4.3]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog
from librt.strings import BytesWriter

from broker.adapters.access import Rights
from broker.adapters.amqp10.idle import LEAST_MS
from broker.adapters.amqp10.link import shorten_description
from broker.adapters.amqp10.state import CLOSED, CLOSING, OPENED, OPENING, Connection10State
from broker.adapters.peers.connections import HELD
from broker.adapters.peers.peer import ServedConnection
from broker.adapters.peers.requests import LimitError, vhost_for
from broker.adapters.peers.server import PRODUCT
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp10.composing import encode_composite
from protocol.amqp10.composites import Error
from protocol.amqp10.conditions import (
    FRAMING_ERROR,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    RESOURCE_LOCKED,
    UNAUTHORIZED_ACCESS,
    PeerError,
)
from protocol.amqp10.frames import FRAME_HEADER_BYTES, FRAME_MAX_MIN
from protocol.amqp10.performatives import Close, Open
from protocol.amqp10.types import Symbol
from protocol.errors import ProtocolError

CAPABILITY: Final = "sole-connection-for-container"
ENFORCEMENT: Final = "sole-connection-enforcement-policy"
DETECTION: Final = "sole-connection-detection-policy"
REFUSE: Final = 0
CLOSE_EXISTING: Final = 1
STRONG: Final = 0
WEAK: Final = 1


def enforce_sole_connection(connection: Connection10State, peer: Open) -> None:
    """Make a connection the only one of its container, if its open has the capability, or refuse it.

    With weak detection, only connections with the same capability count. Raises PeerError.

    [sole connection enforcement 1.0]
    """
    if CAPABILITY not in peer.desired_capabilities:
        return
    policy = _read_policy(peer, ENFORCEMENT, CLOSE_EXISTING)
    weak = _read_policy(peer, DETECTION, WEAK) == WEAK
    for other in connection.server.connections.in_vhost(connection.rights.vhost):
        if not isinstance(other, ServedConnection) or not other.is_open():
            continue
        if other.user != connection.user or other.container != connection.container:
            continue
        if weak and not other.is_sole:
            continue
        if policy == REFUSE:
            text = f"container '{connection.container}' already has a connection"
            raise PeerError(INVALID_FIELD, text, {Symbol("invalid-field"): Symbol("container-id")})
        text = "another connection of the container has replaced this one"
        other.close_replaced(RESOURCE_LOCKED, text, {Symbol("sole-connection-enforcement"): True})
    connection.is_sole = True


def _read_policy(peer: Open, name: str, most: int) -> int:
    """Return the policy in a property of the peer's open; 0 by default. Raises PeerError."""
    value = None if peer.properties is None else peer.properties.get(name)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise PeerError(INVALID_FIELD, f"{name} is {value!s}, expected 0 to {most}")
    return value


SESSIONS_MAX: Final = 255  # the highest channel
CONTAINER_CHARACTERS_MAX: Final = 255
CAPABILITIES: Final = ("ANONYMOUS-RELAY", "LINK_PAIR_V1_0", "SHARED-SUBS", "DELAYED_DELIVERY", CAPABILITY)
VHOST_PREFIX: Final = "vhost:"
DEFAULT_VHOST: Final = "/"
REFUSED: Final = Symbol("amqp:connection-establishment-failed")

_log = structlog.get_logger("amqpd.connection")


def open_connection(connection: Connection10State, peer: Open) -> None:
    """Take the peer's open, and answer with the broker's. Raises PeerError."""
    server = connection.server
    if len(peer.container_id) > CONTAINER_CHARACTERS_MAX:
        size = len(peer.container_id)
        text = f"container-id of {size} characters, at most {CONTAINER_CHARACTERS_MAX} are allowed"
        raise PeerError(INVALID_FIELD, text)
    if peer.max_frame_size < FRAME_MAX_MIN:
        text = f"max-frame-size is {peer.max_frame_size}, at least {FRAME_MAX_MIN} is needed"
        raise PeerError(FRAMING_ERROR, text)
    peer_timeout = peer.idle_time_out or 0
    if 0 < peer_timeout < LEAST_MS:
        raise PeerError(NOT_ALLOWED, f"idle-time-out is {peer_timeout} ms, at least {LEAST_MS} ms are needed")
    connection.frame_max = peer.max_frame_size
    connection.client_name = peer.container_id
    connection.client_properties = peer.properties or {}
    virtual_host = _find_vhost(connection, peer.hostname)
    connection.rights = Rights(server.access, connection.user, virtual_host.name)
    connection.set_channel_max(min(peer.channel_max, SESSIONS_MAX))
    connection.container = peer.container_id
    enforce_sole_connection(connection, peer)
    send_open(connection, {})
    connection.on_opened(virtual_host, peer_timeout)
    _log.info(
        "connection opened",
        peer=connection.peer,
        user=connection.user,
        vhost=virtual_host.name,
        client=connection.client_name,
        tls=connection.origin.tls_version or None,
        websocket=connection.origin.websocket or None,
    )


def send_refusing_open(connection: Connection10State) -> None:
    """Send open before the close that refuses the connection. [amqp-1.0 2.4.3]"""
    send_open(connection, {REFUSED: True})


def send_open(connection: Connection10State, properties: dict[str, object]) -> None:
    """Send open with the broker's limits, and with its properties if they fit the peer's max-frame-size."""
    server = connection.server
    known: dict[str, object] = {Symbol(name): value for name, value in server.open_properties.items()}
    heartbeat: int = server.heartbeat
    frame_max: int = max(server.frame_max, FRAME_MAX_MIN)
    answer = Open(
        container_id=PRODUCT,
        max_frame_size=frame_max,
        channel_max=SESSIONS_MAX,
        idle_time_out=heartbeat * 1000 or None,
        offered_capabilities=CAPABILITIES,
        properties=known | properties,
    )
    if len(encode_composite(answer)) + FRAME_HEADER_BYTES > connection.frame_max:
        answer.properties = properties
        answer.offered_capabilities = ()
    connection.write(answer)


def make_close(condition: str, text: str, info: Mapping[str, object] | None) -> Close:
    """Return a close with an error, in a frame that every peer accepts."""
    return Close(error=Error(condition=condition, description=shorten_description(text), info=info))


def _find_vhost(connection: Connection10State, hostname: str | None) -> VirtualHost:
    """Return the virtual host of a hostname `vhost:NAME` or `NAME`, else the default virtual host.

    An unknown virtual host is refused with `amqp:unauthorized-access`. Clients stop after this condition, and
    try again after other conditions. [RabbitMQ rabbit_amqp_reader]

    Raises PeerError.
    """
    server = connection.server
    name = hostname or ""
    if name.startswith(VHOST_PREFIX):
        name = name[len(VHOST_PREFIX) :]
    elif name not in server.broker.vhosts:
        name = DEFAULT_VHOST
    try:
        return vhost_for(server, connection.user, name)
    except LimitError as full:
        raise PeerError(RESOURCE_LIMIT_EXCEEDED, full.text) from None
    except ProtocolError as error:
        raise PeerError(UNAUTHORIZED_ACCESS, error.text) from None


CLOSING_SECONDS: Final = 2


def close_connection(
    connection: Connection10State, condition: str, text: str, info: Mapping[str, object] | None = None
) -> None:
    """Send close with an error, and open before it if this side has not sent it. Expect the peer's close."""
    if connection.state == OPENING:
        send_refusing_open(connection)
    connection.release_all()
    connection.state = CLOSING
    connection.write(make_close(condition, text, info))
    connection.holds = 0
    connection.edge.release(HELD)
    connection.edge.limit_close(CLOSING_SECONDS)
    connection.flush()


def answer_close(connection: Connection10State) -> None:
    """Answer the peer's close."""
    connection.send_pending()
    connection.release_all()
    connection.write(Close())
    end_output(connection)


def end_output(connection: Connection10State) -> None:
    """End the output; the peer closes the socket."""
    connection.state = CLOSED
    connection.flush()
    connection.edge.release(HELD)
    connection.edge.end_output()


def drop_connection(connection: Connection10State) -> None:
    """Close the socket without a close frame. Output that was written before is still sent."""
    connection.release_all()
    connection.state = CLOSED
    connection.flush()
    connection.edge.close()


def end_lost_connection(connection: Connection10State, reason: str) -> None:
    """End the connection: the socket is closed."""
    if connection.state == OPENED:
        why = reason or "closed by the peer"
        _log.info("connection lost", peer=connection.peer, user=connection.user, reason=why)
    connection.release_all()
    connection.state = CLOSED
    connection.out = BytesWriter()
