"""The audit log of the HTTP API: a line for each change by an operator, and for each refused request.

Requests that carry messages or report progress are no changes by operators: the journal has what happens to
messages.
"""

import json
import time
from contextlib import suppress
from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker.admin.app import is_changing
from broker.logs import SeldomEach

USER: Final = "amqpd.user"
"""The key of a request's scope under which the user is, once the user has logged in."""

UNLOGGED_TAGS: Final = frozenset(
    {"messages", "staged sinks", "staging", "readers", "health", "previews", "log-in"}
)
"""The parts of the API whose requests are no changes by operators."""

HIDDEN_PATH: Final = "hidden path"
"""The tag of routes whose paths have a secret. The log has the route instead of the path."""

REFUSED: Final = (401, 403)
REASON_BYTES_MAX: Final = 4096

_log = structlog.get_logger("amqpd.audit")


class Audit:
    """Logs the requests that pass through it, once they are answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._seldom = SeldomEach(time.monotonic)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request (ASGI)."""
        status = 0
        body = b""

        async def note(message: Message) -> None:
            nonlocal status, body
            if message["type"] == "http.response.start":
                status = message["status"]
            elif status in REFUSED and len(body) < REASON_BYTES_MAX:
                body += message.get("body", b"")
            await send(message)

        await self._app(scope, receive, note)
        user = scope.get(USER)
        if user is None:
            return
        host, port = scope.get("client") or ("", 0)
        about = {
            "user": user,
            "peer": f"{host}:{port}",
            "method": scope["method"],
            "path": _path(scope),
        }
        if status in REFUSED:
            names = (user, host, scope["method"], about["path"])
            self._seldom.warning(_log, "request refused", names, **about, reason=_reason(body))
        elif status < 400 and is_changing(scope["method"], scope["path"]) and not _is_traffic(scope):
            _log.info("changed by an operator", **about, status=status)


def _tags(scope: Scope) -> list[str]:
    """Return the tags of the route of a request."""
    tags: list[str] = getattr(scope.get("route"), "tags", [])
    return tags


def _is_traffic(scope: Scope) -> bool:
    return not UNLOGGED_TAGS.isdisjoint(_tags(scope))


def _path(scope: Scope) -> str:
    return str(scope["route"].path) if HIDDEN_PATH in _tags(scope) else str(scope["path"])


def _reason(body: bytes) -> str:
    with suppress(ValueError):
        document = json.loads(body)
        if isinstance(document, dict):
            return str(document.get("reason", ""))
    return ""
