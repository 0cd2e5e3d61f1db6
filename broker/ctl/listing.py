"""Lists of objects, and the broker's status."""

from typing import Annotated, Final

import typer

from broker.ctl.output import print_json, show
from broker.ctl.session import VirtualHost, open_session

Columns = Annotated[list[str] | None, typer.Argument(metavar="[COLUMN]...", help="Fields to show.")]

QUEUES: Final = ("name", "type", "messages_ready", "messages_unacknowledged", "consumers", "policy")
MEMBERS: Final = ("name", "weight", "selector", "pins", "leaving", "messages_ready", "messages_held")
EXCHANGES: Final = ("name", "type", "durable", "auto_delete", "internal", "policy")
BINDINGS: Final = ("source", "destination_type", "destination", "routing_key", "arguments")
CONNECTIONS: Final = ("name", "user", "vhost", "state", "channels", "protocol")
CHANNELS: Final = ("name", "user", "vhost", "consumer_count", "messages_unacknowledged", "prefetch_count")
CONSUMERS: Final = ("queue.name", "consumer_tag", "channel_details.name", "prefetch_count", "activity_status")
VHOSTS: Final = ("name", "description", "messages")


def _list(
    context: typer.Context, path: tuple[str, ...], columns: list[str] | None, usual: tuple[str, ...]
) -> None:
    wanted = tuple(columns) if columns else usual
    with open_session(context) as session:
        show(session.client.get(*path, columns=",".join(wanted)), wanted, session.form)


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
        show(session.client.get("partitioned", vhost, name)["members"], MEMBERS, session.form)


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


def status(context: typer.Context) -> None:
    """Show the version of the broker and the numbers of its objects."""
    with open_session(context) as session:
        overview = session.client.get("overview")
        if session.form == "json":
            print_json(overview)
            return
        facts = {name: overview[name] for name in ("product_name", "product_version", "flavour", "node")}
        facts |= overview["object_totals"]
        totals = overview["queue_totals"]
        facts |= {name: totals[name] for name in ("messages_ready", "messages_unacknowledged")}
        rows = [{"what": name, "value": str(value)} for name, value in facts.items()]
        show(rows, ("what", "value"), session.form)


COMMANDS: Final = (
    status,
    list_queues,
    list_members,
    list_exchanges,
    list_bindings,
    list_connections,
    list_channels,
    list_consumers,
    list_vhosts,
)
