"""Channels, and how the API tells about them."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from broker.adapters.amqp091.channel import Channel
from broker.adapters.amqp091.connection import Connection091
from broker.adapters.amqp091.state import ChannelState
from broker.admin.api.answers import JSONResponse
from broker.admin.api.errors import not_found
from broker.admin.api.lists import Options, answer_list
from broker.admin.api.management import Managed, Management
from broker.admin.api.paths import Name
from broker.admin.api.visitor import Asker, Visitor

Shown = dict[str, Any]

router = APIRouter(tags=["channels"])


def channels_of(connection: Connection091) -> list[Channel]:
    """The open channels of a connection."""
    return [channel for channel in connection.wire.channels if isinstance(channel, Channel)]


def channel_name(channel: ChannelState) -> str:
    """The connection's name and the channel's number."""
    return f"{channel.connection.origin.name} ({channel.number})"


def channel_details(channel: ChannelState) -> Shown:
    """A channel, where something else is told of."""
    origin = channel.connection.origin
    return {
        "name": channel_name(channel),
        "number": int(channel.number),
        "connection_name": origin.name,
        "user": channel.connection.user,
        "peer_host": origin.address,
        "peer_port": origin.port,
    }


def shown_channel(channel: Channel, node: str) -> Shown:
    """One channel."""
    connection, confirms, window = channel.connection, channel.confirms, channel.window
    origin = connection.origin
    return {
        "name": channel_name(channel),
        "number": int(channel.number),
        "node": node,
        "user": connection.user,
        "vhost": channel.virtual_host.name,
        "connection_details": {
            "name": origin.name,
            "peer_host": origin.address,
            "peer_port": origin.port,
        },
        "state": "running" if channel.session.flow else "flow",
        "confirm": confirms is not None,
        "transactional": channel.transaction is not None,
        "consumer_count": len(channel.targets),
        "prefetch_count": int(channel.prefetch_count),
        "global_prefetch_count": int(window.count_max) if window is not None else 0,
        "messages_unacknowledged": int(channel.unacked.count()),
        "messages_unconfirmed": int(confirms.published - confirms.answered) if confirms is not None else 0,
    }


def _visible(management: Management, visitor: Visitor) -> list[Channel]:
    return [
        channel
        for connection in management.connections.all
        if isinstance(connection, Connection091) and (visitor.monitors or connection.user == visitor.name)
        for channel in channels_of(connection)
    ]


async def _list(management: Management, channels: list[Channel], options: Options) -> Response:
    return await answer_list(
        channels,
        lambda channel: shown_channel(channel, management.node),
        options,
        lambda channel: (channel.connection.origin.name, str(channel.number).zfill(5)),
        channel_name,
    )


@router.get("/channels")
async def list_channels(management: Managed, visitor: Asker, options: Options) -> Response:
    """Return all channels that the user may see."""
    return await _list(management, _visible(management, visitor), options)


@router.get("/vhosts/{vhost}/channels")
async def list_channels_in(management: Managed, visitor: Asker, options: Options, vhost: Name) -> Response:
    """Return the channels in a virtual host."""
    found = visitor.vhost(vhost)
    channels = [channel for channel in _visible(management, visitor) if channel.virtual_host is found]
    return await _list(management, channels, options)


@router.get("/channels/{name}")
async def get_channel(management: Managed, visitor: Asker, name: Name) -> JSONResponse:
    """Return a channel."""
    for connection in management.connections.all:
        if isinstance(connection, Connection091) and name.startswith(connection.origin.name):
            for channel in channels_of(connection):
                if channel_name(channel) == name:
                    visitor.require_owner(connection.user, to_change=False)
                    return JSONResponse(shown_channel(channel, management.node))
    raise not_found(f"no channel '{name}'")
