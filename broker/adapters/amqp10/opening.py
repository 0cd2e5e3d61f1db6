"""How AMQP 1.0 connections open: what both sides say, and whether there is room. [amqp-1.0 2.4.1]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import structlog

from broker.adapters.access import Rights
from broker.adapters.amqp10.idle import LEAST_MS
from broker.adapters.amqp10.sole_connection import CAPABILITY, enforce
from broker.adapters.opening import LimitError, vhost_for
from broker.adapters.server import PRODUCT
from protocol.amqp10.composing import encode_composite
from protocol.amqp10.composites import Error
from protocol.amqp10.conditions import (
    FRAMING_ERROR,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    PeerError,
)
from protocol.amqp10.frames import FRAME_HEADER_BYTES, FRAME_MAX_MIN
from protocol.amqp10.performatives import Close, Open
from protocol.amqp10.types import Symbol
from protocol.errors import ProtocolError

if TYPE_CHECKING:
    from broker.adapters.amqp10.connection import Connection10
    from broker.core.vhosts.vhost import VirtualHost

SESSIONS_MAX: Final = 255  # the highest channel
CONTAINER_CHARACTERS_MAX: Final = 255
DESCRIPTION_BYTES_MAX: Final = 300  # of an error: it fits the smallest frame
CAPABILITIES: Final = ("ANONYMOUS-RELAY", "LINK_PAIR_V1_0", "SHARED-SUBS", "DELAYED_DELIVERY", CAPABILITY)
VHOST_PREFIX: Final = "vhost:"
DEFAULT_VHOST: Final = "/"
REFUSED: Final = Symbol("amqp:connection-establishment-failed")

_log = structlog.get_logger("amqpd.connection")


def open_connection(connection: Connection10, peer: Open) -> None:
    """Take the peer's open, and answer with the broker's. Raises PeerError."""
    server = connection.server
    if len(peer.container_id) > CONTAINER_CHARACTERS_MAX:
        raise PeerError(INVALID_FIELD, f"container-id of {len(peer.container_id)} characters")
    if peer.max_frame_size < FRAME_MAX_MIN:
        text = f"max-frame-size is {peer.max_frame_size}, at least {FRAME_MAX_MIN} is needed"
        raise PeerError(FRAMING_ERROR, text)
    asked = peer.idle_time_out or 0
    if 0 < asked < LEAST_MS:
        raise PeerError(NOT_ALLOWED, f"idle-time-out is {asked} ms, at least {LEAST_MS} is possible")
    connection.frame_max = peer.max_frame_size
    connection.client_name = peer.container_id
    connection.client_properties = peer.properties or {}
    virtual_host = _vhost(connection, peer.hostname)
    connection.rights = Rights(server.access, connection.user, virtual_host.name)
    connection.set_channel_max(min(peer.channel_max, SESSIONS_MAX))
    connection.container = peer.container_id
    enforce(connection, peer)
    server.connections.add(connection, connection.user, virtual_host.name)
    say_open(connection, {})
    connection.opened(virtual_host)
    allowed: int = server.heartbeat * 2000
    connection.idle.start(asked, allowed)
    _log.info(
        "connection opened",
        peer=connection.peer,
        user=connection.user,
        vhost=virtual_host.name,
        client=connection.client_name,
        tls=connection.origin.tls_version or None,
        websocket=connection.origin.websocket or None,
    )


def refuse(connection: Connection10) -> None:
    """Say open, although close follows at once. [amqp-1.0 2.4.3]"""
    say_open(connection, {REFUSED: True})


def say_open(connection: Connection10, properties: dict[str, object]) -> None:
    """Say what the broker is and what it allows, and no more of the former than the peer's frames hold."""
    server = connection.server
    known: dict[str, object] = {Symbol(name): value for name, value in server.said.items()}
    heartbeat: int = server.heartbeat
    frame_max: int = max(server.frame_max, FRAME_MAX_MIN)
    said = Open(
        container_id=PRODUCT,
        max_frame_size=frame_max,
        channel_max=SESSIONS_MAX,
        idle_time_out=heartbeat * 1000 or None,
        offered_capabilities=CAPABILITIES,
        properties=known | properties,
    )
    if len(encode_composite(said)) + FRAME_HEADER_BYTES > connection.frame_max:
        said.properties = properties
        said.offered_capabilities = ()
    connection.write(said)


def close_with(condition: str, text: str, info: Mapping[str, object] | None) -> Close:
    """A close that says why, in a frame that every peer takes."""
    return Close(error=Error(condition=condition, description=shortened(text), info=info))


def shortened(text: str) -> str:
    """As much of a description as the frames of every peer hold."""
    return text.encode()[:DESCRIPTION_BYTES_MAX].decode(errors="ignore")


def _vhost(connection: Connection10, hostname: str | None) -> VirtualHost:
    """Return the virtual host that `vhost:NAME` names, or a name that is a virtual host's, else the default.

    An unknown virtual host is refused as an access that the user lacks: clients stop trying on
    `amqp:unauthorized-access`, and try again later after other conditions. [RabbitMQ rabbit_amqp_reader]

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
