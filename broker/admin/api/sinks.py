"""Staged sinks: a program publishes batches of messages exactly once, even if any process is killed. [amqpd]

The protocol of a driver (for example of a streaming query) and its tasks. The sink has the name of the query,
which stays the same when the query is started again. Numbers of batches grow. Paths are below
`/api/staged-sinks/{vhost}/{query}`. Bodies and answers are JSON, except chunks.

1.  `POST /` attaches the driver: `{epoch, last_batch, moving_rows}`. `last_batch` is -1 for a new sink.
    Attempts of earlier epochs are dropped, and requests with an earlier epoch get 409 from now on.
2.  `POST /attempts {epoch, batch, partition, checkpoint}` begins an attempt: `{attempt}`, a number that no
    other attempt ever has. For a committed batch the answer is `{attempt: null}`: there is nothing to write.
    `checkpoint` identifies the driver's record of its batches (for Spark the query's id). Once a batch of a
    checkpoint is committed, requests with another checkpoint get 409.
3.  `POST /attempts/{attempt}/rows?from=N` adds rows to the N rows of the attempt: `{rows}`, the number of
    rows then, all of them on disk. The body is one or more chunks, one behind the other
    (`protocol/streams/chunk.py`; times, first offset and incarnation are ignored), or, as
    `application/json`, `{messages: [{exchange, routing_key, properties, payload, payload_encoding}]}`.
    A request whose answer was lost may be repeated unchanged. The user needs the right to publish the rows.
4.  `POST /commit {epoch, batch, attempts, rows, checkpoint}` publishes all rows of the named attempts, one
    attempt of each partition, in their order: `{committed: true, last_batch, moving_rows}`. `rows` is the
    number of all these rows; nothing is done if it differs. A batch that is not after the last one is
    answered with `{committed: "already"}`, and its attempts are dropped, also after a restart of either side.
    So a driver without an answer repeats the request. Status 202 means that the batch is decided, and
    `moving_rows` are not published yet after `wait` seconds (30): `blocked` has the reason; repeat the
    request. With `mandatory` (the default) 409 names a row without a route, and nothing is decided. Status
    401 means that the user has lost the right to publish a row.
5.  `POST /abort {epoch, batch}` drops all attempts at a batch; `DELETE /attempts/{attempt}` drops one.

`GET /` shows a sink, and `GET /api/staged-sinks/{vhost}` all sinks. `DELETE /` deletes the sink and its last
batch: a query that begins again with batch 0 needs that, or another name. With `?force=true` decided rows
that are not published yet are lost.
"""

import asyncio
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from broker.adapters.amqp091.rows import Checker, chunk_message
from broker.admin.api.answers import ApiError, JSONResponse, await_disk, await_sync, bad_request, not_found
from broker.admin.api.management import Managed, Management
from broker.admin.api.publish import encode_message, read_payload, read_properties
from broker.admin.api.requests import OF_MESSAGES_MAX, Asker, Body, Name, Visitor, read_body
from broker.admin.api.slices import Slices, gate
from broker.admin.json_documents import (
    Fields,
    JsonError,
    read_flag,
    read_json,
    read_number,
    read_table,
    read_text,
)
from broker.core.errors import BrokerError, PreconditionFailed
from broker.core.message import Message
from broker.core.names import check_length
from broker.core.operators.sink import Attempt, Known, Sink, objection
from protocol.errors import ProtocolError
from protocol.streams.chunk import Chunk, ChunkDamagedError, ChunkWriter
from protocol.streams.rows import columns_of

NUMBER_MAX: Final = 2**62

WAIT: Final = 30  # seconds that a commit waits until its rows are published, by default
WAIT_MAX: Final = 60

router = APIRouter(tags=["staged sinks"])

BODY_MAX: Final = 8 * 2**20  # a request with rows, whose chunks are appended in one step
ROWS_MAX: Final = 1000  # in a chunk, which is published in one step


