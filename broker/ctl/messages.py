"""Messages: published, got, watched; in a queue listed, counted, moved, edited, redriven; delayed ones."""

import base64
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from broker.ctl.output import Output, print_json, printable
from broker.ctl.session import REFUSED, VirtualHost, end_command, open_session, parse_json, parse_object
from broker.progress import show_progress

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
Selector = Annotated[
    str, typer.Option("--selector", metavar="CONDITION", help="Messages that meet this condition: level > 3.")
]
Ids = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="ID", help="Message with this id; may be given several times."),
]
All = Annotated[bool, typer.Option("--all", help="All ready messages.")]
Dead = Annotated[
    bool,
    typer.Option("--dead-letter", help="Messages that wait to be dead-lettered."),
]
Limit = Annotated[int, typer.Option(min=0, help="Number of messages at most; 0: all.")]
DEAD_LETTER: Final = "dead-letter"
AT_ONCE: Final = 2000  # messages of an operation, which changes all of them or none
LimitOfOne = Annotated[int, typer.Option(min=1, max=AT_ONCE, help="Number of messages at most.")]
ToQueue = Annotated[str, typer.Option("--queue", metavar="NAME", help="Queue that gets the messages.")]
ToExchange = Annotated[
    str | None, typer.Option("--exchange", metavar="NAME", help="Exchange that routes the messages.")
]
Key = Annotated[
    str | None,
    typer.Option(
        "--routing-key",
        metavar="KEY",
        help="Routing key for --exchange; each message keeps its own key by default.",
    ),
]

COLUMNS: Final = (
    "place",
    "id",
    "state",
    "exchange",
    "routing_key",
    "payload_bytes",
    "redelivered",
    "payload",
)
DELAYED: Final = ("id", "delivery_time", "exchange", "routing_key", "payload_bytes")
ACKMODES: Final = ("ack_requeue_true", "reject_requeue_true", "ack_requeue_false", "reject_requeue_false")
WHOLE: Final = 2**20  # bytes of a body that are shown unless another number is given

Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the message, from list_delayed.")]
Truncate = Annotated[int, typer.Option(min=0, metavar="BYTES", help="Bytes of a body to show at most.")]
DEATH: Final = ("dead_letter.reason", "dead_letter.waits_for")


def publish(
    context: typer.Context,
    routing_key: Annotated[
        str, typer.Argument(metavar="ROUTING_KEY", help="Routing key; without --exchange the queue's name.")
    ],
    payload: Annotated[
        str | None, typer.Argument(metavar="[PAYLOAD]", help="Body; by default that of --file.")
    ] = None,
    exchange: Annotated[
        str, typer.Option("--exchange", metavar="NAME", help="Exchange; by default the default exchange.")
    ] = "amq.default",
    file: Annotated[
        str, typer.Option("--file", metavar="FILE", help="File with the body; - is standard input.")
    ] = "-",
    properties: Annotated[
        str, typer.Option("--properties", metavar="JSON", help='Properties, such as {"priority": 5}.')
    ] = '{"delivery_mode": 2}',
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="A header; may be given several times."),
    ] = None,
    vhost: VirtualHost = "/",
) -> None:
    """Publish a message, and wait until it is on disk. By default it is persistent."""
    given = parse_object(properties, "the properties")
    own = dict(_header(text) for text in headers or [])
    if own:
        given["headers"] = {**given.get("headers", {}), **own}
    with open_session(context) as session:
        body: dict[str, Any] = {"routing_key": routing_key, "properties": given}
        body |= _payload(payload, file)
        answer = session.client.post("exchanges", vhost, exchange or "amq.default", "publish", body=body)
        if not answer["routed"]:
            if answer.get("duplicate"):
                typer.echo("amqpctl: all queues had the message before (deduplication)", err=True)
                return
            where = "" if exchange in ("", "amq.default") else f"from exchange '{exchange}' "
            raise end_command(
                f"no queue took the message {where}with routing key '{routing_key}' in vhost '{vhost}'; "
                "'amqpctl list_queues' and 'amqpctl list_bindings' show where messages can go",
                REFUSED,
            )


