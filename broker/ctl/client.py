"""Requests to the HTTP API of a broker."""

import base64
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

TIMEOUT_SECONDS: Final = 60


class RefusedError(Exception):
    """The broker does not do what it was asked for; the text says why."""


class UnreachableError(Exception):
    """There is no broker there, or none that answers as one."""


class Client:
    """One broker, asked as one user. Paths are given in segments: a slash in a name is no separator.

    Raises UnreachableError at once for an address that is not one of HTTP.
    """

    def __init__(self, url: str, user: str, password: str) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
            raise UnreachableError(f"'{url}' is not an address like http://127.0.0.1:15672")
        self._base = url.rstrip("/") + "/api/"
        credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"authorization": f"Basic {credentials}", "content-type": "application/json"}

    def get(self, *path: str, **query: str) -> Any:
        """What is there. Raises RefusedError, UnreachableError."""
        return self._ask("GET", path, None, query)

    def put(self, *path: str, body: Mapping[str, object]) -> None:
        """Make or change something. Raises RefusedError, UnreachableError."""
        self._ask("PUT", path, body, {})

    def post(self, *path: str, body: object) -> Any:
        """Have something done. Raises RefusedError, UnreachableError."""
        return self._ask("POST", path, body, {})

    def delete(self, *path: str, reason: str = "", **query: str) -> None:
        """Take something away. Raises RefusedError, UnreachableError."""
        self._ask("DELETE", path, None, query, {"x-reason": reason} if reason else {})

    def _ask(
        self,
        method: str,
        path: tuple[str, ...],
        body: object,
        query: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        url = self._base + "/".join(quote(segment, safe="") for segment in path)
        if query:
            url += "?" + urlencode({name.replace("_", "-"): value for name, value in query.items()})
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310  the scheme was checked
            url, data, {**self._headers, **(headers or {})}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
                content = answer.read()
            return json.loads(content) if content else None
        except urllib.error.HTTPError as error:
            with error:
                raise RefusedError(_reason(error.code, error.read())) from error
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            raise UnreachableError(
                f"no answer from {self._base}: {getattr(error, 'reason', error)}"
            ) from error
        except ValueError as error:
            raise UnreachableError(f"{self._base} does not answer as a broker") from error


def _reason(status: int, content: bytes) -> str:
    try:
        found = json.loads(content)
        return str(found["reason"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {status}"