def conflict(reason: str) -> ApiError:
    """Return the refusal of a request that conflicts with the present state."""
    return ApiError(409, "conflict", reason)


def find_owned_sink(management: Management, visitor: Visitor, vhost: str, query: str) -> Sink:
    """Return a sink of the visitor, or any sink for an administrator. Raises ApiError, NotFound."""
    sink = management.broker.sinks.existing(visitor.vhost(vhost), query)
    visitor.require_owner(sink.user, True)
    return sink


def find_attached_sink(
    management: Management, visitor: Visitor, vhost: str, query: str, body: Fields
) -> Sink:
    """Return a sink for the driver that attached last. Raises ApiError, NotFound, PreconditionFailed."""
    sink = find_owned_sink(management, visitor, vhost, query)
    check_epoch(sink, body)
    return sink


def check_epoch(sink: Sink, body: Fields) -> None:
    """Refuse a request of an earlier driver. Raises ApiError, PreconditionFailed."""
    epoch = read_number(body, "epoch")
    if epoch != sink.epoch:
        raise conflict(f"{sink.where()} has epoch {sink.epoch}, not {epoch}")


def check_checkpoint(sink: Sink, body: Fields) -> str:
    """Return the checkpoint of a request; refuse another checkpoint than that of the sink's batches.

    Raises ApiError, PreconditionFailed.
    """
    checkpoint = read_text(body, "checkpoint", "")
    check_length("checkpoint", checkpoint)
    if not sink.serves(checkpoint):
        raise conflict(
            f"{sink.where()} has batches up to {sink.last} of checkpoint '{sink.checkpoint}', and this is "
            f"checkpoint '{checkpoint}': its batches would be taken for those; use another name, or delete "
            "the sink first"
        )
    return checkpoint


def check_present(sink: Sink) -> None:
    """Refuse a sink that was deleted meanwhile. Raises ApiError."""
    if sink.is_deleted:
        raise not_found(f"{sink.where()} was deleted")


def make_checker(management: Management, visitor: Visitor, sink: Sink) -> Checker:
    """Return the check whether the visitor may publish a sink's rows."""
    server = management.server
    rights = visitor.rights(sink.virtual_host)
    return Checker(rights, sink.virtual_host, int(server.frame_max), int(server.body_bytes_max))


def read_count(body: Fields, name: str) -> int:
    """Return a field with a count. Raises ApiError, PreconditionFailed."""
    value = read_number(body, name)
    if not 0 <= value < NUMBER_MAX:
        raise bad_request(f"{name} {value} is not from 0 to {NUMBER_MAX - 1}")
    return value


@router.get("/staged-sinks/{vhost}")
async def list_sinks(management: Managed, visitor: Asker, vhost: Name) -> JSONResponse:
    """Return the sinks of a virtual host that the user may see."""
    sinks = management.broker.sinks.of(visitor.visible_vhost(vhost))
    return JSONResponse([_shown(sink) for sink in sinks if visitor.monitors or sink.user == visitor.name])


@router.get("/staged-sinks/{vhost}/{query}")
async def get_sink(management: Managed, visitor: Asker, vhost: Name, query: Name) -> JSONResponse:
    """Return the last committed batch of a sink and the rows of its attempts."""
    sink = management.broker.sinks.existing(visitor.visible_vhost(vhost), query)
    visitor.require_owner(sink.user, False)
    attempts = [_attempt_shown(each) for each in sink.attempts.values()]
    return JSONResponse(_shown(sink) | {"attempts": attempts})