def _header(text: str) -> tuple[str, object]:
    """Return the name and the value of a header: a number or a truth value if it looks like one."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise typer.BadParameter(f"header '{text}' is not NAME=VALUE")
    try:
        read = json.loads(value)
    except ValueError:
        read = value
    return name, read if isinstance(read, (int, float, bool)) else value


def _payload(payload: str | None, file: str) -> dict[str, str]:
    """Return the body of a message in the form of the HTTP API. Raises OSError."""
    if payload is not None:
        return {"payload": payload, "payload_encoding": "string"}
    content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    return {"payload": base64.b64encode(content).decode(), "payload_encoding": "base64"}


def get(
    context: typer.Context,
    queue: Queue,
    count: Annotated[int, typer.Option("--count", min=1, max=10_000, help="Number of messages.")] = 1,
    ackmode: Annotated[
        str, typer.Option("--ackmode", help=f"{', '.join(ACKMODES)}; the last two take the messages.")
    ] = ACKMODES[0],
    selector: Selector = "",
    truncate: Truncate = WHOLE,
    vhost: VirtualHost = "/",
) -> None:
    """Get messages from the front of a queue; the messages stay there unless --ackmode takes them."""
    body = {"count": count, "ackmode": ackmode, "encoding": "auto", "truncate": truncate}
    body |= {"selector": selector} if selector else {}
    with open_session(context) as session:
        answer = session.client.post("queues", vhost, queue, "get", body=body)
        _show_messages(session.output, answer)


def peek(
    context: typer.Context,
    queue: Queue,
    count: Annotated[int, typer.Option("--count", min=1, max=10_000, help="Number of messages.")] = 1,
    first: Annotated[str, typer.Option("--from", metavar="N", help="Place of the first message.")] = "0",
    selector: Selector = "",
    truncate: Truncate = WHOLE,
    vhost: VirtualHost = "/",
) -> None:
    """Show ready messages with properties and bodies, and change nothing."""
    query = {"state": "ready", "from": first, "count": str(count), "truncate": str(truncate)}
    with open_session(context) as session:
        answer = session.client.get("queues", vhost, queue, "messages", selector=selector, **query)
        _show_messages(session.output, answer["messages"])


def tail(
    context: typer.Context,
    queue: Queue,
    first: Annotated[
        str, typer.Option("--from", help="first, last or next: next shows later arrivals only.")
    ] = "next",
    count: Annotated[int, typer.Option("--count", min=0, help="End after so many messages; 0: never.")] = 0,
    selector: Selector = "",
    truncate: Truncate = WHOLE,
    vhost: VirtualHost = "/",
) -> None:
    """Show the messages of a queue as they arrive, and take none. Ctrl-C ends the command."""
    query = {"from": first, "selector": selector, "truncate": str(truncate)}
    seen = 0
    try:
        with open_session(context) as session:
            for message in session.client.follow("queues", vhost, queue, "messages", "follow", **query):
                if message is None:
                    continue
                if session.output.is_json:
                    sys.stdout.write(json.dumps(message) + "\n")  # a line each, as the list has no end
                elif "error" in message:
                    typer.echo(f"amqpctl: a message cannot be shown: {message['error']}", err=True)
                else:
                    _show_messages(session.output, [message])
                sys.stdout.flush()
                seen += 1
                if seen == count:
                    return
            raise end_command(f"queue '{queue}' in vhost '{vhost}' was deleted", REFUSED)
    except KeyboardInterrupt:
        return


def _show_messages(output: Output, messages: list[dict[str, Any]]) -> None:
    """Print messages: in a table of CSV or TSV a line each, for people a paragraph each."""
    if output.is_json:
        print_json(messages)
    elif output.form in ("csv", "tsv"):
        output.show(messages, ("exchange", "routing_key", "redelivered", "properties", "payload"))
    else:
        for message in messages:
            sys.stdout.write("\n".join(_paragraph(message)) + "\n\n")


def _paragraph(message: dict[str, Any]) -> list[str]:
    """Return the lines that show a message to people."""
    name = message.get("id") or message["properties"].get("message_id", "")
    about = [message["state"]] if "state" in message else []
    about += ["redelivered"] if message["redelivered"] else []
    lines = [
        f"message {printable(name)}".rstrip()
        + f": {', '.join([*about, str(message['payload_bytes']) + ' bytes'])}",
        f"  exchange: {printable(message['exchange']) or '(default)'}",
        f"  routing key: {printable(message['routing_key'])}",
    ]
    lines += [
        f"  {name}: {printable(value) if isinstance(value, str) else json.dumps(value)}"
        for name, value in message["properties"].items()
    ]
    encoding = "" if message["payload_encoding"] == "string" else f" ({message['payload_encoding']})"
    text = "\n".join(printable(line) for line in message["payload"].split("\n"))
    return [*lines, f"  body{encoding}:", text]


def list_messages(
    context: typer.Context,
    queue: Queue,
    selector: Selector = "",
    first: Annotated[
        str,
        typer.Option("--from", metavar="N", help="Place of the first message, or `next` of an earlier list."),
    ] = "0",
    state: Annotated[
        str,
        typer.Option(
            "--state", help="ready, unacknowledged, waiting or dead-letter; all of them unless given."
        ),
    ] = "",
    count: Annotated[int, typer.Option(help="Number of messages at most.")] = 20,
    vhost: VirtualHost = "/",
) -> None:
    """List the messages of a queue in order, unacknowledged ones too, without changing them."""
    query = {"selector": selector, "state": state, "from": first, "count": str(count), "truncate": "60"}
    with open_session(context) as session:
        answer = session.client.get("queues", vhost, queue, "messages", **query)
        if session.output.is_json:
            print_json(answer["messages"])
        else:
            session.output.show(answer["messages"], _columns(answer["messages"]))


def _columns(messages: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the columns of a table, with the reason of death if some messages wait to be dead-lettered."""
    died = any("dead_letter" in message for message in messages)
    return (*COLUMNS[:-1], *DEATH, COLUMNS[-1]) if died else COLUMNS


