"""Staged sinks: batches of messages that a program has published exactly once, whatever is killed. [amqpd]

How a driver (of a streaming query, say) and its tasks go about it. The sink's name is the query's, and stays
the same when the query is started again; batches have growing numbers. Paths are below
`/api/staged-sinks/{vhost}/{query}`, bodies and answers are JSON but for chunks.

1.  `POST /` attaches the driver: `{epoch, last_batch, moving_rows}`. `last_batch` is -1 if there was none.
    Attempts of earlier epochs are dropped, and whoever still has one of these epochs gets 409 from now on.
2.  `POST /attempts {epoch, batch, partition, checkpoint}` begins an attempt: `{attempt}`, a number that no
    other attempt ever has. If the batch is committed already the answer is `{attempt: null}`: there is
    nothing to write. `checkpoint` names the driver's memory of its batches (for Spark the query's id). Once
    a batch of a checkpoint is committed, requests that name another checkpoint get 409.
3.  `POST /attempts/{attempt}/rows?from=N` adds rows, of which the attempt has N before: `{rows}`, how many it
    has now, all of them on disk. The body is one or more chunks, one behind the other
    (`protocol/streams/chunk.py`; times, first offset and incarnation count for nothing), or as
    `application/json` `{messages: [{exchange, routing_key, properties, payload, payload_encoding}]}`.
    A request whose answer was lost may be sent again as it was. The user must be allowed to publish there.
4.  `POST /commit {epoch, batch, attempts, rows, checkpoint}` has everything be published that the named
    attempts have, one of each partition, in their order: `{committed: true, last_batch, moving_rows}`. `rows`
    is how many that are: if it is another number nothing is done. A batch that is not after the last one
    answers `{committed: "already"}`, and its attempts are dropped; also after a restart of either side. So
    whoever got no answer asks again. With 202 it is decided, and `moving_rows` are not published yet after
    `wait` seconds (30): `blocked` says what is in their way; ask again. With `mandatory` (the default) 409
    says which row would go nowhere, and nothing is decided. With 401 the user may no longer
    publish a row.
5.  `POST /abort {epoch, batch}` drops all attempts at a batch; `DELETE /attempts/{attempt}` drops one.

`GET /` shows all of it, and `GET /api/staged-sinks/{vhost}` all sinks. `DELETE /` forgets the sink, its last
batch included: a query that begins anew with batch 0 needs that, or another name. It takes `?force=true` to
lose what is decided and not published yet.
"""

import asyncio
import time
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from broker.adapters.amqp091.rows import Checker, chunk_message
from broker.admin.api.answers import ApiError, JSONResponse, bad_request, durable, not_found, on_disk
from broker.admin.api.management import Managed, Management
from broker.admin.api.publish import message_content, payload_of, properties_of
from broker.admin.api.requests import OF_MESSAGES_MAX, Asker, Body, Name, Visitor, read_body
from broker.admin.api.slices import Slices, gate
from broker.admin.json_documents import Fields, JsonError, flag, number, read_json, table, text
from broker.core.errors import BrokerError, PreconditionFailed
from broker.core.message import Message
from broker.core.names import check_length
from broker.core.operators.sink import Attempt, Known, Sink, content_of, objection
from protocol.errors import ProtocolError
from protocol.streams.chunk import Chunk, ChunkDamagedError, ChunkWriter
from protocol.streams.rows import columns_of

NUMBER_MAX: Final = 2**62

WAIT: Final = 30  # seconds for which a commit waits for rows to be published, unless it says for how many
WAIT_MAX: Final = 60

router = APIRouter(tags=["staged sinks"])

BODY_MAX: Final = 8 * 2**20  # of a request with rows: its chunks are appended in one step
ROWS_MAX: Final = 1000  # of a chunk: they are published in one step


def conflict(reason: str) -> ApiError:
    """The request does not go with what there is."""
    return ApiError(409, "conflict", reason)


