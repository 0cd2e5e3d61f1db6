"""How connections and channels open: whether there is room, and whether the user may. [amqp-0-9-1 1.4.2.7]"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from broker.adapters.access import Rights
from broker.adapters.channel091 import Channel
from broker.auth.terms import MAX_CHANNELS, MAX_CONNECTIONS
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods
from protocol.errors import NOT_ALLOWED, ProtocolError

if TYPE_CHECKING:
    from broker.adapters.connection091 import Connection091
    from broker.adapters.server import Server
    from broker.core.vhosts.vhost import VirtualHost

_log = structlog.get_logger("amqpd.connection")


class LimitError(ProtocolError):
    """The user may open the virtual host, which has, or who has, all connections that are allowed."""


def vhost_for(server: Server, user: str, name: str) -> VirtualHost:
    """The virtual host that a user wants to work in.

    Raises ProtocolError(NOT_ALLOWED), in RabbitMQ's words: there is none of this name, or the user may not
    open it; LimitError: there are as many connections as it, or the user, may have.
    """
    virtual_host = server.broker.vhosts.get(name)
    if virtual_host is None:
        raise ProtocolError(NOT_ALLOWED, f"vhost {name} not found", c.CONNECTION_OPEN)
    refused = f"access to vhost '{name}' refused for user '{user}'"
    limit: int | None = virtual_host.connections_max
    if limit is not None and server.connections.count_in_vhost(name) >= limit:
        raise LimitError(NOT_ALLOWED, f"{refused}: connection limit ({limit}) is reached", c.CONNECTION_OPEN)
    limit = server.access.limit(user, MAX_CONNECTIONS)
    if limit is not None and server.connections.count_of_user(user) >= limit:
        text = f"connection refused for user '{user}': user connection limit ({limit}) is reached"
        raise LimitError(NOT_ALLOWED, text, c.CONNECTION_OPEN)
    if not server.access.may_access(user, name):
        raise ProtocolError(NOT_ALLOWED, refused, c.CONNECTION_OPEN)
    return virtual_host


def open_connection(connection: Connection091, name: str) -> None:
    """Take connection.open. Raises ProtocolError(NOT_ALLOWED)."""
    server, user = connection.server, connection.user
    connection.virtual_host = vhost_for(server, user, name)
    connection.rights = Rights(server.access, user, name)
    server.connections.add(connection, user, name)
    connection.out.write(methods.connection_open_ok())
    _log.info(
        "connection opened",
        peer=connection.peer,
        user=user,
        vhost=name,
        client=connection.client_name,
        tls=connection.origin.tls_version or None,
        websocket=connection.origin.websocket or None,
    )


def renew_secret(connection: Connection091) -> None:
    """Take connection.update-secret. [RabbitMQ connection.update-secret]

    As in RabbitMQ, the secret of a user whose log-in does not expire counts at the next log-in and is not
    looked at now. Raises ProtocolError(NOT_ALLOWED) if the user may not be here any more.
    """
    assert connection.virtual_host is not None
    user, vhost = connection.user, connection.virtual_host.name
    if not connection.server.access.may_access(user, vhost):
        raise ProtocolError(
            NOT_ALLOWED, f"access to vhost '{vhost}' refused for user '{user}'", c.CONNECTION_UPDATE_SECRET
        )
    _log.info("secret renewed", peer=connection.peer, user=user)
    connection.out.write(methods.method_frame(0, c.CONNECTION_UPDATE_SECRET_OK))


def open_channel(connection: Connection091, number: int) -> None:
    """Take channel.open. Raises ProtocolError(NOT_ALLOWED)."""
    if number > connection.channel_max:
        raise ProtocolError(
            NOT_ALLOWED,
            f"channel {number} is beyond the negotiated channel_max {connection.channel_max}",
            c.CHANNEL_OPEN,
        )
    server, user = connection.server, connection.user
    limit = server.access.limit(user, MAX_CHANNELS)
    if limit is not None and server.connections.channels_of_user(user) >= limit:
        raise ProtocolError(
            NOT_ALLOWED,
            f"number of channels opened for user '{user}' has reached "
            f"the maximum allowed user limit of {limit}",
            c.CHANNEL_OPEN,
        )
    assert connection.virtual_host is not None
    channels = connection.wire.channels
    while len(channels) <= number:
        channels.append(None)
    channels[number] = Channel(connection, number, connection.virtual_host)
    connection.channel_count += 1
    server.counters.channels_opened += 1
    server.connections.add_channels(user, 1)
    connection.out.write(methods.channel_open_ok(number))