def count_messages(
    context: typer.Context,
    queue: Queue,
    selector: Selector = "",
    dead: Dead = False,
    vhost: VirtualHost = "/",
) -> None:
    """Count the messages that are ready, or that wait to be dead-lettered."""
    query = {"selector": selector} | ({"state": DEAD_LETTER} if dead else {})
    with open_session(context) as session:
        answer = session.client.get("queues", vhost, queue, "messages", "count", **query)
        typer.echo(answer["count"])


def delete_messages(
    context: typer.Context,
    queue: Queue,
    selector: Selector = "",
    ids: Ids = None,
    everything: All = False,
    dead: Dead = False,
    limit: Limit = 0,
    vhost: VirtualHost = "/",
) -> None:
    """Delete messages without dead-lettering them."""
    _operate(context, vhost, queue, "delete", _which(selector, ids, everything, dead), limit)


def move_messages(
    context: typer.Context,
    queue: Queue,
    to_queue: ToQueue = "",
    to_exchange: ToExchange = None,
    key: Key = None,
    selector: Selector = "",
    ids: Ids = None,
    everything: All = False,
    dead: Dead = False,
    limit: Limit = 0,
    vhost: VirtualHost = "/",
) -> None:
    """Move messages to another queue, or through an exchange."""
    body = _which(selector, ids, everything, dead) | _to(to_queue, to_exchange, key)
    _operate(context, vhost, queue, "move", body, limit)


def copy_messages(
    context: typer.Context,
    queue: Queue,
    to_queue: ToQueue = "",
    to_exchange: ToExchange = None,
    key: Key = None,
    selector: Selector = "",
    ids: Ids = None,
    everything: All = False,
    dead: Dead = False,
    limit: LimitOfOne = AT_ONCE,
    vhost: VirtualHost = "/",
) -> None:
    """Copy the first messages to another queue, or through an exchange, in one operation."""
    body = _which(selector, ids, everything, dead) | _to(to_queue, to_exchange, key)
    _operate_once(context, vhost, queue, "copy", body, limit)


def edit_messages(
    context: typer.Context,
    queue: Queue,
    properties: Annotated[
        str,
        typer.Option(
            metavar="JSON", help='Properties to replace, such as {"priority": 5, "headers": {"a": null}}.'
        ),
    ] = "{}",
    payload: Annotated[str | None, typer.Option(help="New body.")] = None,
    selector: Selector = "",
    ids: Ids = None,
    everything: All = False,
    dead: Dead = False,
    limit: LimitOfOne = AT_ONCE,
    vhost: VirtualHost = "/",
) -> None:
    """Edit messages in one operation; edited messages are enqueued like new ones."""
    body = _which(selector, ids, everything, dead) | {"properties": parse_json(properties)}
    body |= {} if payload is None else {"payload": payload}
    _operate_once(context, vhost, queue, "edit", body, limit)


def redrive_messages(
    context: typer.Context,
    queue: Queue,
    via_exchange: Annotated[
        bool, typer.Option("--via-exchange", help="Return the messages through their first exchange.")
    ] = False,
    selector: Selector = "",
    ids: Ids = None,
    everything: All = False,
    dead: Dead = False,
    limit: Limit = 0,
    vhost: VirtualHost = "/",
) -> None:
    """Return dead letters to the queue in which they died first."""
    body = _which(selector, ids, everything, dead) | {"via": "exchange" if via_exchange else "queue"}
    _operate(context, vhost, queue, "redrive", body, limit)