def owned(management: Management, visitor: Visitor, vhost: str, query: str) -> Sink:
    """A sink that the visitor made, or may change as an administrator. Raises ApiError, NotFound."""
    sink = management.broker.sinks.existing(visitor.vhost(vhost), query)
    visitor.require_owner(sink.user, True)
    return sink


def attached(management: Management, visitor: Visitor, vhost: str, query: str, body: Fields) -> Sink:
    """The same, for whoever attached last. Raises ApiError, NotFound, PreconditionFailed."""
    sink = owned(management, visitor, vhost, query)
    check_epoch(sink, body)
    return sink


def check_epoch(sink: Sink, body: Fields) -> None:
    """Refuse whoever attached before others did. Raises ApiError, PreconditionFailed."""
    epoch = number(body, "epoch")
    if epoch != sink.epoch:
        raise conflict(f"{sink.where()} has epoch {sink.epoch}, not {epoch}")


def check_checkpoint(sink: Sink, body: Fields) -> str:
    """The checkpoint that a request names; refuse another one than that of the sink's batches.

    Raises ApiError, PreconditionFailed.
    """
    checkpoint = text(body, "checkpoint", "")
    check_length("checkpoint", checkpoint)
    if not sink.serves(checkpoint):
        raise conflict(
            f"{sink.where()} has batches up to {sink.last} of checkpoint '{sink.checkpoint}', and this is "
            f"checkpoint '{checkpoint}': its batches would be taken for those; use another name, or delete "
            "the sink first"
        )
    return checkpoint


def check_there(sink: Sink) -> None:
    """Refuse what was deleted meanwhile. Raises ApiError."""
    if sink.is_deleted:
        raise not_found(f"{sink.where()} was deleted")


def checker_of(management: Management, visitor: Visitor, sink: Sink) -> Checker:
    """The question whether the visitor may publish a sink's rows."""
    server = management.server
    rights = visitor.rights(sink.virtual_host)
    return Checker(rights, sink.virtual_host, int(server.frame_max), int(server.body_bytes_max))


def count(body: Fields, name: str) -> int:
    """A field that counts something. Raises ApiError, PreconditionFailed."""
    value = number(body, name)
    if not 0 <= value < NUMBER_MAX:
        raise bad_request(f"{name} {value} is not from 0 to {NUMBER_MAX - 1}")
    return value


