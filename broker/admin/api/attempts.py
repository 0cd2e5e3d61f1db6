"""Attempts at partitions of a batch for a staged sink: what tasks write before it is committed.

`broker/admin/api/sinks.py` says how it goes.
"""

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from broker.adapters.amqp091.rows import Checker, stored
from broker.admin.api.answers import JSONResponse
from broker.admin.api.body import OF_MESSAGES_MAX, Body, read_body
from broker.admin.api.durable import durable, on_disk
from broker.admin.api.errors import ApiError, bad_request, not_found
from broker.admin.api.gates import gate
from broker.admin.api.management import Managed, Management
from broker.admin.api.paths import Name
from broker.admin.api.publishing import content_of, payload_of, properties_of
from broker.admin.api.sink_access import (
    NUMBER_MAX,
    attached,
    check_checkpoint,
    checker_of,
    conflict,
    count,
    owned,
)
from broker.admin.api.slices import Slices
from broker.admin.api.visitor import Asker
from broker.admin.fields import table, text
from broker.admin.json_reading import JsonError, read_json
from broker.core.errors import PreconditionFailed
from broker.core.message import Message
from protocol.streams.chunk import Chunk, ChunkDamagedError, ChunkWriter
from protocol.streams.rows import columns_of

BODY_MAX: Final = 8 * 2**20  # of a request with rows: its chunks are appended in one step
ROWS_MAX: Final = 1000  # of a chunk: they are published in one step

router = APIRouter(tags=["staged sinks"])


@router.post("/staged-sinks/{vhost}/{query}/attempts")
async def begin_attempt(
    management: Managed, visitor: Asker, vhost: Name, query: Name, body: Body
) -> JSONResponse:
    """Begin an attempt at one partition of a batch."""
    sink = attached(management, visitor, vhost, query, body)
    batch, partition = count(body, "batch"), count(body, "partition")
    check_checkpoint(sink, body)
    if batch <= sink.last:
        return JSONResponse({"attempt": None})
    management.store.require()
    attempt = int(sink.begin(batch, partition).number)
    await durable(management.store)  # else another one might get its number after a restart
    return JSONResponse({"attempt": attempt})


@router.post("/staged-sinks/{vhost}/{query}/attempts/{attempt}/rows")
async def add_rows(
    request: Request,
    management: Managed,
    visitor: Asker,
    vhost: Name,
    query: Name,
    attempt: int,
    start: Annotated[
        int,
        Query(alias="from", ge=0, lt=NUMBER_MAX, description="Number of rows that the attempt has already."),
    ],
) -> JSONResponse:
    """Add rows to an attempt: all rows of the request or none. The answer comes when they are on disk."""
    sink = owned(management, visitor, vhost, query)
    if request.headers.get("content-type", "").partition(";")[0].strip() == "application/json":
        content = _chunks_of(management, await read_body(request, OF_MESSAGES_MAX))
    else:
        content = await read_body(request, BODY_MAX)
    chunks = await _checked(content, checker_of(management, visitor, sink))
    rows = sum(size for _, size in chunks)
    shortage = management.server.shortage.reason
    if shortage:
        raise ApiError(503, "service_unavailable", f"publishers wait: the broker is {shortage}")
    management.store.require()
    found = sink.attempts.get(attempt)
    if found is None:
        raise not_found(f"{sink.where()} has no attempt {attempt} that rows may be added to")
    if start == found.rows:
        messages = [message for message, _ in chunks]
        trouble = await on_disk(lambda done: found.add(messages, done))
        if trouble:
            where = f"attempt {attempt} of {sink.where()}"
            raise ApiError(503, "service_unavailable", f"{where} has not got these rows: {trouble}")
    elif start + rows == found.rows:  # it was done, and its answer was lost
        await durable(management.store)
    else:
        raise conflict(f"attempt {attempt} of {sink.where()} has {found.rows} rows, not {start}")
    return JSONResponse({"rows": start + rows})


@router.delete("/staged-sinks/{vhost}/{query}/attempts/{attempt}", status_code=204)
async def drop_attempt(
    management: Managed, visitor: Asker, vhost: Name, query: Name, attempt: int
) -> Response:
    """Delete an attempt that is not committed."""
    sink = owned(management, visitor, vhost, query)
    async with gate(sink):
        found = sink.attempts.get(attempt)
        if found is None:
            raise not_found(f"{sink.where()} has no attempt {attempt} that is not committed")
        management.store.require()
        sink.drop([found])
    await durable(management.store)
    return Response(status_code=204)


async def _checked(content: bytes, checker: Checker) -> list[tuple[Message, int]]:
    """The chunks of a request as they are stored, and how many rows each has. Raises what `check` does."""
    slices = Slices()
    found: list[tuple[Message, int]] = []
    position = 0
    try:
        while position < len(content):
            chunk = Chunk(content, position)
            if chunk.rows > ROWS_MAX:
                raise bad_request(f"the chunk at {position} has {chunk.rows} rows, at most {ROWS_MAX}")
            chunk.check()
            checker.check(chunk)
            end = position + chunk.header.size
            found.append((stored(content[position:end], chunk.rows), int(chunk.rows)))
            position = end
            await slices.breathe()
    except ChunkDamagedError as error:
        raise bad_request(f"rows come in chunks: {error}") from error
    if not found:
        raise bad_request("there are no rows")
    return found


def _chunks_of(management: Management, content: bytes) -> bytes:
    """Chunks of messages that came as JSON. Raises ApiError, PreconditionFailed."""
    try:
        body = read_json(content)
    except JsonError as error:
        raise bad_request(f"not_json: {error}") from error
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        raise bad_request("'messages' is not a list of objects")
    writer = ChunkWriter()
    chunks: list[bytes] = []
    for number, each in enumerate(messages):
        try:
            payload = payload_of(each, int(management.server.body_bytes_max))
            properties = properties_of(table(each, "properties"))
            frames = content_of(properties, payload, int(management.server.frame_max))
            exchange, key = text(each, "exchange").encode(), text(each, "routing_key").encode()
        except PreconditionFailed as error:
            raise PreconditionFailed(f"message {number}: {error.text}") from error
        kind, spelt, body_bytes = columns_of(frames)
        writer.add(0, kind, exchange, key, spelt, body_bytes)
        if writer.rows == ROWS_MAX:
            chunks.append(writer.take(0, 0))
    if writer.rows:
        chunks.append(writer.take(0, 0))
    return b"".join(chunks)
