"""Definitions: exported and imported while the broker runs."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from email import message_from_bytes
from email.policy import HTTP as HTTP_POLICY
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response, StreamingResponse

from broker.admin.api.answers import ApiError, JSONResponse, await_sync, bad_request
from broker.admin.api.management import Managed, Management, require_memory
from broker.admin.api.policies import await_policies
from broker.admin.api.requests import Administrator, Name, read_body
from broker.admin.api.slices import Slices
from broker.admin.definitions.exporter import ForRabbitMQ, export_pieces, export_vhost_pieces
from broker.admin.definitions.importer import (
    DefinitionsError,
    Skipped,
    find_clear_passwords,
    import_steps,
)
from broker.admin.json_documents import JsonError, read_json_steps

BYTES_MAX: Final = 64 * 2**20

router = APIRouter(tags=["definitions"])


def _file_in_form(kind: str, form: bytes) -> bytes:
    """Return the content of the part `file` of a form. [RFC 7578] Raises ApiError."""
    head = f"Content-Type: {kind}\r\n\r\n".encode("latin-1", "replace")
    for part in message_from_bytes(head + form, policy=HTTP_POLICY).iter_parts():
        if part.get_param("name", header="content-disposition") == "file":
            content = part.get_payload(decode=True)
            return content if isinstance(content, bytes) else b""
    raise bad_request("the form has no part 'file'")


async def _document(request: Request) -> Any:
    content = await read_body(request, BYTES_MAX)
    kind = request.headers.get("content-type", "")
    if kind.lower().startswith("multipart/form-data"):
        content = await asyncio.to_thread(_file_in_form, kind, content)
    if not content or content.isspace():
        return None
    try:
        return await Slices().drain(read_json_steps(content))
    except JsonError as error:
        raise bad_request(f"not_json: {error}") from error


Document = Annotated[Any, Depends(_document)]

AMQPD: Final = "amqpd"
RABBITMQ: Final = "rabbitmq"
Product = Annotated[
    str,
    Query(
        alias="for",
        description="`rabbitmq`: leave out what RabbitMQ refuses, and name it in `left_out`. "
        "`amqpd`, the default: leave out nothing.",
    ),
]

SKIP: Final = "skip"
REFUSE: Final = "refuse"
Unsupported = Annotated[
    str,
    Query(
        description="`skip`: pass over what amqpd does not have, and queues and exchanges that exist with "
        "another description. The answer (200) has a line for each. `refuse`, the default: refuse the import."
    ),
]


@router.get("/definitions")
@router.get("/all-configuration")  # RabbitMQ's former name
async def export_all(
    management: Managed, visitor: Administrator, product: Product = AMQPD
) -> StreamingResponse:
    """Return all definitions, that is everything but messages, as a JSON object."""
    version, adaptation = management.state.version, _adaptation(product)
    return _stream(
        export_pieces(management.broker, management.users, management.dispatchers, version, adaptation)
    )


@router.get("/definitions/{vhost}")
async def export_one(
    management: Managed, visitor: Administrator, vhost: Name, product: Product = AMQPD
) -> StreamingResponse:
    """Return the policies, parameters, queues, exchanges, bindings and dispatchers of a virtual host."""
    version, adaptation = management.state.version, _adaptation(product)
    return _stream(export_vhost_pieces(visitor.vhost(vhost), management.dispatchers, version, adaptation))


def _adaptation(product: str) -> ForRabbitMQ | None:
    if product not in (AMQPD, RABBITMQ):
        raise bad_request(f"for '{product}' is not known, allowed: {AMQPD}, {RABBITMQ}")
    return ForRabbitMQ() if product == RABBITMQ else None


@router.post("/definitions", status_code=204)
@router.post("/all-configuration", status_code=204)
async def import_all(
    management: Managed, visitor: Administrator, document: Document, unsupported: Unsupported = REFUSE
) -> Response:
    """Import definitions: all of them or none. Present objects of the same description stay."""
    return await _import(management, document, None, unsupported)


@router.post("/definitions/{vhost}", status_code=204)
async def import_one(
    management: Managed,
    visitor: Administrator,
    vhost: Name,
    document: Document,
    unsupported: Unsupported = REFUSE,
) -> Response:
    """Import definitions into a virtual host."""
    visitor.vhost(vhost)
    return await _import(management, document, vhost, unsupported)


async def _import(management: Management, document: Any, vhost: str | None, unsupported: str) -> Response:
    if unsupported not in (SKIP, REFUSE):
        raise bad_request(f"unsupported '{unsupported}' is not known, allowed: {SKIP}, {REFUSE}")
    skipped = Skipped() if unsupported == SKIP else None
    require_memory(management)
    passwords = {
        user: await management.make_password(password)
        for user, password in find_clear_passwords(document).items()
    }
    steps = import_steps(
        document, management.broker, management.users, management.dispatchers, passwords, vhost, skipped
    )
    try:
        await Slices().drain(steps)
    except DefinitionsError as error:
        raise ApiError(400, "bad_request", "\n".join(error.problems)) from error
    for virtual_host in list(management.broker.vhosts.values()):
        await await_policies(virtual_host)
    await await_sync(management.store)
    return Response(status_code=204) if skipped is None else JSONResponse({"skipped": skipped.lines})


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
