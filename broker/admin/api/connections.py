"""Connections, channels, sessions, links: shown and closed. [RabbitMQ connections/NAME/sessions]"""

import ssl
from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header
from fastapi.responses import Response

from broker.adapters.amqp091.connection import Connection091, channel_name
from broker.adapters.amqp091.state import ChannelState
from broker.adapters.amqp10.connection import Connection10
from broker.adapters.amqp10.coordinator import CoordinatorLink
from broker.adapters.amqp10.receive import IncomingLink
from broker.adapters.amqp10.send import OutgoingLink
from broker.adapters.amqp10.session import Session10
from broker.adapters.amqp10.state import Session10State
from broker.adapters.peers.peer import ServedConnection
from broker.admin.api.answers import JSONResponse, not_found
from broker.admin.api.lists import Columns, Options, answer_with_list, select_columns
from broker.admin.api.management import Managed, Management
from broker.admin.api.requests import Asker, Histories, Name, Visitor
from broker.admin.statistics import NO_SPANS, TRAFFIC, Spans, open_connections
from broker.core.values import to_json

Shown = dict[str, Any]

BOUNDLESS = 2147483647

BY_OPERATOR = "Closed via management HTTP API"
Open = Connection091 | Connection10

router = APIRouter(tags=["connections"])


def connection_details(connection: ServedConnection) -> Shown:
    """Describe a connection within another object."""
    origin = connection.origin
    return {"name": origin.name, "peer_host": origin.address, "peer_port": origin.port}


def channel_details(channel: ChannelState) -> Shown:
    """Describe a channel within another object."""
    origin = channel.connection.origin
    return {
        "name": channel_name(channel),
        "number": int(channel.number),
        "connection_name": origin.name,
        "user": channel.connection.user,
        "peer_host": origin.address,
        "peer_port": origin.port,
    }


def sessions_of(connection: Connection10) -> list[Session10]:
    """Return the sessions that a connection has begun."""
    return connection.mapped.all()


def session_name(session: Session10State) -> str:
    """Return the name of a session: the connection's name and the session's channel."""
    return f"{session.peer.origin.name} ({session.channel})"


def session_details(session: Session10State) -> Shown:
    """Describe a session within another object."""
    origin = session.peer.origin
    return {
        "name": session_name(session),
        "number": int(session.channel),
        "connection_name": origin.name,
        "user": session.peer.user,
        "peer_host": origin.address,
        "peer_port": origin.port,
    }


def show_session(session: Session10) -> Shown:
    """Show a session with its links."""
    links = [link for link in session.links.values() if not link.is_detached]
    return {
        "channel_number": int(session.channel),
        "handle_max": int(session.handle_max),
        "next_incoming_id": int(session.incoming.next_id),
        "incoming_window": int(session.incoming.left),
        "next_outgoing_id": int(session.outgoing.next_id),
        "remote_incoming_window": int(session.outgoing.left),
        "remote_outgoing_window": BOUNDLESS,
        "outgoing_unsettled_deliveries": int(session.unsettled.count()),
        "incoming_links": [
            _incoming(link) for link in links if isinstance(link, IncomingLink | CoordinatorLink)
        ],
        "outgoing_links": [_outgoing(link) for link in links if isinstance(link, OutgoingLink)],
    }


def _incoming(link: IncomingLink | CoordinatorLink) -> Shown:
    shown = {
        "handle": int(link.handle),
        "link_name": link.name,
        "credit": int(link.credit.left),
        "delivery_count": int(link.credit.delivery_count),
    }
    if isinstance(link, CoordinatorLink):
        return shown | {"target": "coordinator", "transactions": int(link.open_count)}
    return shown | {
        "target_exchange": link.exchange,
        "target_routing_key": link.key,
        "snd_settle_mode": ("unsettled", "settled", "mixed")[link.snd_settle_mode],
        "max_message_size": int(link.size_max),
        "unconfirmed_messages": int(link.unsettled_count),
    }


def _outgoing(link: OutgoingLink) -> Shown:
    return {
        "handle": int(link.handle),
        "link_name": link.name,
        "queue_name": ", ".join(queue.name for queue in link.consumed_queues()),
        "send_settled": link.settled,
        "max_message_size": int(link.size_max),
        "credit": int(link.credit.left),
        "delivery_count": int(link.credit.delivery_count),
    }


async def _reason(given: Annotated[str, Header(alias="x-reason")] = BY_OPERATOR) -> str:
    """Decode the reason for the client: the header has UTF-8, and arrives as a character for each byte."""
    return given.encode("latin-1", "replace").decode("utf-8", "replace")


Reason = Annotated[str, Depends(_reason)]


def visible_connections(management: Management, visitor: Visitor) -> list[Open]:
    """Return the connections that a user may see: all of them, or the user's own."""
    connections = open_connections(management.connections)
    return connections if visitor.monitors else [each for each in connections if each.user == visitor.name]