@router.get("/staged-sinks/{vhost}")
async def list_sinks(management: Managed, visitor: Asker, vhost: Name) -> JSONResponse:
    """Return the sinks of a virtual host that the user may see."""
    found = management.broker.sinks.of(visitor.visible_vhost(vhost))
    return JSONResponse([_shown(sink) for sink in found if visitor.monitors or sink.user == visitor.name])


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
    found = visitor.vhost(vhost)
    sinks = management.broker.sinks
    sink = sinks.found(found, query)
    if sink is None:
        sink = sinks.attach(found, query, visitor.name, time.time_ns() // 1000)
    else:
        visitor.require_owner(sink.user, True)
        async with gate(sink):  # a commit that has begun is decided
            check_there(sink)
            sinks.attach(found, query, visitor.name)
    epoch = int(sink.epoch)
    await durable(management.store)
    return JSONResponse({"epoch": epoch, "last_batch": int(sink.last), "moving_rows": int(sink.moving_rows)})


@router.post("/staged-sinks/{vhost}/{query}/commit")
async def commit_batch(
    management: Managed, visitor: Asker, vhost: Name, query: Name, body: Body
) -> JSONResponse:
    """Commit a batch and publish its rows, unless the batch is committed already."""
    sink = attached(management, visitor, vhost, query, body)
    batch = count(body, "batch")
    wait = number(body, "wait") if body.get("wait") is not None else WAIT
    if not 0 <= wait <= WAIT_MAX:
        raise bad_request(f"wait {wait} is not from 0 to {WAIT_MAX} seconds")
    async with gate(sink):
        check_there(sink)
        check_epoch(sink, body)
        checkpoint = check_checkpoint(sink, body)
        committed = batch <= sink.last
        if committed:
            management.store.require()
            sink.drop([each for each in sink.attempts.values() if each.batch <= batch])
            await durable(management.store)
        elif sink.moving:
            why = sink.blocked or "it is being published"
            raise conflict(f"{sink.where()} is not done with batch {sink.last}: {why}")
        else:
            await _commit(management, visitor, sink, batch, checkpoint, body)
    status = 200 if await _idle(sink, wait) else 202
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
    sink = attached(management, visitor, vhost, query, body)
    batch = count(body, "batch")
    async with gate(sink):
        check_there(sink)
        check_epoch(sink, body)
        management.store.require()
        sink.drop([each for each in sink.attempts.values() if each.batch == batch])
    await durable(management.store)
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
    sink = owned(management, visitor, vhost, query)
    async with gate(sink):
        check_there(sink)
        if sink.moving and not force:
            raise conflict(
                f"{sink.where()} has yet to publish {sink.moving_rows} rows of batch {sink.last}: "
                "they are lost with force=true"
            )
        management.broker.sinks.delete(sink)
    await durable(management.store)
    return Response(status_code=204)


async def _commit(
    management: Management, visitor: Visitor, sink: Sink, batch: int, checkpoint: str, body: Fields
) -> None:
    """Decide on a batch. Raises ApiError and what the core raises: then nothing was decided.

    The user must still be allowed to publish every row: rights may have changed since the rows came.
    """
    mandatory = flag(body, "mandatory", True)
    winners = _winners(sink, batch, body)
    slices = Slices()
    known: Known = set()
    checker = checker_of(management, visitor, sink)
    for winner in winners:
        for entry in list(winner.queue.entries):
            checker.require_rights(content_of(entry.message, sink.virtual_host))
            try:
                why = objection(entry.message, sink.virtual_host, sink.open_rows, mandatory, known)
            except (BrokerError, ProtocolError) as error:
                why = error.text
            if why:
                raise conflict(
                    f"a row of attempt {winner.number} of {sink.where()} cannot be published: {why}"
                )
            await slices.breathe()
    check_there(sink)
    management.store.require()
    if _winners(sink, batch, body) != winners:
        raise conflict(f"the attempts of {sink.where()} have changed meanwhile")
    trouble = await on_disk(lambda done: sink.commit(batch, winners, mandatory, checkpoint, done))
    if trouble:
        raise ApiError(
            503, "service_unavailable", f"batch {batch} of {sink.where()} is not committed: {trouble}"
        )


def _winners(sink: Sink, batch: int, body: Fields) -> list[Attempt]:
    """The attempts that a commit names, which have all the rows that it says. Raises ApiError."""
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
    if rows != number(body, "rows"):
        raise conflict(f"the attempts of {sink.where()} have {rows} rows, not {number(body, 'rows')}")
    return list(winners.values())


async def _idle(sink: Sink, seconds: int) -> bool:
    """Wait until everything committed is published; false: it takes longer than that."""
    done = asyncio.Event()
    sink.idle(done.set)
    try:
        await asyncio.wait_for(done.wait(), seconds)
    except TimeoutError:
        sink.ignore(done.set)
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
            found.append((chunk_message(content[position:end], chunk.rows), int(chunk.rows)))
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
    for place, each in enumerate(messages):
        try:
            payload = payload_of(each, int(management.server.body_bytes_max))
            properties = properties_of(table(each, "properties"))
            frames = message_content(properties, payload, int(management.server.frame_max))
            exchange, key = text(each, "exchange").encode(), text(each, "routing_key").encode()
        except PreconditionFailed as error:
            raise PreconditionFailed(f"message {place}: {error.text}") from error
        kind, spelt, body_bytes = columns_of(frames)
        writer.add(0, kind, exchange, key, spelt, body_bytes)
        if writer.rows == ROWS_MAX:
            chunks.append(writer.take(0, 0))
    if writer.rows:
        chunks.append(writer.take(0, 0))
    return b"".join(chunks)
