"""Delayed messages of queues."""

from typing import Annotated, Final

import typer

from broker.ctl.objects import Name
from broker.ctl.output import show
from broker.ctl.session import VirtualHost, open_session

FIELDS: Final = ("id", "delivery_time", "exchange", "routing_key", "payload_bytes")

Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the message, from list_delayed.")]


def list_delayed(
    context: typer.Context,
    name: Name,
    page: Annotated[int, typer.Option("--page", min=1, help="Number of the page, of 100 messages each.")] = 1,
    vhost: VirtualHost = "/",
) -> None:
    """List the delayed messages of a queue, soonest first."""
    with open_session(context) as session:
        answer = session.client.get("queues", vhost, name, "delayed", page=str(page))
        show(answer["items"], FIELDS, session.form)


def cancel_delayed(context: typer.Context, name: Name, place: Id, vhost: VirtualHost = "/") -> None:
    """Cancel a delayed message."""
    with open_session(context) as session:
        session.client.delete("queues", vhost, name, "delayed", place)


def move_delayed(
    context: typer.Context,
    name: Name,
    place: Id,
    delay: Annotated[int | None, typer.Option("--delay", help="New delay in milliseconds from now.")] = None,
    at: Annotated[int | None, typer.Option("--at", help="New date in milliseconds since 1970.")] = None,
    vhost: VirtualHost = "/",
) -> None:
    """Change the date of a delayed message, which may get another id."""
    asked = {"delay": delay, "delivery_time": at}
    with open_session(context) as session:
        body = {field: value for field, value in asked.items() if value is not None}
        session.client.put("queues", vhost, name, "delayed", place, body=body)


COMMANDS: Final = (list_delayed, cancel_delayed, move_delayed)
