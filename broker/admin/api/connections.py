"""Connections: shown, and closed by an operator."""

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header
from fastapi.responses import Response

from broker.adapters.amqp091.connection import Connection091
from broker.adapters.amqp10.connection import Connection10
from broker.admin.api.answers import JSONResponse
from broker.admin.api.channels import channels_of, shown_channel
from broker.admin.api.errors import not_found
from broker.admin.api.lists import Options, answer_list
from broker.admin.api.management import Managed, Management
from broker.admin.api.paths import Name
from broker.admin.api.sessions import sessions_of, shown_session
from broker.admin.api.visitor import Asker, Visitor
from broker.admin.json_values import shown

BY_OPERATOR = "Closed via management HTTP API"

Shown = dict[str, Any]
Open = Connection091 | Connection10


def _reason(said: Annotated[str, Header(alias="x-reason")] = BY_OPERATOR) -> str:
    """What a client is to be told: the header has UTF-8, and arrives as one character for each byte."""
    return said.encode("latin-1", "replace").decode("utf-8", "replace")


Reason = Annotated[str, Depends(_reason)]

router = APIRouter(tags=["connections"])


def open_connections(management: Management, visitor: Visitor) -> list[Open]:
    """The connections that a user may see: all of them, or one's own."""
    found = [each for each in management.connections.all if isinstance(each, Open)]
    return found if visitor.monitors else [each for each in found if each.user == visitor.name]


def shown_connection(connection: Open, node: str) -> Shown:
    """One connection."""
    origin = connection.origin
    vhost = connection.virtual_host
    return {
        "name": origin.name,
        "user_provided_name": connection.client_name or None,
        "node": node,
        "type": "network",
        "protocol": _protocol(connection),
        "state": "flow" if connection.braked else "running",
        "user": connection.user,
        "vhost": vhost.name if vhost is not None else None,
        "host": origin.local_address,
        "port": origin.local_port,
        "peer_host": origin.address,
        "peer_port": origin.port,
        "ssl": bool(origin.cipher),
        "ssl_protocol": origin.tls_version or None,
        "ssl_cipher": origin.cipher or None,
        "auth_mechanism": connection.mechanism,
        "timeout": int(connection.heartbeat),
        "frame_max": int(connection.frame_max),
        "channel_max": int(connection.channel_max),
        "channels": connection.channels_open(),
        "client_properties": shown(connection.client_properties),
        "connected_at": origin.since,
    }


def _protocol(connection: Open) -> str:
    """What is spoken, in RabbitMQ's words."""
    name = "AMQP 0-9-1" if isinstance(connection, Connection091) else "AMQP 1-0"
    return f"Web {name}" if connection.origin.websocket else name


async def _list(management: Management, connections: Iterable[Open], options: Options) -> Response:
    return await answer_list(
        connections,
        lambda connection: shown_connection(connection, management.node),
        options,
        lambda connection: (connection.origin.name,),
        lambda connection: connection.origin.name,
    )


def _existing(management: Management, name: str) -> Open:
    for connection in management.connections.all:
        if isinstance(connection, Open) and connection.origin.name == name:
            return connection
    raise not_found(f"no connection '{name}'")


@router.get("/connections")
async def list_connections(management: Managed, visitor: Asker, options: Options) -> Response:
    """Return all connections that the user may see."""
    return await _list(management, open_connections(management, visitor), options)


@router.get("/vhosts/{vhost}/connections")
async def list_connections_to(management: Managed, visitor: Asker, options: Options, vhost: Name) -> Response:
    """Return the connections to a virtual host."""
    found = visitor.vhost(vhost)
    connections = open_connections(management, visitor)
    return await _list(management, [each for each in connections if each.virtual_host is found], options)


@router.get("/connections/username/{user}")
async def list_connections_of(management: Managed, visitor: Asker, options: Options, user: Name) -> Response:
    """Return the connections of a user."""
    connections = open_connections(management, visitor)
    return await _list(management, [each for each in connections if each.user == user], options)


@router.delete("/connections/username/{user}", status_code=204)
async def close_connections_of(management: Managed, visitor: Asker, user: Name, reason: Reason) -> Response:
    """Close all connections of a user."""
    visitor.require_owner(user, to_change=True)
    for connection in management.connections.of_user(user):
        connection.force_close(reason)
    return Response(status_code=204)


@router.get("/connections/{name}")
async def get_connection(management: Managed, visitor: Asker, name: Name) -> JSONResponse:
    """Return a connection."""
    connection = _existing(management, name)
    visitor.require_owner(connection.user, to_change=False)
    return JSONResponse(shown_connection(connection, management.node))


@router.delete("/connections/{name}", status_code=204)
async def close_connection(management: Managed, visitor: Asker, name: Name, reason: Reason) -> Response:
    """Close a connection with code 320.

    The request's header `x-reason` is the reason that the client reads.
    """
    connection = _existing(management, name)
    visitor.require_owner(connection.user, to_change=True)
    connection.force_close(reason)
    return Response(status_code=204)


@router.get("/connections/{name}/sessions")
async def list_sessions_of(management: Managed, visitor: Asker, name: Name) -> JSONResponse:
    """Return the sessions of a connection of AMQP 1.0 with their links."""
    connection = _existing(management, name)
    visitor.require_owner(connection.user, to_change=False)
    sessions = [] if isinstance(connection, Connection091) else sessions_of(connection)
    return JSONResponse([shown_session(session) for session in sessions])


@router.get("/connections/{name}/channels")
async def list_channels_of(management: Managed, visitor: Asker, options: Options, name: Name) -> Response:
    """Return the channels of a connection."""
    connection = _existing(management, name)
    visitor.require_owner(connection.user, to_change=False)
    return await answer_list(
        channels_of(connection) if isinstance(connection, Connection091) else [],
        lambda channel: shown_channel(channel, management.node),
        options,
        lambda channel: (str(channel.number).zfill(5),),
        lambda channel: str(channel.number),
    )
