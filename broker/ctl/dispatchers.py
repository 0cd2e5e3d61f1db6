"""Dispatchers: queues that call an application."""

from typing import Annotated, Final

import typer

from broker.ctl.session import VirtualHost, open_session, parse_object

COLUMNS: Final = ("name", "queue", "target", "trigger.kind", "status.state", "status.calls", "status.reason")

Columns = Annotated[list[str] | None, typer.Argument(metavar="[COLUMN]...", help="Fields to show.")]
DispatcherName = Annotated[str, typer.Argument(metavar="DISPATCHER", help="Name of the dispatcher.")]


def list_dispatchers(context: typer.Context, columns: Columns = None, vhost: VirtualHost = "/") -> None:
    """List dispatchers with their states."""
    with open_session(context) as session:
        rows = session.client.get("dispatchers", vhost)
        for row in rows:
            row["target"] = row["url"] if "url" in row else " ".join(row["command"])
        session.output.show(rows, tuple(columns) if columns else COLUMNS)


def set_dispatcher(
    context: typer.Context,
    name: DispatcherName,
    definition: Annotated[
        str,
        typer.Argument(
            metavar="JSON", help='The definition, such as {"queue": "q", "url": "https://example.org/hook"}.'
        ),
    ],
    vhost: VirtualHost = "/",
) -> None:
    """Set a dispatcher, which calls a URL or starts a command with the messages of a queue."""
    body = parse_object(definition, "the definition")
    with open_session(context) as session:
        session.client.put("dispatchers", vhost, name, body=body)


def delete_dispatcher(context: typer.Context, name: DispatcherName, vhost: VirtualHost = "/") -> None:
    """Delete a dispatcher; calls in progress go on."""
    with open_session(context) as session:
        session.client.delete("dispatchers", vhost, name)


def pause_dispatcher(context: typer.Context, name: DispatcherName, vhost: VirtualHost = "/") -> None:
    """Pause a dispatcher: no call begins any more, also after a restart of the broker."""
    with open_session(context) as session:
        session.client.post("dispatchers", vhost, name, "pause", body={})


def resume_dispatcher(context: typer.Context, name: DispatcherName, vhost: VirtualHost = "/") -> None:
    """Resume a paused dispatcher."""
    with open_session(context) as session:
        session.client.post("dispatchers", vhost, name, "resume", body={})


COMMANDS: Final = (
    list_dispatchers,
    set_dispatcher,
    delete_dispatcher,
    pause_dispatcher,
    resume_dispatcher,
)
