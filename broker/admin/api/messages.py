"""Messages over HTTP, for tools and tests: looked at, taken, published. Not a way to move many of them."""

import base64
import contextlib
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from broker.adapters.access import QUEUE, READ
from broker.adapters.view091 import view_of
from broker.admin.api.body import Body, number, text
from broker.admin.api.durable import durable
from broker.admin.api.errors import bad_request
from broker.admin.api.management import Managed, Management
from broker.admin.api.paths import Name
from broker.admin.api.queues import existing_queue
from broker.admin.api.visitor import Asker
from broker.admin.json_values import shown
from broker.core.connection import Connection, Scheduler
from broker.core.consumer import QueueConsumer
from broker.core.consumer_target import ConsumerTarget
from broker.core.credit import Credit
from broker.core.entry import AVAILABLE, QueueEntry
from broker.core.queue import Queue
from broker.core.session import Session
from broker.core.view import PROPERTIES, MessageView
from protocol.amqp091.content import body as body_of

COUNT_MAX: Final = 10_000
BYTES_MAX: Final = 32 * 2**20  # of bodies in one answer; the first one always fits
SCANNED_MAX: Final = 100_000  # entries that are looked at to find some that are ready
SETTLES: Final = ("ack_requeue_false", "reject_requeue_false")
LEAVES: Final = ("ack_requeue_true", "reject_requeue_true")

router = APIRouter(tags=["messages"])


class _NoTurns(Scheduler):
    """Whoever takes messages one by one needs no turn."""

    def schedule(self, connection: Connection) -> None:
        """Nothing is to be delivered (Scheduler)."""


@router.post("/queues/{vhost}/{name}/get")
async def get_messages(
    management: Managed, visitor: Asker, vhost: Name, name: Name, body: Body
) -> JSONResponse:
    """Messages from the front of a queue.

    With ackmode `ack_requeue_true` or `reject_requeue_true` they are only looked at: order, counts and the
    mark `redelivered` stay as they are. With the other two they leave the queue, and it is on disk when this
    is answered.
    """
    found = visitor.vhost(vhost)
    queue = existing_queue(found, name)
    visitor.rights(found).require(READ, QUEUE, name)
    found.check_owner(queue, None)
    mode = text(body, "ackmode")
    if mode not in SETTLES + LEAVES:
        raise bad_request(f"ackmode '{mode}' is not known, allowed: {', '.join(LEAVES + SETTLES)}")
    count = number(body, "count")
    if not 0 < count <= COUNT_MAX:
        raise bad_request(f"count {count} is not from 1 to {COUNT_MAX}")
    encoding = text(body, "encoding", "auto")
    if encoding not in ("auto", "base64"):
        raise bad_request(f"encoding '{encoding}' is not known, allowed: auto, base64")
    limit = number(body, "truncate") if body.get("truncate") is not None else None
    if mode in LEAVES:
        entries, left = _front(queue, count), int(queue.ready)
        return JSONResponse(
            [_shown(management, entry, left - i - 1, encoding, limit) for i, entry in enumerate(entries)]
        )
    taken = _take(management, queue, count, mode, encoding, limit)
    await durable(management.store)
    return JSONResponse(taken)


def taker_of(queue: Queue) -> QueueConsumer:
    """Somebody who may own entries that are taken one by one."""
    return QueueConsumer(ConsumerTarget(Session(Connection(_NoTurns())), Credit()), queue)


def _front(queue: Queue, count: int) -> list[QueueEntry]:
    found: list[QueueEntry] = []
    size = 0
    for scanned, entry in enumerate(queue.entries):
        if entry.state == AVAILABLE:
            size += entry.message.size
            if found and size > BYTES_MAX:
                break
            found.append(entry)
        if len(found) >= count or scanned >= SCANNED_MAX:
            break
    return found


def _take(
    management: Management, queue: Queue, count: int, mode: str, encoding: str, limit: int | None
) -> list[dict[str, Any]]:
    consumer = taker_of(queue)
    taken: list[dict[str, Any]] = []
    size = 0
    while len(taken) < count and size < BYTES_MAX:
        entry = queue.get_one(consumer)
        if entry is None:
            break
        try:
            taken.append(_shown(management, entry, int(queue.ready), encoding, limit))
        except Exception:
            queue.release([entry], consumer)
            raise
        size += int(entry.message.size)
        if mode == "ack_requeue_false":
            queue.settle(entry)
        else:
            queue.discard(entry)
    return taken


def _shown(
    management: Management, entry: QueueEntry, left: int, encoding: str, limit: int | None
) -> dict[str, Any]:
    message = entry.message
    content = message.content if message.content is not None else management.store.load(message)
    payload = body_of(content)
    size = len(payload)
    payload = payload if limit is None else payload[:limit]
    how, what = "base64", base64.b64encode(payload).decode()
    if encoding == "auto":
        with contextlib.suppress(UnicodeDecodeError):
            how, what = "string", payload.decode()
    return {
        "payload_bytes": size,
        "redelivered": bool(entry.redelivered),
        "exchange": message.address.exchange,
        "routing_key": shown(message.address.routing_key),
        "message_count": left,
        "properties": _properties(view_of(message, management.store)),
        "payload": what,
        "payload_encoding": how,
    }


def _properties(view: MessageView) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in PROPERTIES:
        value = view.property(name)
        if value is not None:
            found[name] = value // 1000 if name == "timestamp" and isinstance(value, int) else shown(value)
    headers = view.headers()
    if headers:
        found["headers"] = shown(headers)
    return found
