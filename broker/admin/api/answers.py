"""Answers: JSON of any stored text, refusals, and answers that wait for the disk."""

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

from broker.admin.sessions import is_of_page
from broker.core.errors import AccessRefused, BrokerError, NotAllowed, NotFound, Protected, StoreFailed
from broker.core.ports import DurableWaiter, MessageStore

ESCAPED: Final = "amqpd.escaped"
"""The error handler of codecs that writes characters without UTF-8 as escapes with backslashes."""

REALM: Final = "amqpd"
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_TITLES: Final = {404: "Object Not Found", 405: "Method Not Allowed", 413: "payload_too_large"}


def encode_json(content: Any) -> bytes:
    """Return JSON in UTF-8. Halves of surrogate pairs, as in a name that is not UTF-8, become escapes."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", ESCAPED)


class JSONResponse(PlainJSONResponse):
    """An answer in JSON."""

    def render(self, content: Any) -> bytes:
        """Return the body of the answer."""
        return encode_json(content)


def _escape(error: UnicodeError) -> tuple[bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    halves = error.object[error.start : error.end]
    return b"".join(_escape_octet(ord(half)) for half in halves), error.end


def _escape_octet(half: int) -> bytes:
    """Return the escape of an octet that is not UTF-8, or of another half of a surrogate pair."""
    return b"\\\\x%02x" % (half - 0xDC00) if 0xDC80 <= half <= 0xDCFF else b"\\\\u%04x" % half


codecs.register_error(ESCAPED, _escape)


class ApiError(Exception):
    """A refused request."""

    def __init__(self, status: int, error: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.error = error
        self.reason = reason


class PeerLeftError(Exception):
    """The sender of the request has disconnected: no answer is needed."""


def bad_request(reason: str) -> ApiError:
    """Return the refusal of a malformed request."""
    return ApiError(400, "bad_request", reason)


def not_found(reason: str = "Not Found") -> ApiError:
    """Return the refusal of a request for an object that does not exist."""
    return ApiError(404, "Object Not Found", reason)


def not_authorised(reason: str) -> ApiError:
    """Return the refusal of a request that the user may not send."""
    return ApiError(401, "not_authorised", reason)


def error_response(status: int, error: str, reason: str, of_page: bool = False) -> JSONResponse:
    """Return the answer to a refused request.

    A browser asks for a password in a window of its own if it is challenged. The page has a form for that.
    """
    challenges = error == "not_authorized" and not of_page
    headers = {"www-authenticate": f'Basic realm="{REALM}"'} if challenges else None
    return JSONResponse({"error": error, "reason": reason}, status_code=status, headers=headers)


def add_error_handlers(app: FastAPI) -> None:
    """Answer all refusals in the same form."""

    @app.exception_handler(ApiError)
    async def refused(request: Request, error: ApiError) -> JSONResponse:
        of_page = is_of_page(request.headers.raw)
        return error_response(error.status, error.error, error.reason, of_page)

    @app.exception_handler(PeerLeftError)
    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: Exception) -> Response:
        return Response(status_code=400)  # is not sent

    @app.exception_handler(BrokerError)
    async def refused_by_core(request: Request, error: BrokerError) -> JSONResponse:
        if isinstance(error, NotFound):
            return error_response(404, "not_found", error.text)
        if isinstance(error, (AccessRefused, NotAllowed)):
            return error_response(401, "not_authorised", error.text)
        if isinstance(error, Protected):
            return error_response(412, "precondition_failed", error.text)
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
    """Return all methods of the path of a request. [RFC 9110 15.5.6]"""
    methods = {"OPTIONS"}
    for method in METHODS:
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes):
            methods.add(method)
    if "GET" in methods:
        methods.add("HEAD")
    return ", ".join(method for method in METHODS if method in methods)


class _Durable(DurableWaiter):
    """Resolves a future when the present batch is on disk."""

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_durable(self, batch: int) -> None:
        """Resolve the future: the change is on disk."""
        if not self.future.done():
            self.future.set_result(None)

    def on_store_failed(self, reason: str) -> None:
        """Fail the future: the change will not be on disk."""
        if not self.future.done():
            self.future.set_exception(
                ApiError(503, "service_unavailable", f"the log has stopped, this may be lost: {reason}")
            )


async def await_disk(begin: Callable[[Callable[[str], None]], None]) -> str:
    """Start a change and wait until it is on disk; return "", or the reason why it will not be on disk.

    `begin` starts the change, and reports the result to the function that it is given.
    """
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def tell(trouble: str) -> None:
        if not future.done():
            future.set_result(trouble)

    begin(tell)
    return await future


async def await_sync(store: MessageStore) -> None:
    """Wait until everything appended so far is on disk. Raises ApiError if it may be lost."""
    waiter = _Durable()
    store.wait(waiter)
    await waiter.future
