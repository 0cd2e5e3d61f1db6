"""The journal for programs: its end, its files, and their bytes. [amqpd]

The journal records all virtual hosts, so only users who may see everything may read it.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from broker.admin.api.answers import ApiError, JSONResponse, bad_request, not_found
from broker.admin.api.management import Managed, Management
from broker.admin.api.requests import Asker, Name, Visitor
from broker.admin.api.slices import Slices
from broker.journal.catalogue import Chosen, ServedJournal
from broker.journal.verification import check_sealed_files
from protocol.journal.catalogue import File

BLOCK_BYTES: Final = 512 * 1024  # read at once
CHECKED_BYTES: Final = 1 << 30  # read in a few seconds
FILES_MAX: Final = 1000  # in one answer
EVENTS_MAX: Final = 1000  # in one answer
LINE_BYTES: Final = 1 << 20
SEARCH_SECONDS: Final = 120.0
INCOMPLETE: Final = 2  # the status of the command without such a message, or with unreadable parts
NICE: Final = 10
"""The priority of a search, so that the search leaves the processor to the broker. [nice(1)]"""
LIMITS: Final = ("off", "lifecycle", "full")

router = APIRouter(prefix="/journal", tags=["journal"])


@router.get("")
async def get_journal(management: Managed, visitor: Asker) -> JSONResponse:
    """Return the state of the journal.

    `next` is the number of the next event, `written` the number of the last readable event. `limit` is the
    level that free disk space permits. `nodes` has, for each node with a journal in the folder, the number of
    its first event and the number behind its last event. There, `null` means that only the bytes of the last
    file tell.
    """
    journal = await _journal(management, visitor)
    recorder, writer = journal.recorder, journal.writer
    state = {
        "node": writer.node,
        "level": recorder.level,
        "limit": LIMITS[writer.limit],
        "failure": writer.failure,
        "lost": int(writer.lost),
        "next": int(writer.encoder.seq),
        "written": writer.behind - 1,
        "nodes": {node: extent._asdict() for node, extent in journal.extents().items()},
    }
    return JSONResponse(state)


@router.get("/files")
async def list_files(
    management: Managed,
    visitor: Asker,
    node: Annotated[str | None, Query(description="Name of the node; this node by default.")] = None,
    start: Annotated[int, Query(alias="from", ge=0, lt=2**62, description="Number of the first event.")] = 0,
    end: Annotated[
        int | None, Query(alias="to", ge=0, lt=2**62, description="Number behind the last event.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=FILES_MAX, description="Files of an answer at most.")] = FILES_MAX,
) -> JSONResponse:
    """Return the files with the events of a node from one number up to another, exclusively, in order.

    `more` says whether further files follow. A sealed file whose raw file is still present is listed twice.
    """
    journal = await _journal(management, visitor)
    named = journal.writer.node if node is None else node
    if named not in journal.extents():
        raise not_found(f"node '{named}' has no journal here")
    slices = Slices()
    files: list[dict[str, Any]] = []
    for file, size in journal.files(named, start, end):
        if len(files) >= limit and file.first > files[-1]["first"]:
            return JSONResponse({"files": files, "more": True})
        files.append(_shown(file, size))
        await slices.breathe()
    return JSONResponse({"files": files, "more": False})


@router.get("/check")
async def check_files(
    management: Managed,
    visitor: Asker,
    start: Annotated[
        int, Query(alias="from", ge=0, lt=2**62, description="The `next` of an earlier answer.")
    ] = 0,
) -> JSONResponse:
    """Return the faults of sealed files: missing, present twice, or unlike the manifest.

    An answer covers a part of the files. `next` is the number for `from` in the next request; null means the
    end. `files` is the number of sealed files.
    """
    journal = await _journal(management, visitor)
    try:
        held = await asyncio.to_thread(check_sealed_files, journal.writer.folder, start, CHECKED_BYTES)
    except OSError as error:
        reason = f"the journal cannot be read: {error.strerror}"
        raise ApiError(503, "service_unavailable", reason) from error
    faults = [fault._asdict() for fault in held.faults]
    return JSONResponse({"faults": faults, "files": held.files, "next": held.next})


@router.get("/files/{name}")
async def get_file(
    management: Managed,
    visitor: Asker,
    name: Name,
    start: Annotated[int, Query(alias="from", ge=0, lt=2**62, description="First byte.")] = 0,
    end: Annotated[
        int | None,
        Query(alias="to", ge=0, lt=2**62, description="Position behind the last byte; the end by default."),
    ] = None,
) -> StreamingResponse:
    """Return the bytes of a file from one position up to another, exclusively.

    Without `to` the bytes end with the last whole block.
    """
    journal = await _journal(management, visitor)
    if end is not None and end < start:
        raise bad_request(f"there are no bytes from {start} to {end}")
    chosen = journal.open(name)
    if chosen is None:
        raise not_found(f"the journal has no file '{name}', or not any more")
    behind = chosen.size if end is None else min(end, chosen.size)
    if start > chosen.size:
        chosen.file.close()
        raise ApiError(416, "not_satisfiable", f"file '{name}' has {chosen.size} bytes, not {start}")
    headers = {"content-length": str(behind - start)}
    return StreamingResponse(
        _bytes(chosen, start, behind), media_type="application/octet-stream", headers=headers
    )


@router.get("/messages")
async def trace_messages(
    request: Request,
    management: Managed,
    visitor: Asker,
    message_id: Annotated[
        str | None, Query(max_length=255, description="Property message-id of the message.")
    ] = None,
    uid: Annotated[
        int | None,
        Query(alias="msg_uid", ge=0, lt=2**63, description="Number of the message."),
    ] = None,
) -> JSONResponse:
    """Return the life of a message: its events, and those of its dead letters and copies, in order.

    `more` says that the answer has only the first events. `damages` are unreadable parts of the journal. A
    process of low priority reads the journal, one request at a time.
    """
    journal = await _journal(management, visitor)
    if (message_id is None) == (uid is None):
        raise bad_request("which message is meant: set either message_id or msg_uid")
    if message_id is not None and "\0" in message_id:
        raise bad_request("message_id has a NUL character, which no journal can be searched for")
    choice = f"--msg-uid={uid}" if message_id is None else f"--message-id={message_id}"
    searching: asyncio.Lock = request.app.state.journal_search
    if searching.locked():
        raise ApiError(503, "service_unavailable", "another request searches the journal: try again later")
    async with searching:
        return await _search(str(journal.writer.folder), choice)


async def _search(folder: str, choice: str) -> JSONResponse:
    """Run `amqpd journal show`, and return its output. Raises ApiError."""
    arguments = (sys.executable, "-m", "broker", "journal", "show", folder, choice, "--json")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*arguments, stdout=pipe, stderr=pipe, limit=LINE_BYTES)
    os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
    assert process.stdout is not None, "it is a pipe"
    assert process.stderr is not None, "it is a pipe"
    errors = asyncio.create_task(process.stderr.read())
    try:
        async with asyncio.timeout(SEARCH_SECONDS):
            events: list[Any] = []
            async for line in process.stdout:
                if len(events) == EVENTS_MAX:
                    return JSONResponse({"events": events, "more": True, "damages": []})
                events.append(json.loads(line))
            reports = (await errors).decode(errors="replace").splitlines()
            status = await process.wait()
    except TimeoutError as error:
        reason = f"the search took more than {SEARCH_SECONDS} seconds: use `amqpd journal show {folder}`"
        raise ApiError(503, "service_unavailable", reason) from error
    finally:
        errors.cancel()
        if process.returncode is None:
            process.kill()
            await process.wait()
    if status not in (0, INCOMPLETE):
        reason = reports[-1] if reports else f"the search ended with status {status}"
        raise ApiError(503, "service_unavailable", reason)
    damages = [line for line in reports if not line.startswith("amqpd journal: ")]
    return JSONResponse({"events": events, "more": False, "damages": damages})


async def _bytes(chosen: Chosen, at: int, behind: int) -> AsyncIterator[bytes]:
    """Yield bytes of a file, then close the file. A thread reads them, as they may come from the disk."""
    try:
        while at < behind:
            data = await asyncio.to_thread(os.pread, chosen.file.fileno(), min(BLOCK_BYTES, behind - at), at)
            if not data:
                raise ApiError(410, "gone", "the file has been cut")
            at += len(data)
            yield data
    finally:
        chosen.file.close()


async def _journal(management: Management, visitor: Visitor) -> ServedJournal:
    """Return the journal with its present files.

    Raises ApiError: the visitor may not read it, or it is off.
    """
    visitor.require_monitor()
    journal = management.journal
    try:
        await Slices().drain(journal.refresh())
    except OSError as error:
        reason = f"the journal cannot be read: {error.strerror}"
        raise ApiError(503, "service_unavailable", reason) from error
    if not journal.extents():
        raise not_found(
            "this broker journals nothing: 'journal' is off, no queue or policy says otherwise, and there "
            "are no files of an earlier journal"
        )
    return journal


def _shown(file: File, size: int | None) -> dict[str, Any]:
    return {**file._asdict(), "bytes": size}
