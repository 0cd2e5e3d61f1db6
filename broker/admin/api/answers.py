"""Answers: JSON that can hold whatever a client has sent, refusals, and answers that wait for the disk."""

import asyncio
import codecs
import json
from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse as PlainJSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from broker.core.errors import AccessRefused, BrokerError, NotAllowed, NotFound, StoreFailed
from broker.core.ports import DurableWaiter, MessageStore

ESCAPED: Final = "amqpd.escaped"
"""An error handler of codecs: what UTF-8 cannot spell is written with backslashes, as JSON text."""

REALM: Final = "amqpd"
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_TITLES: Final = {404: "Object Not Found", 405: "Method Not Allowed", 413: "payload_too_large"}


class JSONResponse(PlainJSONResponse):
    """An answer in JSON. Half a character, as of a name that is not UTF-8, is shown as its number."""

    def render(self, content: Any) -> bytes:
        """Write `content`."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", ESCAPED)


def _escape(error: UnicodeError) -> tuple[bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    halves = error.object[error.start : error.end]
    return b"".join(_escaped(ord(half)) for half in halves), error.end


def _escaped(half: int) -> bytes:
    """An octet that is not UTF-8 as its number, any other half of a character as the half's."""
    return b"\\\\x%02x" % (half - 0xDC00) if 0xDC80 <= half <= 0xDCFF else b"\\\\u%04x" % half


codecs.register_error(ESCAPED, _escape)


class ApiError(Exception):
    """A request that is refused."""

    def __init__(self, status: int, error: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.error = error
        self.reason = reason


class PeerLeftError(Exception):
    """The sender of the request has disconnected: nobody waits for an answer."""


def bad_request(reason: str) -> ApiError:
    """The request makes no sense as it is."""
    return ApiError(400, "bad_request", reason)


def not_found(reason: str = "Not Found") -> ApiError:
    """Return the refusal of a request for an object that does not exist."""
    return ApiError(404, "Object Not Found", reason)


def not_authorised(reason: str) -> ApiError:
    """We know who it is, and may not do it."""
    return ApiError(401, "not_authorised", reason)


def error_response(status: int, error: str, reason: str) -> JSONResponse:
    """The answer to a request that is refused."""
    headers = {"www-authenticate": f'Basic realm="{REALM}"'} if error == "not_authorized" else None
    return JSONResponse({"error": error, "reason": reason}, status_code=status, headers=headers)


def add_error_handlers(app: FastAPI) -> None:
    """Have all refusals answered in the one form."""

    @app.exception_handler(ApiError)
    async def refused(request: Request, error: ApiError) -> JSONResponse:
        return error_response(error.status, error.error, error.reason)

    @app.exception_handler(PeerLeftError)
    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: Exception) -> Response:
        return Response(status_code=400)  # goes nowhere

    @app.exception_handler(BrokerError)
    async def refused_by_core(request: Request, error: BrokerError) -> JSONResponse:
        if isinstance(error, NotFound):
            return error_response(404, "not_found", error.text)
        if isinstance(error, (AccessRefused, NotAllowed)):
            return error_response(401, "not_authorised", error.text)
        if isinstance(error, StoreFailed):
            return error_response(503, "service_unavailable", error.text)
        return error_response(400, "bad_request", error.text)

    @app.exception_handler(RequestValidationError)
    async def refused_by_parameters(request: Request, error: RequestValidationError) -> JSONResponse:
        wrong = error.errors()[0]
        return error_response(400, "bad_request", f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}")

    @app.exception_handler(HTTPException)
    async def refused_by_router(request: Request, error: HTTPException) -> Response:
        title = _TITLES.get(error.status_code, str(error.detail))
        answer: Response = error_response(error.status_code, title, str(error.detail))
        if error.status_code == 405:
            if request.method == "OPTIONS":
                answer = Response()
            answer.headers["allow"] = _methods(request)
        return answer


def _methods(request: Request) -> str:
    """All methods of the path of a request. [RFC 9110 15.5.6]"""
    found = {"OPTIONS"}
    for method in METHODS:
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes):
            found.add(method)
    if "GET" in found:
        found.add("HEAD")
    return ", ".join(method for method in METHODS if method in found)


class _Durable(DurableWaiter):
    """Resolves a future when the batch that is being filled is on disk."""

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_durable(self, batch: int) -> None:
        """The change is on disk (DurableWaiter)."""
        if not self.future.done():
            self.future.set_result(None)

    def on_store_failed(self, reason: str) -> None:
        """The change will not be on disk (DurableWaiter)."""
        if not self.future.done():
            self.future.set_exception(
                ApiError(503, "service_unavailable", f"the log has stopped, this may be lost: {reason}")
            )


async def on_disk(begin: Callable[[Callable[[str], None]], None]) -> str:
    """Begin what tells when it is on disk, with "", or why it will not be; returns that when it is told."""
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def tell(trouble: str) -> None:
        if not future.done():
            future.set_result(trouble)

    begin(tell)
    return await future


async def durable(store: MessageStore) -> None:
    """Wait until everything appended so far is on disk. Raises ApiError if it may be lost."""
    waiter = _Durable()
    store.wait(waiter)
    await waiter.future
