"""Virtual hosts, queues, exchanges, bindings, connections: made, changed, deleted; definitions: moved."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from broker.ctl.client import LONG_SECONDS, AbsentError
from broker.ctl.session import (
    REFUSED,
    Session,
    VirtualHost,
    end_command,
    open_session,
    parse_json,
    parse_object,
)
from broker.progress import show_progress

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the object.")]
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


def list_vhost_limits(
    context: typer.Context,
    vhost: Annotated[
        str, typer.Option("--vhost", "-p", metavar="NAME", help="Only the limits of this virtual host.")
    ] = "",
) -> None:
    """List the limits of virtual hosts."""
    with open_session(context) as session:
        rows = session.client.get("vhost-limits", *([vhost] if vhost else []))
        session.output.show(rows, ("vhost", "value"))


def set_vhost_limits(
    context: typer.Context,
    limits: Annotated[
        str,
        typer.Argument(metavar="JSON", help='Limits, such as {"max-connections": 100, "max-queues": 50}.'),
    ],
    vhost: VirtualHost = "/",
) -> None:
    """Set limits of a virtual host. A negative number removes a limit."""
    with open_session(context) as session:
        for name, value in parse_object(limits, "the limits").items():
            session.client.put("vhost-limits", vhost, name, body={"value": value})


def clear_vhost_limits(context: typer.Context, vhost: VirtualHost = "/") -> None:
    """Remove all limits of a virtual host."""
    with open_session(context) as session:
        for row in session.client.get("vhost-limits", vhost):
            for name in row["value"]:
                session.client.delete("vhost-limits", vhost, name)


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
    conditions = {"if-empty": if_empty, "if-unused": if_unused}
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


ObjectArguments = Annotated[str, typer.Option("--arguments", metavar="JSON", help="Arguments.")]


def declare_exchange(
    context: typer.Context,
    name: Name,
    kind: Annotated[
        str, typer.Option("--type", help="Type, such as direct, fanout, topic or headers.")
    ] = "direct",
    durable: Annotated[bool, typer.Option(help="Whether the exchange survives a restart.")] = True,
    auto_delete: Annotated[
        bool, typer.Option("--auto-delete", help="Delete the exchange with its last binding.")
    ] = False,
    internal: Annotated[
        bool, typer.Option("--internal", help="Take messages from other exchanges only.")
    ] = False,
    arguments: ObjectArguments = "{}",
    vhost: VirtualHost = "/",
) -> None:
    """Declare an exchange."""
    body = {
        "type": kind,
        "durable": durable,
        "auto_delete": auto_delete,
        "internal": internal,
        "arguments": parse_json(arguments),
    }
    with open_session(context) as session:
        session.client.put("exchanges", vhost, name, body=body)


def delete_exchange(
    context: typer.Context,
    name: Name,
    if_unused: Annotated[
        bool, typer.Option("--if-unused", help="Only if the exchange is the source of no binding.")
    ] = False,
    vhost: VirtualHost = "/",
) -> None:
    """Delete an exchange with its bindings."""
    query = {"if-unused": "true"} if if_unused else {}
    with open_session(context) as session:
        session.client.delete("exchanges", vhost, name, **query)


Source = Annotated[str, typer.Argument(metavar="SOURCE", help="Name of the exchange that routes.")]
Destination = Annotated[
    str, typer.Argument(metavar="DESTINATION", help="Name of the queue, or of the exchange.")
]
DestinationType = Annotated[str, typer.Option("--destination-type", help="queue or exchange.")]
RoutingKey = Annotated[str, typer.Option("--routing-key", metavar="KEY", help="Routing key of the binding.")]


def declare_binding(
    context: typer.Context,
    source: Source,
    destination: Destination,
    destination_type: DestinationType = "queue",
    routing_key: RoutingKey = "",
    arguments: ObjectArguments = "{}",
    vhost: VirtualHost = "/",
) -> None:
    """Bind a queue, or an exchange, to an exchange."""
    body = {"routing_key": routing_key, "arguments": parse_json(arguments)}
    kind = _kind_of(destination_type)
    with open_session(context) as session:
        session.client.post("bindings", vhost, "e", source, kind, destination, body=body)


def delete_binding(
    context: typer.Context,
    source: Source,
    destination: Destination,
    destination_type: DestinationType = "queue",
    routing_key: RoutingKey = "",
    arguments: ObjectArguments = "{}",
    vhost: VirtualHost = "/",
) -> None:
    """Delete the binding with this routing key and these arguments."""
    place = ("bindings", vhost, "e", source, _kind_of(destination_type), destination)
    wanted = (routing_key, parse_json(arguments))
    with open_session(context) as session:
        rows = session.client.get(*place)
        found = [row for row in rows if (row["routing_key"], row["arguments"]) == wanted]
        if not found:
            known = ", ".join(f"'{row['routing_key']}' {json.dumps(row['arguments'])}" for row in rows[:10])
            raise end_command(
                f"no binding with routing key '{routing_key}' and arguments {json.dumps(wanted[1])} from "
                f"exchange '{source}' to '{destination}' in vhost '{vhost}'; there are: {known or 'none'}",
                REFUSED,
            )
        session.client.delete(*place, found[0]["properties_key"])


def _kind_of(destination_type: str) -> str:
    """Return the letter for a kind of destination. Raises typer.BadParameter."""
    kinds = {"queue": "q", "q": "q", "exchange": "e", "e": "e"}
    if destination_type not in kinds:
        raise typer.BadParameter(f"destination type '{destination_type}' is neither queue nor exchange")
    return kinds[destination_type]


Reason = Annotated[str, typer.Argument(metavar="REASON", help="Reason that the client reads.")]


def close_connection(
    context: typer.Context,
    name: Name,
    reason: Reason,
) -> None:
    """Close a connection."""
    with open_session(context) as session:
        session.client.delete("connections", name, reason=reason)


def close_all_connections(
    context: typer.Context,
    reason: Reason,
    vhost: VirtualHost = "/",
    everywhere: Annotated[bool, typer.Option("--global", help="In all virtual hosts.")] = False,
    delay: Annotated[
        int,
        typer.Option("--per-connection-delay", min=0, metavar="MS", help="Pause after a connection."),
    ] = 0,
    limit: Annotated[int, typer.Option(min=0, help="Number of connections at most; 0: all.")] = 0,
) -> None:
    """Close the connections to a virtual host, or to all of them; print their number."""
    with open_session(context) as session:
        path = ("connections",) if everywhere else ("vhosts", vhost, "connections")
        names = [row["name"] for row in session.client.get(*path, columns="name")]
        _close(session, names[: limit or None], reason, delay / 1000)


def close_all_user_connections(
    context: typer.Context,
    user: Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")],
    reason: Reason,
) -> None:
    """Close all connections of a user; print their number."""
    with open_session(context) as session:
        rows = session.client.get("connections", "username", user, columns="name")
        session.client.delete("connections", "username", user, reason=reason)
        typer.echo(len(rows))


def _close(session: Session, names: list[str], reason: str, pause: float) -> None:
    """Close connections one by one, with a pause in seconds; pass over those that have ended meanwhile."""
    closed = 0
    with show_progress("close connections") as advance:
        for number, name in enumerate(names):
            if number:
                time.sleep(pause)
            try:
                session.client.delete("connections", name, reason=reason)
            except AbsentError:
                continue
            closed += 1
            advance(closed, len(names))
    typer.echo(closed)


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
        with show_progress("export"):
            path = [] if vhost is None else [vhost]
            session.client.patience = LONG_SECONDS
            document = session.client.get("definitions", *path, **query)
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
        session.client.patience = LONG_SECONDS
        with show_progress("import"):
            answer = session.client.post("definitions", *path, body=document, **query)
        for line in answer["skipped"] if skip_unsupported else []:
            typer.echo(f"passed over: {line}", err=True)


COMMANDS: Final = (
    add_vhost,
    delete_vhost,
    list_vhost_limits,
    set_vhost_limits,
    clear_vhost_limits,
    declare_queue,
    alter_queue,
    change_members,
    reroute_queue,
    delete_queue,
    purge_queue,
    stop_queue,
    start_queue,
    declare_exchange,
    delete_exchange,
    declare_binding,
    delete_binding,
    close_connection,
    close_all_connections,
    close_all_user_connections,
    export_definitions,
    import_definitions,
)
