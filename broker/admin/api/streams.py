"""Streams that programs read in bulk: their offsets, and chunks as they are stored. [amqpd]

A stream has one or several partitions, numbered from 0. Offsets have no gaps: from a to b there are b - a
messages.
"""

import json
import os
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse
from starlette.types import Send

from broker.admin.api.answers import ApiError, JSONResponse, await_sync, bad_request, not_found
from broker.admin.api.management import Managed
from broker.admin.api.queues import find_readable_queue
from broker.admin.api.requests import Asker, Body, Name, Visitor
from broker.admin.api.slices import Slices
from broker.admin.json_documents import require_field
from broker.admin.shapes import show_partitions
from broker.admin.zero_copy import EXTENSION
from broker.auth.terms import READ
from broker.core.ports import StoredStream, StreamExtent
from broker.core.streams.stream import QueueStream, stream_of

CHUNKS: Final = "application/vnd.amqpd.chunks"

router = APIRouter(tags=["streams"])


class ExtentsResponse(StreamingResponse):
    """An answer of parts of files, which the server sends directly from the files."""

    def __init__(self, extents: AsyncIterator[StreamExtent]) -> None:
        super().__init__(iter(()), media_type=CHUNKS)
        self._extents = extents

    async def stream_response(self, send: Send) -> None:
        """Send all parts; each part's file is closed when the part has been sent (StreamingResponse)."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for extent in self._extents:
            part = {"file": extent.fd, "offset": int(extent.position), "count": int(extent.size)}
            try:
                await send({"type": EXTENSION, **part, "more_body": True})
            finally:
                os.close(extent.fd)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@router.get("/streams/{vhost}")
async def list_streams(
    visitor: Asker,
    vhost: Name,
    name: Annotated[
        list[str] | None, Query(description="Name of a stream; may be given several times.")
    ] = None,
) -> StreamingResponse:
    """Return the named streams in the order of the names, or all streams that the user may read."""
    virtual_host = visitor.vhost(vhost)
    if name is not None:
        streams = [_stream(visitor, vhost, each) for each in dict.fromkeys(name)]
    else:
        rights = visitor.rights(virtual_host)
        of_all = [
            stream
            for queue in virtual_host.topology.queues.values()
            if (stream := stream_of(queue)) is not None
        ]
        streams = [stream for stream in of_all if rights.has_right(READ, stream.queue.name)]
    return StreamingResponse(_list(streams, name is not None), media_type="application/json")


async def _list(streams: list[QueueStream], all_of_them: bool) -> AsyncIterator[bytes]:
    """Yield stream by stream, as a stream may have many offsets. A stream deleted meanwhile is left out.

    With `all_of_them` the answer breaks off at such a stream.
    """
    slices = Slices()
    separator = b"["
    for stream in streams:
        if not stream.queue.deleted:
            yield separator + json.dumps(_shown(stream), separators=(",", ":")).encode()
            separator = b","
        elif all_of_them:
            raise not_found(f"stream '{stream.queue.name}' in vhost '{stream.queue.vhost}' was deleted")
        await slices.breathe()
    yield b"]" if separator == b"," else b"[]"


@router.get("/streams/{vhost}/{name}")
async def get_stream(visitor: Asker, vhost: Name, name: Name) -> JSONResponse:
    """Return a stream: the first and next offset, the bytes and the incarnation of each partition.

    The answer also has the offsets that the stream keeps for named consumers.
    """
    return JSONResponse(_shown(_stream(visitor, vhost, name)))


@router.put("/streams/{vhost}/{name}/consumers/{consumer}", status_code=204)
async def keep_offsets(
    management: Managed, visitor: Asker, vhost: Name, name: Name, consumer: Name, body: Body
) -> Response:
    """Store the progress of a named consumer: `offsets`, one for each partition."""
    stream = _stream(visitor, vhost, name)
    offsets = require_field(body, "offsets")
    if not isinstance(offsets, list) or not all(type(each) is int and 0 <= each < 2**62 for each in offsets):
        raise bad_request(f"'offsets' is not a list of offsets: {offsets!r}")
    if len(offsets) != len(stream.partitions):
        raise bad_request(
            f"'offsets' has {len(offsets)} numbers; stream '{name}' in vhost '{vhost}' has "
            f"{len(stream.partitions)} partitions"
        )
    management.store.require()
    stream.offsets.keep(consumer, offsets)
    await await_sync(management.store)
    return Response(status_code=204)


@router.delete("/streams/{vhost}/{name}/consumers/{consumer}", status_code=204)
async def forget_consumer(
    management: Managed, visitor: Asker, vhost: Name, name: Name, consumer: Name
) -> Response:
    """Delete the stored progress of a named consumer, which begins anew the next time."""
    if not _stream(visitor, vhost, name).offsets.forget(consumer):
        raise not_found(f"stream '{name}' in vhost '{vhost}' knows no consumer '{consumer}'")
    await await_sync(management.store)
    return Response(status_code=204)


@router.get("/streams/{vhost}/{name}/{partition}/offset")
async def find_offset(
    visitor: Asker,
    vhost: Name,
    name: Name,
    partition: int,
    time: Annotated[int | None, Query(ge=0, lt=2**62, description="Time in microseconds since 1970.")] = None,
    start: Annotated[int | None, Query(alias="from", ge=0, lt=2**62, description="First offset.")] = None,
    size: Annotated[int | None, Query(alias="bytes", ge=1, lt=2**62, description="Bytes on disk.")] = None,
) -> JSONResponse:
    """Return an offset found by `time`, or by `from` and `bytes`.

    `time` finds the first message appended at that time, in microseconds since 1970, or later. `from` and
    `bytes` find the offset up to which the messages take so many bytes on disk, at least one message.
    """
    stored = _partition(visitor, vhost, name, partition)
    if (start is None) != (size is None) or (start is None) == (time is None):
        raise bad_request("an offset is found by time, or by from and bytes")
    if time is not None:
        return JSONResponse({"offset": int(stored.since(time))})
    assert start is not None, "as there is no time"
    assert size is not None, "they come together"
    _require_kept(stored, f"stream '{name}' in vhost '{vhost}'", start)
    return JSONResponse({"offset": int(stored.reach(start, size))})


@router.get("/streams/{vhost}/{name}/{partition}/chunks")
async def get_chunks(
    visitor: Asker,
    vhost: Name,
    name: Name,
    partition: int,
    start: Annotated[int, Query(alias="from", ge=0, lt=2**62, description="First offset.")],
    end: Annotated[int, Query(alias="to", ge=0, lt=2**62, description="Offset behind the last one.")],
    incarnation: Annotated[int | None, Query(description="Incarnation that the answer must be of.")] = None,
    gaps: Annotated[bool, Query(description="`true`: leave missing messages out.")] = False,
    check: Annotated[
        bool, Query(description="`true`: read the first chunk and step over damaged rows.")
    ] = False,
) -> ExtentsResponse:
    """Return the chunks with the messages from one offset up to another, exclusively.

    Chunks have the form of `protocol.streams.chunk`. The first and the last chunk may have further messages.
    With `gaps` missing messages are left out; without `gaps` the answer fails or breaks off. With `check` the
    broker reads the first chunk and steps over damaged rows.
    """
    stored = _partition(visitor, vhost, name, partition)
    where = f"stream '{name}' in vhost '{vhost}'"
    if start >= end:
        raise bad_request(f"there are no offsets from {start} to {end}")
    if incarnation is not None and incarnation != stored.incarnation:
        raise ApiError(409, "conflict", f"{where} has incarnation {stored.incarnation} now")
    if check:
        stored.examine(start)
    if not gaps:
        _require_kept(stored, where, start)
        _require_readable(stored, where, start)
    if end > stored.behind:
        raise ApiError(416, "not_satisfiable", f"{where} ends before offset {stored.behind}, not {end}")
    return ExtentsResponse(_extents(stored, start, end, gaps))


async def _extents(stored: StoredStream, offset: int, end: int, gaps: bool) -> AsyncIterator[StreamExtent]:
    """Yield stored chunks. At a gap that the request does not allow, the answer breaks off."""
    while offset < end:
        extent = stored.extent(offset, end)
        if not gaps and (extent is None or extent.first > offset):
            if extent is not None:
                os.close(extent.fd)
            raise ApiError(410, "gone", f"offset {offset} does not exist any more")
        if extent is None:
            return
        offset = int(extent.behind)
        yield extent


def _require_kept(stored: StoredStream, where: str, offset: int) -> None:
    """Raise ApiError if retention has removed an offset from the stream."""
    if offset < stored.first:
        raise ApiError(410, "gone", f"{where} begins with offset {stored.first}, not with {offset}")


def _require_readable(stored: StoredStream, where: str, offset: int) -> None:
    """Raise ApiError if an offset is known to be unreadable."""
    if offset >= stored.behind:
        return
    extent = stored.extent(offset, offset + 1)
    if extent is None or extent.first > offset:
        raise ApiError(
            410, "gone", f"message {offset} of {where} does not read back from the disk, or was lost"
        )
    os.close(extent.fd)


def _shown(stream: QueueStream) -> dict[str, Any]:
    kept = stream.offsets.kept.items()
    partitions = [
        {**each, "consumers": {consumer: offsets[number] for consumer, offsets in kept}}
        for number, each in enumerate(show_partitions(stream))
    ]
    return {"name": stream.queue.name, "vhost": stream.queue.vhost, "partitions": partitions}


def _stream(visitor: Visitor, vhost: str, name: str) -> QueueStream:
    """Return the stream of a queue that the visitor may read. Raises ApiError and BrokerError."""
    _, queue = find_readable_queue(visitor, vhost, name)
    stream = stream_of(queue)
    if stream is None:
        raise not_found(f"queue '{name}' in vhost '{vhost}' is no stream")
    return stream


def _partition(visitor: Visitor, vhost: str, name: str, partition: int) -> StoredStream:
    stream = _stream(visitor, vhost, name)
    if not 0 <= partition < len(stream.partitions):
        raise not_found(f"stream '{name}' in vhost '{vhost}' has no partition {partition}")
    return stream.partitions[partition]