@router.post("/staged-sinks/{vhost}/{query}")
async def attach_sink(management: Managed, visitor: Asker, vhost: Name, query: Name) -> JSONResponse:
    """Attach to a sink, and create a missing one. An earlier program with the same sink is fenced off."""
    virtual_host = visitor.vhost(vhost)
    sinks = management.broker.sinks
    sink = sinks.find_sink(virtual_host, query)
    if sink is None:
        sink = sinks.attach(virtual_host, query, visitor.name, management.broker.new_incarnation())
    else:
        visitor.require_owner(sink.user, True)
        async with gate(sink):  # waits for a commit that has begun
            check_present(sink)
            sinks.attach(virtual_host, query, visitor.name)
    epoch = int(sink.epoch)
    await await_sync(management.store)
    return JSONResponse({"epoch": epoch, "last_batch": int(sink.last), "moving_rows": int(sink.moving_rows)})


@router.post("/staged-sinks/{vhost}/{query}/commit")
async def commit_batch(
    management: Managed, visitor: Asker, vhost: Name, query: Name, body: Body
) -> JSONResponse:
    """Commit a batch and publish its rows, unless the batch is committed already."""
    sink = find_attached_sink(management, visitor, vhost, query, body)
    batch = read_count(body, "batch")
    wait = read_number(body, "wait") if body.get("wait") is not None else WAIT
    if not 0 <= wait <= WAIT_MAX:
        raise bad_request(f"wait {wait} is not from 0 to {WAIT_MAX} seconds")
    async with gate(sink):
        check_present(sink)
        check_epoch(sink, body)
        checkpoint = check_checkpoint(sink, body)
        committed = batch <= sink.last
        if committed:
            management.store.require()
            sink.drop([each for each in sink.attempts.values() if each.batch <= batch])
            await await_sync(management.store)
        elif sink.moving:
            why = sink.blocked or "it is being published"
            raise conflict(f"{sink.where()} has not published batch {sink.last}: {why}")
        else:
            await _commit(management, visitor, sink, batch, checkpoint, body)
    status = 200 if await _await_published(sink, wait) else 202
    answer = {
        "committed": "already" if committed else True,
        "last_batch": int(sink.last),
        "moving_rows": int(sink.moving_rows),
    }
    return JSONResponse(
        answer | ({"blocked": sink.blocked or None} if status == 202 else {}), status_code=status
    )


@router.post("/staged-sinks/{vhost}/{query}/abort", status_code=204)
async def abort_batch(management: Managed, visitor: Asker, vhost: Name, query: Name, body: Body) -> Response:
    """Delete all attempts at a batch. A committed batch stays committed."""
    sink = find_attached_sink(management, visitor, vhost, query, body)
    batch = read_count(body, "batch")
    async with gate(sink):
        check_present(sink)
        check_epoch(sink, body)
        management.store.require()
        sink.drop([each for each in sink.attempts.values() if each.batch == batch])
    await await_sync(management.store)
    return Response(status_code=204)


@router.delete("/staged-sinks/{vhost}/{query}", status_code=204)
async def delete_sink(
    management: Managed,
    visitor: Asker,
    vhost: Name,
    query: Name,
    force: Annotated[
        bool, Query(description="`true`: delete the sink with committed rows that are not published yet.")
    ] = False,
) -> Response:
    """Delete a sink with its attempts and the number of its last batch."""
    sink = find_owned_sink(management, visitor, vhost, query)
    async with gate(sink):
        check_present(sink)
        if sink.moving and not force:
            raise conflict(
                f"{sink.where()} has yet to publish {sink.moving_rows} rows of batch {sink.last}: "
                "they are lost with force=true"
            )
        management.broker.sinks.delete(sink)
    await await_sync(management.store)
    return Response(status_code=204)


