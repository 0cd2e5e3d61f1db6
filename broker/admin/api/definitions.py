"""Definitions: exported and imported while the broker runs."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response, StreamingResponse

from broker.admin.api.answers import ApiError, await_sync, bad_request
from broker.admin.api.management import Managed, Management, require_memory
from broker.admin.api.policies import await_policies
from broker.admin.api.requests import Administrator, Name, read_body
from broker.admin.api.slices import Slices
from broker.admin.definitions.exporter import export_pieces, export_vhost_pieces
from broker.admin.definitions.importer import DefinitionsError, find_clear_passwords, import_steps
from broker.admin.json_documents import JsonError, read_json_steps

BYTES_MAX: Final = 64 * 2**20

router = APIRouter(tags=["definitions"])


async def _document(request: Request) -> Any:
    content = await read_body(request, BYTES_MAX)
    if not content or content.isspace():
        return None
    try:
        return await Slices().drain(read_json_steps(content))
    except JsonError as error:
        raise bad_request(f"not_json: {error}") from error


Document = Annotated[Any, Depends(_document)]


@router.get("/definitions")
async def export_all(management: Managed, visitor: Administrator) -> StreamingResponse:
    """Return all definitions, that is everything but messages, as a JSON object."""
    version = management.state.version
    return _stream(export_pieces(management.broker, management.users, management.dispatchers, version))


@router.get("/definitions/{vhost}")
async def export_one(management: Managed, visitor: Administrator, vhost: Name) -> StreamingResponse:
    """Return the policies, parameters, queues, exchanges, bindings and dispatchers of a virtual host."""
    return _stream(
        export_vhost_pieces(visitor.vhost(vhost), management.dispatchers, management.state.version)
    )


@router.post("/definitions", status_code=204)
async def import_all(management: Managed, visitor: Administrator, document: Document) -> Response:
    """Import definitions: all of them or none. Present objects of the same description stay."""
    await _import(management, document, None)
    return Response(status_code=204)


@router.post("/definitions/{vhost}", status_code=204)
async def import_one(
    management: Managed, visitor: Administrator, vhost: Name, document: Document
) -> Response:
    """Import definitions into a virtual host."""
    visitor.vhost(vhost)
    await _import(management, document, vhost)
    return Response(status_code=204)


async def _import(management: Management, document: Any, vhost: str | None) -> None:
    require_memory(management)
    passwords = {
        user: await management.make_password(password)
        for user, password in find_clear_passwords(document).items()
    }
    steps = import_steps(
        document, management.broker, management.users, management.dispatchers, passwords, vhost
    )
    try:
        await Slices().drain(steps)
    except DefinitionsError as error:
        raise ApiError(400, "bad_request", "\n".join(error.problems)) from error
    for virtual_host in list(management.broker.vhosts.values()):
        await await_policies(virtual_host)
    await await_sync(management.store)


def _stream(pieces: Iterator[str]) -> StreamingResponse:
    return StreamingResponse(
        _gathered(pieces),
        media_type="application/json",
        headers={"content-disposition": 'attachment; filename="definitions.json"'},
    )


async def _gathered(pieces: Iterator[str]) -> AsyncIterator[str]:
    """Join pieces into larger ones, and let other work run between them."""
    slices = Slices()
    waiting: list[str] = []
    for piece in pieces:
        waiting.append(piece)
        if len(waiting) >= 200:
            yield "".join(waiting)
            waiting.clear()
        await slices.breathe()
    yield "".join(waiting)
