"""Messages of a queue: listed, counted, deleted, moved, copied, edited or redriven."""

from typing import Annotated, Any, Final

import typer

from broker.ctl.objects import parse_json
from broker.ctl.output import print_json, show
from broker.ctl.session import VirtualHost, open_session

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
DEATH: Final = ("dead_letter.reason", "dead_letter.waits_for")


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
        if session.form == "json":
            print_json(answer["messages"])
        else:
            show(answer["messages"], _columns(answer["messages"]), session.form)


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
        while more:
            step = {"limit": max(1, min(AT_ONCE, limit - processed))}
            answer = session.client.post("queues", vhost, queue, "messages", what, body=body | step)
            processed += answer["done"]
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


COMMANDS: Final = (
    list_messages,
    count_messages,
    delete_messages,
    move_messages,
    copy_messages,
    edit_messages,
    redrive_messages,
)