async def _commit(
    management: Management, visitor: Visitor, sink: Sink, batch: int, checkpoint: str, body: Fields
) -> None:
    """Decide on a batch. Raises ApiError and BrokerError: then nothing was decided.

    The user must still have the right to publish every row, as rights may have changed since the rows
    arrived.
    """
    mandatory = read_flag(body, "mandatory", True)
    winners = _find_committed_attempts(sink, batch, body)
    slices = Slices()
    known: Known = set()
    checker = make_checker(management, visitor, sink)
    for winner in winners:
        for entry in list(winner.queue.entries):
            checker.require_rights(sink.virtual_host.store.content_of(entry.message))
            try:
                why = objection(entry.message, sink.virtual_host, sink.open_rows, mandatory, known)
            except (BrokerError, ProtocolError) as error:
                why = error.text
            if why:
                raise conflict(
                    f"a row of attempt {winner.number} of {sink.where()} cannot be published: {why}"
                )
            await slices.breathe()
    check_present(sink)
    management.store.require()
    if _find_committed_attempts(sink, batch, body) != winners:
        raise conflict(f"the attempts of {sink.where()} have changed meanwhile")
    trouble = await await_disk(lambda done: sink.commit(batch, winners, mandatory, checkpoint, done))
    if trouble:
        raise ApiError(
            503, "service_unavailable", f"batch {batch} of {sink.where()} is not committed: {trouble}"
        )


def _find_committed_attempts(sink: Sink, batch: int, body: Fields) -> list[Attempt]:
    """Return the attempts that a commit names, if they have exactly the named rows. Raises ApiError."""
    named = body.get("attempts")
    if not isinstance(named, list) or not all(type(each) is int for each in named):
        raise bad_request("'attempts' is not a list of numbers")
    winners: dict[int, Attempt] = {}
    seen: set[int] = set()
    for each in named:
        attempt = sink.attempts.get(each)
        if attempt is None:
            raise conflict(f"{sink.where()} has no attempt {each} to commit")
        if attempt.batch != batch:
            raise conflict(f"attempt {each} of {sink.where()} is at batch {attempt.batch}, not {batch}")
        other = winners.setdefault(int(attempt.partition), attempt)
        if other is not attempt or each in seen:
            raise conflict(
                f"attempts {other.number} and {each} of {sink.where()} are both "
                f"at partition {attempt.partition}"
            )
        seen.add(each)
    rows = sum(int(attempt.rows) for attempt in winners.values())
    if rows != read_number(body, "rows"):
        raise conflict(f"the attempts of {sink.where()} have {rows} rows, not {read_number(body, 'rows')}")
    return list(winners.values())


async def _await_published(sink: Sink, seconds: int) -> bool:
    """Wait until everything committed is published; False after `seconds`."""
    published = asyncio.Event()
    sink.idle(published.set)
    try:
        await asyncio.wait_for(published.wait(), seconds)
    except TimeoutError:
        sink.ignore(published.set)
        return False
    return True


def _shown(sink: Sink) -> dict[str, Any]:
    return {
        "query": sink.query,
        "vhost": sink.virtual_host.name,
        "user": sink.user,
        "epoch": int(sink.epoch),
        "last_batch": int(sink.last),
        "checkpoint": sink.checkpoint or None,
        "moving_rows": int(sink.moving_rows),
        "blocked": sink.blocked or None,
        "attempt_count": len(sink.attempts),
        "attempt_rows": sum(int(each.rows) for each in sink.attempts.values()),
    }


def _attempt_shown(attempt: Attempt) -> dict[str, Any]:
    return {
        "attempt": int(attempt.number),
        "batch": int(attempt.batch),
        "partition": int(attempt.partition),
        "rows": int(attempt.rows),
        "bytes": int(attempt.queue.ready_bytes),
    }