def move(
    context: typer.Context,
    queue: Queue,
    to_queue: Annotated[str, typer.Argument(metavar="TO", help="Name of the queue that gets the messages.")],
    selector: Selector = "",
    limit: Limit = 0,
    vhost: VirtualHost = "/",
) -> None:
    """Move the ready messages of a queue to another queue; print their number."""
    move_messages(
        context, queue, to_queue, selector=selector, everything=not selector, limit=limit, vhost=vhost
    )


def redrive(
    context: typer.Context, queue: Queue, selector: Selector = "", limit: Limit = 0, vhost: VirtualHost = "/"
) -> None:
    """Return the dead letters in a queue to the queues in which they died first; print their number."""
    redrive_messages(context, queue, selector=selector, everything=not selector, limit=limit, vhost=vhost)


def _which(selector: str, ids: list[str] | None, everything: bool, dead: bool) -> dict[str, Any]:
    chosen: dict[str, Any] = {"selector": selector} if selector else {}
    chosen |= {"ids": ids} if ids else {}
    chosen |= {"all": True} if everything else {}
    return chosen | ({"state": DEAD_LETTER} if dead else {})


def _to(queue: str, exchange: str | None, key: str | None) -> dict[str, Any]:
    to: dict[str, Any] = {"queue": queue} if queue else {}
    to |= {} if exchange is None else {"exchange": exchange}
    return {"to": to | ({} if key is None else {"routing_key": key})}


def _operate(
    context: typer.Context, vhost: str, queue: str, what: str, body: dict[str, Any], limit: int
) -> None:
    """Repeat an operation until the limit is reached or no message is left; print the number of messages.

    Not more messages than the queue has at the beginning, as a moved message may return to the queue.
    """
    processed = 0
    with open_session(context) as session:
        query = {"state": DEAD_LETTER} if "state" in body else {}
        limit = limit or session.client.get("queues", vhost, queue, "messages", "count", **query)["count"]
        more = True
        with show_progress(what) as advance:
            while more:
                step = {"limit": max(1, min(AT_ONCE, limit - processed))}
                answer = session.client.post("queues", vhost, queue, "messages", what, body=body | step)
                processed += answer["done"]
                advance(processed, limit)
                more = answer["more"] and processed < limit
        typer.echo(processed)


def _operate_once(
    context: typer.Context, vhost: str, queue: str, what: str, body: dict[str, Any], limit: int
) -> None:
    """Run an operation once, as a second run would select the same messages; print the number of messages."""
    with open_session(context) as session:
        step = {"limit": limit}
        answer = session.client.post("queues", vhost, queue, "messages", what, body=body | step)
        typer.echo(answer["done"])
        if answer["more"] and answer["done"] < limit:
            typer.echo("amqpctl: messages are left: one operation takes no more content", err=True)


def list_delayed(
    context: typer.Context,
    queue: Queue,
    page: Annotated[int, typer.Option("--page", min=1, help="Number of the page, of 100 messages each.")] = 1,
    vhost: VirtualHost = "/",
) -> None:
    """List the delayed messages of a queue, soonest first."""
    with open_session(context) as session:
        answer = session.client.get("queues", vhost, queue, "delayed", page=str(page))
        session.output.show(answer["items"], DELAYED)


def cancel_delayed(context: typer.Context, queue: Queue, place: Id, vhost: VirtualHost = "/") -> None:
    """Cancel a delayed message."""
    with open_session(context) as session:
        session.client.delete("queues", vhost, queue, "delayed", place)


def move_delayed(
    context: typer.Context,
    queue: Queue,
    place: Id,
    delay: Annotated[int | None, typer.Option("--delay", help="New delay in milliseconds from now.")] = None,
    at: Annotated[int | None, typer.Option("--at", help="New date in milliseconds since 1970.")] = None,
    vhost: VirtualHost = "/",
) -> None:
    """Change the date of a delayed message, which may get another id."""
    asked = {"delay": delay, "delivery_time": at}
    with open_session(context) as session:
        body = {field: value for field, value in asked.items() if value is not None}
        session.client.put("queues", vhost, queue, "delayed", place, body=body)


COMMANDS: Final = (
    publish,
    get,
    peek,
    tail,
    move,
    redrive,
    list_messages,
    count_messages,
    delete_messages,
    move_messages,
    copy_messages,
    edit_messages,
    redrive_messages,
    list_delayed,
    cancel_delayed,
    move_delayed,
)
