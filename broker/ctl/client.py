"""Requests to the HTTP API of a broker, and advice for requests that fail."""

import base64
import http.client
import json
import re
import shlex
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

UNAUTHORIZED: Final = 401
NOT_FOUND: Final = 404
LOGIN: Final = "not_authorized"
"""The error of a refused log-in. The status 401 with another error is a missing right."""

TIMEOUT_SECONDS: Final = 60.0
LONG_SECONDS: Final = 3600.0
"""The time-out of requests that a broker may work on for long, such as an import."""

LISTS: Final = {
    "vhost": "list_vhosts",
    "queue": "list_queues",
    "exchange": "list_exchanges",
    "binding": "list_bindings",
    "user": "list_users",
    "connection": "list_connections",
    "policy": "list_policies",
    "operator policy": "list_operator_policies",
    "global parameter": "list_global_parameters",
    "parameter": "list_parameters",
    "shovel": "shovel_status",
    "federation link": "federation_status",
    "dispatcher": "list_dispatchers",
    "setting": "environment",
    "node": "status",
}
"""The command that lists the objects of each kind, by the kind's name in refusals."""

WITHOUT_VHOST: Final = frozenset(
    {"vhost", "user", "connection", "global parameter", "shovel", "federation link", "setting", "node"}
)
"""The kinds whose lists have all virtual hosts, or none."""

_ABSENT: Final = re.compile(r"no (?P<kind>[a-z ]+) '")
_WHERE: Final = re.compile(r" in vhost '(?P<vhost>.*)'$", re.DOTALL)


class RefusedError(Exception):
    """The broker refuses the request; the text has the reason, and what to do next."""


class AbsentError(RefusedError):
    """The object of the request does not exist."""


class LoginRefusedError(RefusedError):
    """The broker refuses the user's name and password."""


class UnreachableError(Exception):
    """No broker answers at the address."""


class InvalidValueError(Exception):
    """A value cannot be sent to any broker; the text says which value and why."""


@dataclass(frozen=True)
class Tls:
    """The options of TLS: files with authorities, certificate and key; `insecure` checks no certificate."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    insecure: bool = False


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirect: only the given address gets the password."""

    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect: the answer counts as a refusal."""


class Client:
    """A client of the HTTP API of one broker, with one user. The client uses no proxy.

    `password`: None for requests that need no user. `patience`: the longest silence of the broker, in
    seconds. By default the system's authorities may have signed the broker's certificate.

    Paths are given in segments: a slash in a name is no separator. Raises UnreachableError at once for an
    address that is not an HTTP URL. Raises InvalidValueError for a user or password that is not UTF-8, and
    for unusable files.
    """

    def __init__(self, url: str, user: str, password: str | None, tls: Tls = Tls()) -> None:
        if not _is_http(url):
            raise UnreachableError(
                f"{url!r} is not an address like http://127.0.0.1:15672; "
                "set --url, or --host and --port, or AMQPCTL_URL"
            )
        self.url = url.rstrip("/")
        self.patience = TIMEOUT_SECONDS
        handlers: list[Any] = [urllib.request.ProxyHandler({}), _NoRedirect]
        if url.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=_make_tls_context(tls)))
        self._opener = urllib.request.build_opener(*handlers)
        self._user = user
        self._headers = {"content-type": "application/json"}
        if password is not None:
            for part in (user, password):
                _require_text(part)
            credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["authorization"] = f"Basic {credentials}"

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

        Raises RefusedError, UnreachableError; InvalidValueError for a reason that is not UTF-8.
        """
        _require_text(reason)
        if not reason.isprintable():
            raise InvalidValueError(f"the reason {reason!r} is not one line of printable text")
        as_bytes = reason.encode().decode("latin-1")  # headers are bytes, written as characters
        self._ask("DELETE", path, None, query, {"x-reason": as_bytes} if reason else {})

    def fetch(self, path: str) -> bytes:
        """Return the content at a path outside of the API, such as /metrics. Raises as `get`."""
        with self._open("GET", f"{self.url}{path}", None, {}) as answer:
            content: bytes = answer.read()
        return content

    def follow(self, *path: str, **query: str) -> Iterator[Any]:
        """Yield the objects of an answer without end, each as it comes; None: nothing has come for a while.

        Raises as `get`.
        """
        with self._open("GET", self._place(path, query), None, {}) as answer:
            for line in answer:
                yield json.loads(line) if line.strip() else None

    def _ask(
        self,
        method: str,
        path: tuple[str, ...],
        body: object,
        query: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with self._open(method, self._place(path, query), data, headers or {}) as answer:
            content = answer.read()
            return json.loads(content) if content else None

    def _place(self, path: tuple[str, ...], query: Mapping[str, str]) -> str:
        """Return the URL of an object of the API. Raises InvalidValueError."""
        for part in (*path, *query.values()):
            _require_text(part)
        if not all(path):
            raise InvalidValueError("a name is empty")  # the path would be that of another object
        url = f"{self.url}/api/" + "/".join(quote(segment, safe="") for segment in path)
        if query:
            url += "?" + urlencode(query)
        return url

    @contextmanager
    def _open(self, method: str, url: str, data: bytes | None, headers: Mapping[str, str]) -> Iterator[Any]:
        """Send a request, and yield the answer. Raises RefusedError, UnreachableError."""
        request = urllib.request.Request(  # noqa: S310  the scheme was checked
            url, data, {**self._headers, **headers}, method=method
        )
        try:
            with self._opener.open(request, timeout=self.patience) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error.code, error.read()) from error
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            raise UnreachableError(self._describe_silence(getattr(error, "reason", error))) from error
        except (ValueError, RecursionError) as error:  # RecursionError: nested too deeply
            raise UnreachableError(
                f"{self.url}/api/ does not answer as amqpd's HTTP API does; "
                "set --url or AMQPCTL_URL to the address of the setting admin"
            ) from error

    def _refusal(self, status: int, content: bytes) -> RefusedError:
        """Return the error for a refused request: the reason, and what to do next."""
        reason, error = _reason(status, content)
        user = self._user
        if status == UNAUTHORIZED and error in (LOGIN, ""):
            return LoginRefusedError(
                f"{self.url}/api/ refuses the log-in of user '{user}': {reason}; "
                "set AMQPCTL_USER (--user) and AMQPCTL_PASSWORD"
            )
        if status == UNAUTHORIZED:
            return RefusedError(f"{reason}; {_advise_rights(user, reason)}")
        if status == NOT_FOUND:
            return AbsentError(f"{reason}{_advise_absent(reason)}")
        return RefusedError(reason)

    def _describe_silence(self, reason: object) -> str:
        """Return the error for a request without an answer, with the option that helps."""
        shown = f"no answer from {self.url}/api/: {reason}; "
        if isinstance(reason, ssl.SSLCertVerificationError):
            return (
                f"{shown}name the file with the authority of the broker's certificate by --ca or AMQPCTL_CA "
                "(--insecure skips the check, for a trial)"
            )
        is_closed = isinstance(reason, (ConnectionError, http.client.BadStatusLine))
        is_closed = is_closed and not isinstance(reason, ConnectionRefusedError)
        if isinstance(reason, ssl.SSLError) or (is_closed and self.url.startswith("https:")):
            return f"{shown}check that the port speaks TLS, and that --cert and --key are what it wants"
        if is_closed:
            return f"{shown}set --url to an address with https:// if the port speaks TLS"
        return (
            f"{shown}check that amqpd runs and serves HTTP there (its setting admin), "
            "or set --host and --port, --url or AMQPCTL_URL"
        )


