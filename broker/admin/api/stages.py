"""Queues that programs read in bulk, and can read again: messages staged for a reader. [amqpd]

A single step of the log removes the acknowledged messages of a reader and stages further messages. The answer
comes when this step is on disk. Staged messages are read in chunks, as those of streams are; their offsets
have no gaps.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse

from broker.admin.api.answers import ApiError, JSONResponse, await_sync, bad_request, not_found
from broker.admin.api.management import Managed, Management
from broker.admin.api.queues import find_readable_queue
from broker.admin.api.requests import Asker, Body, Name
from broker.admin.api.slices import Slices, gate
from broker.admin.api.streams import CHUNKS
from broker.admin.json_documents import Fields, read_number
from broker.core.message import Message
from broker.core.operators.stage import Stage
from broker.core.ports import MessageStore
from protocol.streams.chunk import ChunkWriter
from protocol.streams.rows import columns_of

ROWS_MAX: Final = 1_000_000  # staged for one reader
ADVANCE_MAX: Final = 100_000  # staged by one request
RUNS_MAX: Final = 20_000  # runs of adjacent messages that one request stages: one record names them
BYTES_MAX: Final = 64 * 2**20  # bodies staged by one request, if the request has no limit
RETAIN_MAX: Final = 100  # batches that stay readable after they are acknowledged
CHUNK_BYTES: Final = 256 * 2**10
CHUNK_ROWS: Final = 5000

router = APIRouter(tags=["staging"])


@router.post("/staged/{vhost}/{name}/{reader}")
async def attach_reader(
    management: Managed, visitor: Asker, vhost: Name, name: Name, reader: Name, body: Body
) -> JSONResponse:
    """Attach a reader to a queue. An earlier program with the same reader can no longer advance."""
    _, queue = find_readable_queue(visitor, vhost, name)
    retain = read_number(body, "retain") if body.get("retain") is not None else 0
    if not 0 <= retain <= RETAIN_MAX:
        raise bad_request(f"retain {retain} is not from 0 to {RETAIN_MAX}")
    staging = management.broker.staging
    while (stage := staging.find_stage(queue, reader)) is not None:
        async with gate(stage):  # waits for an advance that has begun
            if staging.find_stage(queue, reader) is stage and not queue.deleted:
                staging.attach(queue, reader, 0, retain)
                await await_sync(management.store)
                await _remove_acknowledged(stage)
                return JSONResponse(_shown(stage))
        _, queue = find_readable_queue(
            visitor, vhost, name
        )  # the queue may have been declared again meanwhile
    stage = staging.attach(queue, reader, management.broker.new_incarnation(), retain)
    async with gate(stage):  # a later attachment gets a later epoch
        await await_sync(management.store)
        return JSONResponse(_shown(stage))


@router.post("/staged/{vhost}/{name}/{reader}/advance")
async def advance_reader(
    management: Managed, visitor: Asker, vhost: Name, name: Name, reader: Name, body: Body
) -> JSONResponse:
    """Remove acknowledged messages and stage further ones: both or neither."""
    _, queue = find_readable_queue(visitor, vhost, name)
    stage = management.broker.staging.existing(queue, reader)
    rows = read_number(body, "want_rows") if body.get("want_rows") is not None else ADVANCE_MAX
    size = read_number(body, "want_bytes") if body.get("want_bytes") is not None else BYTES_MAX
    if not 0 <= rows <= ADVANCE_MAX:
        raise bad_request(f"want_rows {rows} is not from 0 to {ADVANCE_MAX}")
    if size < 0:
        raise bad_request(f"want_bytes {size} is negative")
    async with gate(stage):
        if management.broker.staging.existing(queue, reader) is not stage:
            raise ApiError(409, "conflict", f"{_where(stage)} was released and attached again")
        if _is_new(stage, body):
            await _advance(management, stage, read_number(body, "ack_upto"), rows, size)
        return JSONResponse(_shown(stage))


@router.get("/staged/{vhost}/{name}/{reader}/rows")
async def get_rows(
    management: Managed,
    visitor: Asker,
    vhost: Name,
    name: Name,
    reader: Name,
    start: Annotated[int, Query(alias="from", ge=0, lt=2**62, description="First offset.")],
    end: Annotated[int, Query(alias="to", ge=0, lt=2**62, description="Offset behind the last one.")],
    incarnation: Annotated[int | None, Query(description="Incarnation that the answer must be of.")] = None,
    gaps: Annotated[bool, Query(description="`true`: leave missing messages out.")] = False,
) -> StreamingResponse:
    """Return the staged messages from one offset up to another, exclusively.

    With `gaps` missing messages are left out; without `gaps` the answer fails or breaks off.
    """
    _, queue = find_readable_queue(visitor, vhost, name)
    stage = management.broker.staging.existing(queue, reader)
    where = _where(stage)
    if start >= end:
        raise bad_request(f"there are no offsets from {start} to {end}")
    if incarnation is not None and incarnation != stage.incarnation:
        raise ApiError(409, "conflict", f"{where} has incarnation {stage.incarnation} now")
    if start < stage.oldest:
        if not gaps:
            raise ApiError(410, "gone", f"{where} begins with offset {stage.oldest}, not with {start}")
        start = int(stage.oldest)  # the reader may have very many earlier messages
    if end > stage.behind:
        raise ApiError(416, "not_satisfiable", f"{where} ends before offset {stage.behind}, not {end}")
    lost = [offset for offset in stage.lost if start <= offset < end]
    if lost and not gaps:
        raise ApiError(
            410, "gone", f"{where} has lost {len(lost)} transient messages with a restart: {lost[:100]}"
        )
    return StreamingResponse(_chunks(management.store, stage, start, end, gaps), media_type=CHUNKS)


@router.get("/staged/{vhost}/{name}/{reader}")
async def get_reader(
    management: Managed, visitor: Asker, vhost: Name, name: Name, reader: Name
) -> JSONResponse:
    """Return the number, the bytes and the age of the messages that are staged for a reader."""
    _, queue = find_readable_queue(visitor, vhost, name)
    stage = management.broker.staging.existing(queue, reader)
    now = int(management.broker.schedule.now())
    age = (now - stage.times[0][1]) / 1000 if stage.times and stage.rows > 0 else None
    return JSONResponse(
        _shown(stage) | {"rows": int(stage.rows), "bytes": await _bytes(stage), "age": age, "reader": reader}
    )


@router.delete("/staged/{vhost}/{name}/{reader}", status_code=204)
async def release_reader(
    management: Managed, visitor: Asker, vhost: Name, name: Name, reader: Name
) -> Response:
    """Release all staged messages of a reader to their places in the queue, and delete the reader."""
    _, queue = find_readable_queue(visitor, vhost, name)
    stage = management.broker.staging.existing(queue, reader)
    slices = Slices()
    async with gate(stage):
        if management.broker.staging.existing(queue, reader) is not stage:
            raise not_found(f"{_where(stage)} was released")
        await _remove_retained(management, stage)
        management.broker.staging.release(stage)
        while stage.requeue_some():
            await slices.breathe()
    await await_sync(management.store)
    return Response(status_code=204)


async def _remove_retained(management: Management, stage: Stage) -> None:
    """Remove all acknowledged messages. Raises ApiError, StoreFailed."""
    if stage.logged:
        management.store.require()
    retain, stage.retain = stage.retain, 0
    management.broker.staging.append(stage, stage.step(int(stage.first), 0))
    try:
        await await_sync(management.store)
    except ApiError:
        stage.retain = retain
        management.broker.staging.undo(stage)
        raise
    await _remove_acknowledged(stage)


def _is_new(stage: Stage, body: Fields) -> bool:
    """Whether an advance is new; False if it was done and its answer was lost. Raises ApiError."""
    epoch = read_number(body, "epoch")
    if epoch != stage.epoch:
        raise ApiError(409, "conflict", f"{_where(stage)} has epoch {stage.epoch}, not {epoch}")
    if body.get("expect_next") is None:
        return True
    expected = read_number(body, "expect_next")
    if expected == stage.next:
        return True
    if expected == stage.before:
        return False
    raise ApiError(409, "conflict", f"{_where(stage)} goes on with offset {stage.next}, not {expected}")


async def _advance(management: Management, stage: Stage, acknowledged: int, rows: int, size: int) -> None:
    """Do an advance. Raises ApiError and BrokerError: then nothing was done."""
    if acknowledged < 0:
        raise bad_request(f"ack_upto {acknowledged} is negative")
    if acknowledged > stage.behind:
        raise ApiError(
            416, "not_satisfiable", f"{_where(stage)} ends before offset {stage.behind}, not {acknowledged}"
        )
    broker = management.broker
    room = min(rows, ROWS_MAX - int(stage.next) + max(acknowledged, int(stage.first)))
    slices = Slices()
    try:
        while room > 0 and size > 0 and stage.coming_runs < RUNS_MAX:
            taken = int(stage.take_one())
            if taken < 0:
                break
            room -= 1
            size -= taken
            await slices.breathe()
        if stage.queue.deleted:
            raise not_found(f"no queue '{stage.queue.name}' in vhost '{stage.queue.vhost}'")
        if stage.logged:
            management.store.require()
    except BaseException:
        stage.release_marked()
        raise
    broker.staging.append(stage, stage.step(acknowledged, broker.schedule.now()))
    try:
        await await_sync(management.store)
    except ApiError:
        broker.staging.undo(stage)
        raise
    stage.note_durable()
    await _remove_acknowledged(stage)


async def _remove_acknowledged(stage: Stage) -> None:
    """Remove all acknowledged messages that are not retained."""
    slices = Slices()
    while stage.settle_some():
        await slices.breathe()


async def _chunks(
    store: MessageStore, stage: Stage, offset: int, end: int, gaps: bool
) -> AsyncIterator[bytes]:
    """Yield chunks.

    At a gap that the request does not allow, the answer breaks off, so that no client takes it for complete.
    """
    slices = Slices()
    writer = ChunkWriter()
    first = offset
    while offset < end:
        entry = stage.entry(offset) if offset >= stage.oldest else None
        if entry is not None:
            message = entry.message
            parts = [message] if message.body is None else [message, *message.body.pieces]
            content = b"".join([store.content_of(part) for part in parts])
            _add(writer, message, content)
        elif not gaps:
            raise ApiError(410, "gone", f"offset {offset} of {_where(stage)} does not exist any more")
        offset += 1
        full = writer.size >= CHUNK_BYTES or writer.rows >= CHUNK_ROWS or offset == end
        if writer.rows and (full or entry is None):  # a chunk has no gaps
            yield writer.take(first, int(stage.incarnation))
        if not writer.rows:
            first = offset
        await slices.breathe()


def _add(writer: ChunkWriter, message: Message, content: bytes) -> None:
    kind, properties, body = columns_of(content)
    address = message.address
    exchange, key = (
        each.encode("utf-8", "surrogateescape") for each in (address.exchange, address.routing_key)
    )
    writer.add(int(message.date) * 1000, kind, exchange, key, properties, body)


async def _bytes(stage: Stage) -> int:
    """Return the bytes of the readable messages."""
    slices = Slices()
    size = 0
    offset = int(stage.first)
    while offset < stage.next:
        entry = stage.entry(offset) if offset >= stage.kept else None
        size += int(entry.message.size) if entry is not None else 0
        offset += 1
        await slices.breathe()
    return size


def _shown(stage: Stage) -> dict[str, Any]:
    return {
        "epoch": int(stage.epoch),
        "incarnation": int(stage.incarnation),
        "first": int(stage.first),
        "retained": int(stage.first - stage.oldest),
        "next": int(stage.behind),
    }


def _where(stage: Stage) -> str:
    queue = stage.queue
    return f"reader '{stage.reader}' of queue '{queue.name}' in vhost '{queue.vhost}'"
