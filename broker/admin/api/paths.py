"""Names in paths: `%2F` is a slash within a name, not between two."""

from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import Path
from pydantic import AfterValidator
from starlette.types import ASGIApp, Receive, Scope, Send

from broker.admin.api.errors import bad_request


class RawPaths:
    """Has paths under `prefix` matched as they were sent, so that an encoded slash does not split a name."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request (ASGI)."""
        raw: Any = scope.get("raw_path")
        if scope["type"] == "http" and raw and scope["path"].startswith(self._prefix):
            path = raw.split(b"?", 1)[0].decode("ascii", "replace")
            if len(path) > len(self._prefix) and path.endswith("/"):
                path = path[:-1]  # RabbitMQ takes both, and an empty name is none
            scope = dict(scope) | {"path": path}
        await self._app(scope, receive, send)


def decoded(text: str) -> str:
    """A name as it was meant. Raises ApiError if it is not UTF-8."""
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        raise bad_request(f"'{text}' in the path is not UTF-8") from error


Name = Annotated[str, Path(), AfterValidator(decoded)]
"""A name that stands in the path."""


def _exchange(text: str) -> str:
    name = decoded(text)
    return "" if name == "amq.default" else name


ExchangeName = Annotated[str, Path(), AfterValidator(_exchange)]
"""The name of an exchange; the default exchange, which has none, is called `amq.default`."""
