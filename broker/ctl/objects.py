"""Virtual hosts, queues and connections: create and delete; definitions: export and import."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from broker.ctl.session import VirtualHost, open_session

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the object.")]
LEVELS_MAX: Final = 128
"""Objects and lists within each other that the HTTP API takes in a body."""

OnlyVirtualHost = Annotated[
    str | None,
    typer.Option("--vhost", "-p", metavar="NAME", help="Only the definitions of this virtual host."),
]


def add_vhost(
    context: typer.Context,
    name: Name,
    description: Annotated[str, typer.Option(help="Description of the virtual host.")] = "",
) -> None:
    """Add a virtual host; the user who adds it gets all permissions in it."""
    with open_session(context) as session:
        session.client.put("vhosts", name, body={"description": description} if description else {})


def delete_vhost(context: typer.Context, name: Name) -> None:
    """Delete a virtual host with everything in it, and close the connections to it."""
    with open_session(context) as session:
        session.client.delete("vhosts", name)


def declare_queue(
    context: typer.Context,
    name: Name,
    durable: Annotated[bool, typer.Option(help="Whether the queue survives a restart of the broker.")] = True,
    auto_delete: Annotated[
        bool, typer.Option("--auto-delete", help="Delete the queue when its last consumer ends.")
    ] = False,
    arguments: Annotated[
        str, typer.Option(metavar="JSON", help='Arguments of the queue, such as {"x-max-priority": 5}.')
    ] = "{}",
    vhost: VirtualHost = "/",
) -> None:
    """Declare a queue."""
    body = {"durable": durable, "auto_delete": auto_delete, "arguments": parse_json(arguments)}
    with open_session(context) as session:
        session.client.put("queues", vhost, name, body=body)


def alter_queue(
    context: typer.Context,
    name: Name,
    arguments: Annotated[
        str, typer.Option(metavar="JSON", help="Arguments to alter; null removes an argument.")
    ] = "{}",
    new_name: Annotated[str, typer.Option("--name", metavar="NAME", help="New name of the queue.")] = "",
    shared: Annotated[bool, typer.Option("--shared", help="Make an exclusive queue shared.")] = False,
    vhost: VirtualHost = "/",
) -> None:
    """Alter a queue: all changes or none."""
    body = {"arguments": parse_json(arguments)}
    body |= {"name": new_name} if new_name else {}
    body |= {"exclusive": False} if shared else {}
    with open_session(context) as session:
        session.client.patch("queues", vhost, name, body=body)


def reroute_queue(
    context: typer.Context,
    name: Name,
    to: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Queue of another broker; without a URI the queue moves back."),
    ] = None,
    vhost: VirtualHost = "/",
) -> None:
    """Move the flow of a queue to another broker, or back, while its clients stay connected."""
    with open_session(context) as session:
        session.client.post("queues", vhost, name, "reroute", body={"to": to})


def change_members(
    context: typer.Context,
    name: Name,
    members: Annotated[
        str,
        typer.Argument(metavar="JSON", help='Members, such as ["q1", {"to": "q2", "weight": 3}].'),
    ],
    pins: Annotated[
        str, typer.Option(metavar="JSON", help='Values of the key with their members, such as {"k": "q1"}.')
    ] = "{}",
    vhost: VirtualHost = "/",
) -> None:
    """Replace the members and pinned values of a partitioned queue, which may be in use."""
    body = {"members": parse_json(members), "pins": parse_json(pins)}
    with open_session(context) as session:
        session.client.put("partitioned", vhost, name, body=body)


_TOO_DEEP: Final = object()


def parse_json(text: str, name: str = "") -> Any:
    """Return the value of a JSON text, which refusals call `name`, or else by its content.

    Raises:
        typer.BadParameter: the text is not JSON, or has more levels than the broker's HTTP API takes.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{name or text} is not JSON: {error}") from error
    except RecursionError:  # some 900 levels
        value = _TOO_DEEP
    if value is _TOO_DEEP or _levels_of(value) > LEVELS_MAX:
        raise typer.BadParameter(f"{name or 'the JSON text'} is nested more than {LEVELS_MAX} levels deep")
    return value


def _levels_of(value: object) -> int:
    """Return how many objects and lists a JSON value has within each other at most."""
    levels = 0
    values = [value]
    while containers := [each for each in values if isinstance(each, (dict, list))]:
        levels += 1
        values = [item for each in containers for item in (each.values() if isinstance(each, dict) else each)]
    return levels


