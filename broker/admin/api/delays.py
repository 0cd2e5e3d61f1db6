"""Delayed messages of queues: list, cancel, and move to another date. [amqpd]"""

from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

from broker.admin.api.answers import ApiError, JSONResponse, await_sync, bad_request, encode_json, not_found
from broker.admin.api.lists import Options, answer_with_page, find_page_start, select_columns
from broker.admin.api.management import Managed
from broker.admin.api.queues import find_readable_queue
from broker.admin.api.requests import Asker, Body, Name
from broker.admin.api.slices import Slices
from broker.admin.json_documents import Fields, read_number
from broker.core.arguments.rule import MILLISECONDS_MAX
from broker.core.message import Message
from broker.core.publishing.delay import QueueDelays
from broker.core.queues.queue import Queue
from broker.core.schedule import HeldMessage, soonest_first
from broker.core.values import to_json

CHANGED: Final = 204
LOOKED_AT_ONCE: Final = 1000

router = APIRouter(tags=["queues"])


@router.get("/queues/{vhost}/{name}/delayed")
async def list_delayed(visitor: Asker, options: Options, vhost: Name, name: Name) -> Response:
    """Return a page of the delayed messages of a queue, soonest first."""
    _, queue = find_readable_queue(visitor, vhost, name)
    delays = _delays(queue)
    total = 0 if delays is None else len(delays)
    first = find_page_start(options, total)
    slices = Slices()
    rows: list[bytes] = []
    for position, held in enumerate(soonest_first([] if delays is None else delays.places())):
        if position >= first + options.page_size:
            break
        if position >= first and held.message is not None:
            rows.append(encode_json(select_columns(_shown(held, held.message), options.columns)))
        await slices.breathe()
    return answer_with_page(rows, options, total, total)


@router.delete("/queues/{vhost}/{name}/delayed/{place}", status_code=CHANGED)
async def cancel_delayed(
    management: Managed, visitor: Asker, vhost: Name, name: Name, place: Name
) -> Response:
    """Cancel a delayed message."""
    _, queue = find_readable_queue(visitor, vhost, name)
    delays, held = await _find(queue, place)
    delays.drop(held)
    await await_sync(management.store)
    return Response(status_code=CHANGED)


@router.put("/queues/{vhost}/{name}/delayed/{place}")
async def move_delayed(
    management: Managed, visitor: Asker, vhost: Name, name: Name, place: Name, body: Body
) -> JSONResponse:
    """Change the date of a delayed message. The answer has the message with its new id."""
    virtual_host, queue = find_readable_queue(visitor, vhost, name)
    date = _date(body, virtual_host.schedule.date())
    delays, held = await _find(queue, place)
    moved = delays.move(held, date)
    if moved is None or moved.message is None:
        raise _absent(queue, place)
    answer = _shown(moved, moved.message)
    await await_sync(management.store)
    return JSONResponse(answer)


def _date(body: Fields, now: int) -> int:
    if ("delay" in body) == ("delivery_time" in body):
        raise bad_request("either delay or delivery_time is needed, in milliseconds")
    field, least, start = ("delay", 0, now) if "delay" in body else ("delivery_time", 1, 0)
    value = read_number(body, field)
    most = now + MILLISECONDS_MAX - start
    if not least <= value <= most:
        raise bad_request(f"'{field}' is {value}, not from {least} to {most}")
    return start + value


def _delays(queue: Queue) -> QueueDelays | None:
    delays = None if queue.limits is None else queue.limits.timetable
    return delays if isinstance(delays, QueueDelays) else None


async def _find(queue: Queue, place: str) -> tuple[QueueDelays, HeldMessage]:
    """Return the queue's delays and the delayed message with this id. Raises ApiError."""
    delays = _delays(queue)
    if delays is None:
        raise _absent(queue, place)
    slices = Slices()
    places = [held for heap in delays.places() for held in heap]
    for start in range(0, len(places), LOOKED_AT_ONCE):
        if queue.deleted:
            break
        for held in places[start : start + LOOKED_AT_ONCE]:
            message = held.message
            if message is not None and _id(held, message) == place:
                return delays, held
        await slices.breathe()
    raise _absent(queue, place)


def _absent(queue: Queue, place: str) -> ApiError:
    return not_found(f"no delayed message '{place}' in queue '{queue.name}' in vhost '{queue.vhost}'")


def _id(held: HeldMessage, message: Message) -> str:
    """Return the message's number in the log, or an id that no message has after a restart."""
    return str(message.sequence) if message.sequence > 0 else f"{held.date}-{held.number}"


def _shown(held: HeldMessage, message: Message) -> dict[str, Any]:
    return {
        "id": _id(held, message),
        "delivery_time": held.date,
        "exchange": message.address.exchange,
        "routing_key": to_json(message.address.routing_key),
        "payload_bytes": int(message.size),
        "priority": int(message.priority),
        "delivery_mode": 2 if message.persistent else 1,
    }