def _advise_rights(user: str, reason: str) -> str:
    """Return what helps a user who lacks a right."""
    name = shlex.quote(user)
    for word, tag in (
        ("administrator", "administrator"),
        ("monitor", "monitoring"),
        ("management", "management"),
    ):
        if f"Not {word} user" in reason:
            return (
                f"log in as another user (--user, AMQPCTL_USER), or let an administrator run "
                f"'amqpctl set_user_tags {name} {tag}'"
            )
    return f"'amqpctl list_user_permissions {name}' shows the permissions, set_permissions changes them"


def _advise_absent(reason: str) -> str:
    """Return what helps if the named object does not exist."""
    found = _ABSENT.match(reason)
    kind = "" if found is None else found["kind"]
    if found is None or kind not in LISTS:
        return "; check that amqpctl has the version of the broker" if reason == "Not Found" else ""
    at = _WHERE.search(reason)
    vhost = "/" if at is None else at["vhost"]
    where = "" if kind in WITHOUT_VHOST or vhost == "/" else f" -p {shlex.quote(vhost)}"
    return f"; 'amqpctl {LISTS[kind]}{where}' lists what exists"


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:  # unbalanced brackets
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc) and url.isascii()


def _make_tls_context(tls: Tls) -> ssl.SSLContext:
    """Make a context that trusts the authorities and shows the certificate. Raises InvalidValueError."""
    file = tls.ca
    try:
        context = ssl.create_default_context(cafile=tls.ca or None)
        file = tls.certificate
        if tls.certificate:
            context.load_cert_chain(tls.certificate, tls.key or None)
        elif tls.key:
            raise InvalidValueError(
                f"{tls.key}: a key needs a certificate; set --cert or AMQPCTL_CERTIFICATE"
            )
    except OSError as error:
        raise InvalidValueError(f"{file}: {error.strerror or error}") from error
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _require_text(text: str) -> None:
    """Refuse an argument or variable whose bytes are not UTF-8. Raises InvalidValueError."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValueError(f"{text!r} is not valid UTF-8") from error


def _reason(status: int, content: bytes) -> tuple[str, str]:
    """Return the reason and the error of a refusal."""
    try:
        document = json.loads(content)
        return str(document["reason"]), str(document.get("error", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # nested too deeply
        return f"HTTP {status}", ""
