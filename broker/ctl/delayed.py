"""The messages that queues hold until their date."""

from typing import Annotated, Final

import typer

from broker.ctl.objects import Name
from broker.ctl.output import show
from broker.ctl.session import VirtualHost, session

FIELDS: Final = ("id", "delivery_time", "exchange", "routing_key", "payload_bytes")

Id = Annotated[str, typer.Argument(metavar="ID", help="As list_delayed shows it.")]


def list_delayed(
    context: typer.Context,
    name: Name,
    page: Annotated[int, typer.Option("--page", min=1, help="Which hundred of them.")] = 1,
    vhost: VirtualHost = "/",
) -> None:
    """List messages that a queue holds until their date, soonest first."""
    with session(context) as found:
        answer = found.client.get("queues", vhost, name, "delayed", page=str(page))
        show(answer["items"], FIELDS, found.form)


def cancel_delayed(context: typer.Context, name: Name, place: Id, vhost: VirtualHost = "/") -> None:
    """Cancel a message that a queue holds until its date: nobody gets it."""
    with session(context) as found:
        found.client.delete("queues", vhost, name, "delayed", place)


def move_delayed(
    context: typer.Context,
    name: Name,
    place: Id,
    delay: Annotated[int | None, typer.Option("--delay", help="Milliseconds from now.")] = None,
    at: Annotated[int | None, typer.Option("--at", help="Milliseconds since 1970.")] = None,
    vhost: VirtualHost = "/",
) -> None:
    """Have a message that a queue holds wait for another date. It may have another id then."""
    asked = {"delay": delay, "delivery_time": at}
    with session(context) as found:
        body = {field: value for field, value in asked.items() if value is not None}
        found.client.put("queues", vhost, name, "delayed", place, body=body)


COMMANDS: Final = (list_delayed, cancel_delayed, move_delayed)
