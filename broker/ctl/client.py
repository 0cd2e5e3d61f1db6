"""Requests to the HTTP API of a broker."""

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

UNAUTHORIZED: Final = 401
TIMEOUT_SECONDS: Final = 60


class RefusedError(Exception):
    """The broker refuses the request; the text has the reason."""


class UnreachableError(Exception):
    """No broker answers at the address."""


class InvalidValueError(Exception):
    """A value cannot be sent to any broker; the text says which value and why."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirect: only the given address gets the password."""

    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect: the answer counts as a refusal."""


class Client:
    """A client of the HTTP API of one broker, with one user. The client uses no proxy.

    `ca` is a file with the authorities that may have signed the broker's certificate, by default those of the
    system. `certificate` is a file with the certificate and key of the client.

    Paths are given in segments: a slash in a name is no separator. Raises UnreachableError at once for an
    address that is not an HTTP URL. Raises MeaninglessError for a user or password that is not UTF-8, and for
    unusable files.
    """

    def __init__(self, url: str, user: str, password: str, ca: str = "", certificate: str = "") -> None:
        if not _is_http(url):
            raise UnreachableError(f"{url!r} is not an address like http://127.0.0.1:15672")
        self._base = url.rstrip("/") + "/api/"
        handlers: list[Any] = [urllib.request.ProxyHandler({}), _NoRedirect]
        if url.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=_make_tls_context(ca, certificate)))
        self._opener = urllib.request.build_opener(*handlers)
        self._user = user
        for part in (user, password):
            _require_text(part)
        credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"authorization": f"Basic {credentials}", "content-type": "application/json"}

    def get(self, *path: str, **query: str) -> Any:
        """Get an object or a list. Raises RefusedError, UnreachableError."""
        return self._ask("GET", path, None, query)

    def put(self, *path: str, body: Mapping[str, object]) -> None:
        """Create or change an object. Raises RefusedError, UnreachableError."""
        self._ask("PUT", path, body, {})

    def patch(self, *path: str, body: Mapping[str, object]) -> None:
        """Change a part of an object. Raises RefusedError, UnreachableError."""
        self._ask("PATCH", path, body, {})

    def post(self, *path: str, body: object, **query: str) -> Any:
        """Run an action. Raises RefusedError, UnreachableError."""
        return self._ask("POST", path, body, query)

    def delete(self, *path: str, reason: str = "", **query: str) -> None:
        """Delete an object.

        Raises RefusedError, UnreachableError; MeaninglessError for a reason that is not UTF-8.
        """
        _require_text(reason)
        if not reason.isprintable():
            raise InvalidValueError(f"the reason {reason!r} is not one line of printable text")
        as_bytes = reason.encode().decode("latin-1")  # headers are bytes, written as characters
        self._ask("DELETE", path, None, query, {"x-reason": as_bytes} if reason else {})

    def _ask(
        self,
        method: str,
        path: tuple[str, ...],
        body: object,
        query: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        for part in (*path, *query.values()):
            _require_text(part)
        if not all(path):
            raise InvalidValueError("a name is empty")  # the path would be that of another object
        url = self._base + "/".join(quote(segment, safe="") for segment in path)
        if query:
            url += "?" + urlencode({name.replace("_", "-"): value for name, value in query.items()})
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310  the scheme was checked
            url, data, {**self._headers, **(headers or {})}, method=method
        )
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                content = answer.read()
            return json.loads(content) if content else None
        except urllib.error.HTTPError as error:
            with error:
                reason = _reason(error.code, error.read())
            if error.code == UNAUTHORIZED:
                reason = (
                    f"{self._base} refuses the log-in of user '{self._user}': {reason}; "
                    "set AMQPCTL_USER (--user) and AMQPCTL_PASSWORD"
                )
            raise RefusedError(reason) from error
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            raise UnreachableError(
                f"no answer from {self._base}: {getattr(error, 'reason', error)}"
            ) from error
        except (ValueError, RecursionError) as error:  # RecursionError: nested too deeply
            raise UnreachableError(f"{self._base} does not answer as amqpd's HTTP API does") from error


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:  # unbalanced brackets
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc) and url.isascii()


def _make_tls_context(ca: str, certificate: str) -> ssl.SSLContext:
    """Make a context that trusts `ca` and shows `certificate`. Raises MeaninglessError."""
    file = ca
    try:
        context = ssl.create_default_context(cafile=ca or None)
        file = certificate
        if certificate:
            context.load_cert_chain(certificate)
    except OSError as error:
        raise InvalidValueError(f"{file}: {error.strerror or error}") from error
    return context


def _require_text(text: str) -> None:
    """Refuse an argument or variable whose bytes are not UTF-8. Raises MeaninglessError."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValueError(f"{text!r} is not valid UTF-8") from error


def _reason(status: int, content: bytes) -> str:
    try:
        document = json.loads(content)
        return str(document["reason"])
    except (ValueError, KeyError, TypeError, RecursionError):  # RecursionError: nested too deeply
        return f"HTTP {status}"
