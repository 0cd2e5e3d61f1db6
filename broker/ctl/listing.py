"""Lists of objects, each with columns by choice."""

from typing import Annotated, Any, Final

import typer

from broker.ctl.session import Session, VirtualHost, open_session

Columns = Annotated[list[str] | None, typer.Argument(metavar="[COLUMN]...", help="Fields to show.")]

QUEUES: Final = ("name", "type", "messages_ready", "messages_unacknowledged", "consumers", "policy")
MEMBERS: Final = ("name", "weight", "selector", "pins", "leaving", "messages_ready", "messages_held")
EXCHANGES: Final = ("name", "type", "durable", "auto_delete", "internal", "policy")
BINDINGS: Final = ("source", "destination_type", "destination", "routing_key", "arguments")
CONNECTIONS: Final = ("name", "user", "vhost", "state", "channels", "protocol")
CHANNELS: Final = ("name", "user", "vhost", "consumer_count", "messages_unacknowledged", "prefetch_count")
CONSUMERS: Final = ("queue.name", "consumer_tag", "channel_details.name", "prefetch_count", "activity_status")
VHOSTS: Final = ("name", "description", "messages")
FEATURES: Final = ("name", "state", "desc")


NAMES: Final = {
    "source_name": "source",
    "destination_name": "destination",
    "destination_kind": "destination_type",
    "queue_name": "queue.name",
    "channel_pid": "channel_details.name",
    "pid": "name",
}
"""rabbitmqctl's names of columns that have another name in the HTTP API."""


def _list(
    context: typer.Context, path: tuple[str, ...], columns: list[str] | None, usual: tuple[str, ...]
) -> None:
    given = [each for column in columns or usual for each in column.split(",") if each]
    with open_session(context) as session:
        fields = [NAMES.get(column, column) for column in given]
        rows = session.client.get(*path, columns=",".join(fields))
        if columns and rows:
            _warn_of_unknown_fields(session, path, rows, fields)
        session.output.show(rows, given, fields)


def _warn_of_unknown_fields(
    session: Session, path: tuple[str, ...], rows: list[dict[str, Any]], fields: list[str]
) -> None:
    """Warn of a field that no object of a list has, and name the fields."""
    unknown = [field for field in fields if all(field.partition(".")[0] not in row for row in rows)]
    if unknown:
        known = sorted(session.client.get(*path, page="1", page_size="1")["items"][0])
        for field in unknown:
            typer.echo(f"amqpctl: no object has a field '{field}'; fields: {', '.join(known)}", err=True)


def list_queues(context: typer.Context, columns: Columns = None, vhost: VirtualHost = "/") -> None:
    """List queues."""
    _list(context, ("queues", vhost), columns, QUEUES)


def list_members(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the partitioned queue.")],
    vhost: VirtualHost = "/",
) -> None:
    """List the members of a partitioned queue."""
    with open_session(context) as session:
        session.output.show(session.client.get("partitioned", vhost, name)["members"], MEMBERS)


def list_exchanges(context: typer.Context, columns: Columns = None, vhost: VirtualHost = "/") -> None:
    """List exchanges."""
    _list(context, ("exchanges", vhost), columns, EXCHANGES)


def list_bindings(context: typer.Context, columns: Columns = None, vhost: VirtualHost = "/") -> None:
    """List bindings."""
    _list(context, ("bindings", vhost), columns, BINDINGS)


def list_connections(context: typer.Context, columns: Columns = None) -> None:
    """List connections."""
    _list(context, ("connections",), columns, CONNECTIONS)


def list_channels(context: typer.Context, columns: Columns = None) -> None:
    """List channels."""
    _list(context, ("channels",), columns, CHANNELS)


def list_consumers(context: typer.Context, columns: Columns = None, vhost: VirtualHost = "/") -> None:
    """List consumers."""
    _list(context, ("consumers", vhost), columns, CONSUMERS)


def list_vhosts(context: typer.Context, columns: Columns = None) -> None:
    """List virtual hosts."""
    _list(context, ("vhosts",), columns, VHOSTS)


def list_feature_flags(context: typer.Context) -> None:
    """List RabbitMQ's feature flags that amqpd has."""
    with open_session(context) as session:
        session.output.show(session.client.get("feature-flags"), FEATURES)


COMMANDS: Final = (
    list_queues,
    list_members,
    list_exchanges,
    list_bindings,
    list_connections,
    list_channels,
    list_consumers,
    list_vhosts,
    list_feature_flags,
)