@router.post("/staged-sinks/{vhost}/{query}/attempts")
async def begin_attempt(
    management: Managed, visitor: Asker, vhost: Name, query: Name, body: Body
) -> JSONResponse:
    """Begin an attempt at one partition of a batch."""
    sink = find_attached_sink(management, visitor, vhost, query, body)
    batch, partition = read_count(body, "batch"), read_count(body, "partition")
    check_checkpoint(sink, body)
    if batch <= sink.last:
        return JSONResponse({"attempt": None})
    management.store.require()
    attempt = int(sink.begin(batch, partition).number)
    await await_sync(management.store)  # otherwise another attempt could get its number after a restart
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
    sink = find_owned_sink(management, visitor, vhost, query)
    if request.headers.get("content-type", "").partition(";")[0].strip() == "application/json":
        content = _chunks_of(management, await read_body(request, OF_MESSAGES_MAX))
    else:
        content = await read_body(request, BODY_MAX)
    chunks = await _check_chunks(content, make_checker(management, visitor, sink))
    rows = sum(size for _, size in chunks)
    shortage = management.server.shortage.reason
    if shortage:
        raise ApiError(503, "service_unavailable", f"publishers wait: the broker is {shortage}")
    management.store.require()
    known = sink.attempts.get(attempt)
    if known is None:
        raise not_found(f"{sink.where()} has no attempt {attempt} that rows may be added to")
    if start == known.rows:
        messages = [message for message, _ in chunks]
        trouble = await await_disk(lambda done: known.add(messages, done))
        if trouble:
            where = f"attempt {attempt} of {sink.where()}"
            raise ApiError(503, "service_unavailable", f"{where} has not stored these rows: {trouble}")
    elif start + rows == known.rows:  # a repeated request, whose answer was lost
        await await_sync(management.store)
    else:
        raise conflict(f"attempt {attempt} of {sink.where()} has {known.rows} rows, not {start}")
    return JSONResponse({"rows": start + rows})


@router.delete("/staged-sinks/{vhost}/{query}/attempts/{attempt}", status_code=204)
async def drop_attempt(
    management: Managed, visitor: Asker, vhost: Name, query: Name, attempt: int
) -> Response:
    """Delete an attempt that is not committed."""
    sink = find_owned_sink(management, visitor, vhost, query)
    async with gate(sink):
        known = sink.attempts.get(attempt)
        if known is None:
            raise not_found(f"{sink.where()} has no attempt {attempt} that is not committed")
        management.store.require()
        sink.drop([known])
    await await_sync(management.store)
    return Response(status_code=204)


async def _check_chunks(content: bytes, checker: Checker) -> list[tuple[Message, int]]:
    """Return the stored form and the number of rows of each chunk. Raises the errors of `check`."""
    slices = Slices()
    chunks: list[tuple[Message, int]] = []
    position = 0
    try:
        while position < len(content):
            chunk = Chunk(content, position)
            if chunk.rows > ROWS_MAX:
                raise bad_request(f"the chunk at {position} has {chunk.rows} rows, at most {ROWS_MAX}")
            chunk.check()
            checker.check(chunk)
            end = position + chunk.header.size
            chunks.append((chunk_message(content[position:end], chunk.rows), int(chunk.rows)))
            position = end
            await slices.breathe()
    except ChunkDamagedError as error:
        raise bad_request(f"rows come in chunks: {error}") from error
    if not chunks:
        raise bad_request("there are no rows")
    return chunks


def _chunks_of(management: Management, content: bytes) -> bytes:
    """Return the chunks of messages in JSON. Raises ApiError, PreconditionFailed."""
    try:
        body = read_json(content)
    except JsonError as error:
        raise bad_request(f"not_json: {error}") from error
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        raise bad_request("'messages' is not a list of objects")
    writer = ChunkWriter()
    chunks: list[bytes] = []
    for place, each in enumerate(messages):
        try:
            payload = read_payload(each, int(management.server.body_bytes_max))
            properties = read_properties(read_table(each, "properties"))
            frames = encode_message(properties, payload, int(management.server.frame_max))
            exchange, key = read_text(each, "exchange").encode(), read_text(each, "routing_key").encode()
        except PreconditionFailed as error:
            raise PreconditionFailed(f"message {place}: {error.text}") from error
        kind, spelt, body_bytes = columns_of(frames)
        writer.add(0, kind, exchange, key, spelt, body_bytes)
        if writer.rows == ROWS_MAX:
            chunks.append(writer.take(0, 0))
    if writer.rows:
        chunks.append(writer.take(0, 0))
    return b"".join(chunks)