def show_connection(connection: Open, management: Management, spans: Spans = NO_SPANS) -> Shown:
    """Show a connection."""
    measurement = management.statistics.of_connection(connection.octets, spans)
    certificate = connection.origin.certificate
    origin = connection.origin
    vhost = connection.virtual_host
    key_exchange, digest = _suites().get(origin.cipher, (None, None))
    return {
        "name": origin.name,
        "user_provided_name": connection.client_name or None,
        "node": management.node,
        "type": "network",
        "protocol": _protocol(connection),
        "state": "flow" if connection.waits_for_log else "running",
        "user": connection.user,
        "user_who_performed_action": connection.user,
        "vhost": vhost.name if vhost is not None else None,
        "host": origin.local_address,
        "port": origin.local_port,
        "peer_host": origin.address,
        "peer_port": origin.port,
        "ssl": bool(origin.cipher),
        "ssl_protocol": origin.tls_version or None,
        "ssl_cipher": origin.cipher or None,
        "ssl_key_exchange": key_exchange,
        "ssl_hash": digest,
        "peer_cert_subject": certificate.subject or None,
        "peer_cert_issuer": certificate.issuer or None,
        "peer_cert_validity": certificate.validity or None,
        "auth_mechanism": connection.mechanism,
        "timeout": int(connection.heartbeat),
        "frame_max": int(connection.frame_max),
        "channel_max": int(connection.channel_max),
        "channels": connection.channels_open(),
        "client_properties": to_json(connection.client_properties),
        "connected_at": origin.since,
        **measurement.show(TRAFFIC, spans.data_rates),
        "send_pend": 0,
    }


@cache
def _suites() -> dict[str, tuple[str, str]]:
    """Return the key exchange and the hash of each cipher suite of OpenSSL, in the words of Erlang."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    found: dict[str, tuple[str, str]] = {}
    for suite in context.get_ciphers():
        exchange = suite["kea"].removeprefix("kx-").replace("-", "_")
        login = suite["auth"].removeprefix("auth-")
        both = exchange if exchange in ("any", login) else f"{exchange}_{login}"
        found[suite["name"]] = (
            both,
            "aead" if suite["digest"] is None else suite["digest"].replace("sha1", "sha"),
        )
    return found


def _protocol(connection: Open) -> str:
    """Return the protocol in RabbitMQ's words."""
    name = "AMQP 0-9-1" if isinstance(connection, Connection091) else "AMQP 1-0"
    return f"Web {name}" if connection.origin.websocket else name


async def _list(management: Management, connections: Iterable[Open], options: Options) -> Response:
    return await answer_with_list(
        connections,
        lambda connection: show_connection(connection, management),
        options,
        lambda connection: (connection.origin.name,),
        lambda connection: connection.origin.name,
    )


def find_connection(management: Management, name: str) -> Open:
    """Return an open connection by its name. Raises ApiError."""
    for connection in management.connections.all:
        if isinstance(connection, Open) and connection.origin.name == name:
            return connection
    raise not_found(f"no connection '{name}'")


@router.get("/connections")
async def list_connections(management: Managed, visitor: Asker, options: Options) -> Response:
    """Return all connections that the user may see."""
    return await _list(management, visible_connections(management, visitor), options)


@router.get("/vhosts/{vhost}/connections")
async def list_connections_to(management: Managed, visitor: Asker, options: Options, vhost: Name) -> Response:
    """Return the connections to a virtual host."""
    virtual_host = visitor.vhost(vhost)
    connections = visible_connections(management, visitor)
    return await _list(
        management, [each for each in connections if each.virtual_host is virtual_host], options
    )


@router.get("/connections/username/{user}")
async def list_connections_of(management: Managed, visitor: Asker, options: Options, user: Name) -> Response:
    """Return the connections of a user."""
    connections = visible_connections(management, visitor)
    return await _list(management, [each for each in connections if each.user == user], options)


@router.delete("/connections/username/{user}", status_code=204)
async def close_connections_of(management: Managed, visitor: Asker, user: Name, reason: Reason) -> Response:
    """Close all connections of a user."""
    visitor.require_owner(user, to_change=True)
    for connection in management.connections.of_user(user):
        connection.force_close(reason)
    return Response(status_code=204)


@router.get("/connections/{name}")
async def get_connection(
    management: Managed, visitor: Asker, name: Name, spans: Histories, columns: Columns
) -> JSONResponse:
    """Return a connection."""
    connection = find_connection(management, name)
    visitor.require_owner(connection.user, to_change=False)
    return JSONResponse(select_columns(show_connection(connection, management, spans), columns))


@router.delete("/connections/{name}", status_code=204)
async def close_connection(management: Managed, visitor: Asker, name: Name, reason: Reason) -> Response:
    """Close a connection with code 320.

    The request's header `x-reason` is the reason that the client reads.
    """
    connection = find_connection(management, name)
    visitor.require_owner(connection.user, to_change=True)
    connection.force_close(reason)
    return Response(status_code=204)


@router.get("/connections/{name}/sessions")
async def list_sessions_of(management: Managed, visitor: Asker, name: Name) -> JSONResponse:
    """Return the sessions of a connection of AMQP 1.0 with their links."""
    connection = find_connection(management, name)
    visitor.require_owner(connection.user, to_change=False)
    sessions = [] if isinstance(connection, Connection091) else sessions_of(connection)
    return JSONResponse([show_session(session) for session in sessions])
