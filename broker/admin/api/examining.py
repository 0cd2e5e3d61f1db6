"""Messages of a queue, looked at where they are: counted, listed, one by its place or its number. [amqpd]

A list shows what is ready, in order, and leaves everything as it is. What comes meanwhile is not in it.
"""

import json
from contextlib import aclosing
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response

from broker.adapters.server import Server
from broker.admin.api.errors import not_found
from broker.admin.api.management import Managed
from broker.admin.api.messages import COUNT_MAX, sieve_of
from broker.admin.api.paths import Name
from broker.admin.api.queues import readable
from broker.admin.api.ready import ready_entries
from broker.admin.api.showing import BYTES_MAX, shown_message
from broker.admin.api.visitor import Asker
from broker.core.entry import QueueEntry
from broker.core.queue import Queue

USUAL_COUNT: Final = 100
USUAL_BYTES: Final = 50_000  # of a body that are shown

Selected = Annotated[str, Query()]
Truncated = Annotated[int, Query(ge=0, le=BYTES_MAX)]

router = APIRouter(tags=["messages"])


@router.get("/queues/{vhost}/{name}/messages")
async def list_messages(
    management: Managed,
    visitor: Asker,
    vhost: Name,
    name: Name,
    selector: Selected = "",
    begin: Annotated[int, Query(alias="from", ge=0)] = 0,
    count: Annotated[int, Query(ge=1, le=COUNT_MAX)] = USUAL_COUNT,
    truncate: Truncated = USUAL_BYTES,
) -> Response:
    """Messages in the order of the queue, those only for which the selector is true, from a place on.

    Places count from 0. `next` is the place to go on from; null at the end.
    """
    found, queue = readable(visitor, vhost, name)
    sieve = sieve_of({"selector": selector}, found.store)
    written: list[str] = []
    place, size, following = -1, 0, None
    async with aclosing(ready_entries(queue, sieve)) as entries:
        async for entry in entries:
            place += 1
            if place < begin:
                continue
            if len(written) == count or size > BYTES_MAX:
                following = place
                break
            shown = {"place": place} | described(management.server, queue, entry, truncate)
            written.append(json.dumps(shown))
            size += len(written[-1])
    content = f'{{"messages":[{",".join(written)}],"next":{json.dumps(following)}}}'
    return Response(content, media_type="application/json")


@router.get("/queues/{vhost}/{name}/messages/count")
async def count_messages(visitor: Asker, vhost: Name, name: Name, selector: Selected = "") -> JSONResponse:
    """How many messages are ready, or for how many of them the selector is true."""
    found, queue = readable(visitor, vhost, name)
    sieve = sieve_of({"selector": selector}, found.store)
    count = int(queue.ready)
    if sieve is not None:
        count = 0
        async with aclosing(ready_entries(queue, sieve)) as entries:
            async for _ in entries:
                count += 1
    return JSONResponse({"count": count, "empty": count == 0})


@router.get("/queues/{vhost}/{name}/messages/{number}")
async def get_message(
    management: Managed,
    visitor: Asker,
    vhost: Name,
    name: Name,
    number: Name,
    truncate: Truncated = USUAL_BYTES,
) -> JSONResponse:
    """The ready message with this id."""
    _, queue = readable(visitor, vhost, name)
    async with aclosing(ready_entries(queue, None)) as entries:
        async for entry in entries:
            if id_of(queue, entry) == number:
                return JSONResponse(described(management.server, queue, entry, truncate))
    raise not_found(f"no message '{number}' is ready in queue '{name}' in vhost '{vhost}'")


def id_of(queue: Queue, entry: QueueEntry) -> str:
    """What tells a message of a queue from all others, as long as it is there.

    It is its number in the log, or else its turn in the queue: what the log has not does not outlive that.
    """
    sequence = int(entry.message.sequence)
    return f"log-{sequence}" if sequence > 0 else f"mem-{queue.entries.arrival(entry)}"


def described(server: Server, queue: Queue, entry: QueueEntry, truncate: int) -> dict[str, Any]:
    """A message that is where it is."""
    found = shown_message(server, queue, entry, 0, "auto", truncate)
    del found["message_count"]
    return {"id": id_of(queue, entry), "delivery_count": int(entry.delivery_count)} | found
