"""Channels of AMQP 0-9-1: shown with their consumers and counts."""

from fastapi import APIRouter
from fastapi.responses import Response

from broker.adapters.amqp091.channel import Channel
from broker.adapters.amqp091.connection import Connection091, channel_name, channels_of
from broker.admin.api.answers import JSONResponse, not_found
from broker.admin.api.connections import connection_details, find_connection
from broker.admin.api.consumers import show_consumer
from broker.admin.api.lists import Columns, Options, answer_with_list, select_columns
from broker.admin.api.management import Managed, Management
from broker.admin.api.requests import Asker, Histories, Name, Visitor
from broker.admin.shapes import Shown
from broker.admin.statistics import NO_SPANS, OF_CHANNEL, Spans

router = APIRouter(tags=["channels"])


def show_channel(channel: Channel, management: Management, spans: Spans = NO_SPANS) -> Shown:
    """Show a channel."""
    measurement = management.statistics.of_channel(channel, spans)
    transaction = channel.transaction
    connection, window = channel.connection, channel.window
    return {
        "name": channel_name(channel),
        "number": int(channel.number),
        "node": management.node,
        "user": connection.user,
        "user_who_performed_action": connection.user,
        "vhost": channel.virtual_host.name,
        "connection_details": connection_details(connection),
        "state": "running" if channel.session.flow else "flow",
        "confirm": channel.confirms is not None,
        "transactional": channel.transaction is not None,
        "consumer_count": len(channel.targets),
        "prefetch_count": int(channel.prefetch_count),
        "global_prefetch_count": int(window.count_max) if window is not None else 0,
        "messages_unacknowledged": int(channel.unacked.count()),
        "messages_unconfirmed": channel.unconfirmed,
        "messages_uncommitted": 0 if transaction is None else len(transaction.publishes),
        "acks_uncommitted": 0 if transaction is None else len(transaction.tags()),
        "pending_raft_commands": 0,
        "idle_since": management.idle_since(channel.traffic.reading),
        "message_stats": measurement.show(OF_CHANNEL, spans.msg_rates),
    }


def _visible(management: Management, visitor: Visitor) -> list[Channel]:
    return [
        channel
        for connection in management.connections.all
        if isinstance(connection, Connection091) and (visitor.monitors or connection.user == visitor.name)
        for channel in channels_of(connection)
    ]


async def _list_channels(management: Management, channels: list[Channel], options: Options) -> Response:
    return await answer_with_list(
        channels,
        lambda channel: show_channel(channel, management),
        options,
        lambda channel: (channel.connection.origin.name, str(channel.number).zfill(5)),
        channel_name,
    )


@router.get("/channels")
async def list_channels(management: Managed, visitor: Asker, options: Options) -> Response:
    """Return all channels that the user may see."""
    return await _list_channels(management, _visible(management, visitor), options)


@router.get("/vhosts/{vhost}/channels")
async def list_channels_in(management: Managed, visitor: Asker, options: Options, vhost: Name) -> Response:
    """Return the channels in a virtual host."""
    virtual_host = visitor.vhost(vhost)
    channels = [channel for channel in _visible(management, visitor) if channel.virtual_host is virtual_host]
    return await _list_channels(management, channels, options)


@router.get("/channels/{name}")
async def get_channel(
    management: Managed, visitor: Asker, name: Name, spans: Histories, columns: Columns
) -> JSONResponse:
    """Return a channel with its consumers."""
    for connection in management.connections.all:
        if isinstance(connection, Connection091) and name.startswith(connection.origin.name):
            for channel in channels_of(connection):
                if channel_name(channel) == name:
                    visitor.require_owner(connection.user, to_change=False)
                    consumers = [each for target in channel.targets.values() for each in target.consumers]
                    details = {
                        "consumer_details": [
                            show_consumer(each, management.node) for each in consumers if each.front is None
                        ],
                        "publishes": [],  # RabbitMQ fills these two where its rates mode is `detailed`
                        "deliveries": [],
                    }
                    shown = show_channel(channel, management, spans) | details
                    return JSONResponse(select_columns(shown, columns))
    raise not_found(f"no channel '{name}'")


@router.get("/connections/{name}/channels")
async def list_channels_of(management: Managed, visitor: Asker, options: Options, name: Name) -> Response:
    """Return the channels of a connection."""
    connection = find_connection(management, name)
    visitor.require_owner(connection.user, to_change=False)
    return await answer_with_list(
        channels_of(connection) if isinstance(connection, Connection091) else [],
        lambda channel: show_channel(channel, management),
        options,
        lambda channel: (str(channel.number).zfill(5),),
        lambda channel: str(channel.number),
    )