def delete_queue(
    context: typer.Context,
    name: Name,
    if_empty: Annotated[bool, typer.Option("--if-empty", help="Only if the queue has no messages.")] = False,
    if_unused: Annotated[
        bool, typer.Option("--if-unused", help="Only if the queue has no consumers.")
    ] = False,
    vhost: VirtualHost = "/",
) -> None:
    """Delete a queue with its messages."""
    conditions = {"if_empty": if_empty, "if_unused": if_unused}
    query = {condition: "true" for condition, wanted in conditions.items() if wanted}
    with open_session(context) as session:
        session.client.delete("queues", vhost, name, **query)


def purge_queue(context: typer.Context, name: Name, vhost: VirtualHost = "/") -> None:
    """Purge the ready messages of a queue."""
    with open_session(context) as session:
        session.client.delete("queues", vhost, name, "contents")


Enqueue = Annotated[bool, typer.Option("--enqueue", help="Only enqueue.")]
Dequeue = Annotated[bool, typer.Option("--dequeue", help="Only dequeue.")]


def stop_queue(
    context: typer.Context,
    name: Name,
    enqueue: Enqueue = False,
    dequeue: Dequeue = False,
    vhost: VirtualHost = "/",
) -> None:
    """Stop a queue, so that publishers are refused and consumers get no messages."""
    _switch(context, vhost, name, "stop", enqueue, dequeue)


def start_queue(
    context: typer.Context,
    name: Name,
    enqueue: Enqueue = False,
    dequeue: Dequeue = False,
    vhost: VirtualHost = "/",
) -> None:
    """Start a stopped queue."""
    _switch(context, vhost, name, "start", enqueue, dequeue)


def _switch(context: typer.Context, vhost: str, name: str, what: str, enqueue: bool, dequeue: bool) -> None:
    with open_session(context) as session:
        for operation, wanted in (("enqueue", enqueue), ("dequeue", dequeue)):
            if wanted or enqueue == dequeue:
                session.client.post("queues", vhost, name, "actions", body={"action": f"{what}-{operation}"})


def close_connection(
    context: typer.Context,
    name: Name,
    reason: Annotated[str, typer.Argument(metavar="REASON", help="Reason that the client reads.")],
) -> None:
    """Close a connection."""
    with open_session(context) as session:
        session.client.delete("connections", name, reason=reason)


def export_definitions(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to write; - is standard output.")] = "-",
    vhost: OnlyVirtualHost = None,
    product: Annotated[
        str, typer.Option("--for", metavar="PRODUCT", help="rabbitmq: leave out what RabbitMQ refuses.")
    ] = "amqpd",
) -> None:
    """Write the definitions, that is everything but messages, to a file, as RabbitMQ's JSON."""
    with open_session(context) as session:
        query = {} if product == "amqpd" else {"for": product}
        document = session.client.get("definitions", *([] if vhost is None else [vhost]), **query)
        for line in document.get("left_out", []):
            typer.echo(f"left out: {line}", err=True)
        written = json.dumps(document, indent=2) + "\n"
        if file == "-":
            sys.stdout.write(written)
            return
        private = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # the file has password hashes
        with open(private, "w", encoding="utf-8") as stream:
            stream.write(written)


def import_definitions(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to read; - is standard input.")],
    vhost: OnlyVirtualHost = None,
    skip_unsupported: Annotated[
        bool, typer.Option("--skip-unsupported", help="Pass over what amqpd does not have, and list it.")
    ] = False,
) -> None:
    """Import definitions from a file: all of them, or none and a line for each wrong object."""
    with open_session(context) as session:
        name = "standard input" if file == "-" else file
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise typer.BadParameter(f"{name} is not valid UTF-8 at byte {error.start}") from error
        document = parse_json(text, name)
        query = {"unsupported": "skip"} if skip_unsupported else {}
        path = [] if vhost is None else [vhost]
        answer = session.client.post("definitions", *path, body=document, **query)
        for line in answer["skipped"] if skip_unsupported else []:
            typer.echo(f"passed over: {line}", err=True)


COMMANDS: Final = (
    add_vhost,
    delete_vhost,
    declare_queue,
    alter_queue,
    change_members,
    reroute_queue,
    delete_queue,
    purge_queue,
    stop_queue,
    start_queue,
    close_connection,
    export_definitions,
    import_definitions,
)
