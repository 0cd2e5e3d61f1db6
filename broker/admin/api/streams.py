"""Streams as programs read them in bulk: what there is, and chunks as they are stored. [amqpd]

A stream has partitions, one or several, from 0 on. Offsets are dense: from a to b there are b - a messages.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response, StreamingResponse

from broker.admin.api.durable import durable
from broker.admin.api.errors import ApiError, bad_request, not_found
from broker.admin.api.management import Managed
from broker.admin.api.paths import Name
from broker.admin.api.queues import readable
from broker.admin.api.slices import Slices
from broker.admin.api.visitor import Asker, Visitor
from broker.admin.shapes import shown_partitions
from broker.core.ports import StoredStream
from broker.core.streaming import QueueStream

CHUNKS: Final = "application/vnd.amqpd.chunks"

router = APIRouter(tags=["streams"])


@router.get("/streams/{vhost}/{name}")
async def get_stream(visitor: Asker, vhost: Name, name: Name) -> JSONResponse:
    """What a stream has: for each partition its first and next offset, its bytes and its incarnation.

    And what it keeps for named consumers: the offsets with which they go on.
    """
    stream = _stream(visitor, vhost, name)
    kept = stream.offsets.kept.items()
    partitions = [
        {**each, "consumers": {consumer: offsets[number] for consumer, offsets in kept}}
        for number, each in enumerate(shown_partitions(stream))
    ]
    return JSONResponse({"name": name, "vhost": vhost, "partitions": partitions})


@router.delete("/streams/{vhost}/{name}/consumers/{consumer}", status_code=204)
async def forget_consumer(
    management: Managed, visitor: Asker, vhost: Name, name: Name, consumer: Name
) -> Response:
    """Have a named consumer begin anew when it comes again."""
    if not _stream(visitor, vhost, name).offsets.forget(consumer):
        raise not_found(f"stream '{name}' in vhost '{vhost}' knows no consumer '{consumer}'")
    await durable(management.store)
    return Response(status_code=204)


@router.get("/streams/{vhost}/{name}/{partition}/offset")
async def find_offset(
    visitor: Asker, vhost: Name, name: Name, partition: int, time: Annotated[int, Query(ge=0, lt=2**62)]
) -> JSONResponse:
    """The offset of the first message that was appended at a time, in microseconds since 1970, or later."""
    stored = _partition(visitor, vhost, name, partition)
    return JSONResponse({"offset": int(stored.since(time))})


@router.get("/streams/{vhost}/{name}/{partition}/chunks")
async def get_chunks(
    visitor: Asker,
    vhost: Name,
    name: Name,
    partition: int,
    start: Annotated[int, Query(alias="from", ge=0, lt=2**62)],
    end: Annotated[int, Query(alias="to", ge=0, lt=2**62)],
    incarnation: int | None = None,
) -> StreamingResponse:
    """The chunks that have the messages with the offsets from one up to another, exclusively.

    They are in the form of `protocol.streams.chunk`. The first and the last may have others too.
    """
    stored = _partition(visitor, vhost, name, partition)
    where = f"stream '{name}' in vhost '{vhost}'"
    if start >= end:
        raise bad_request(f"there are no offsets from {start} to {end}")
    if incarnation is not None and incarnation != stored.incarnation:
        raise ApiError(409, "conflict", f"{where} is another one now, {stored.incarnation}")
    if start < stored.first:
        raise ApiError(410, "gone", f"{where} begins with offset {stored.first}, not with {start}")
    if end > stored.behind:
        raise ApiError(416, "not_satisfiable", f"{where} ends before offset {stored.behind}, not {end}")
    return StreamingResponse(_chunks(stored, start, end), media_type=CHUNKS)


async def _chunks(stored: StoredStream, offset: int, end: int) -> AsyncIterator[bytes]:
    """Stored chunks. What is let go of meanwhile breaks the answer off, so that nobody takes it for whole."""
    slices = Slices()
    while offset < end:
        page = stored.at(offset)
        if page is None or page.first > offset:
            raise ApiError(410, "gone", f"offset {offset} is not there any more")
        offset = int(page.behind)
        yield page.data
        await slices.breathe()


def _stream(visitor: Visitor, vhost: str, name: str) -> QueueStream:
    """The stream of a queue that the visitor may read. Raises ApiError and what the core raises."""
    _, queue = readable(visitor, vhost, name)
    if queue.stream is None:
        raise not_found(f"queue '{name}' in vhost '{vhost}' is no stream")
    return queue.stream


def _partition(visitor: Visitor, vhost: str, name: str, partition: int) -> StoredStream:
    stream = _stream(visitor, vhost, name)
    if not 0 <= partition < len(stream.partitions):
        raise not_found(f"stream '{name}' in vhost '{vhost}' has no partition {partition}")
    return stream.partitions[partition]
