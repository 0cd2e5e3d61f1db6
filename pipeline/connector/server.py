"""A client of the broker's HTTP API, for the driver and the executors."""

from __future__ import annotations

import atexit
import base64
import http.client
import json
import logging
import math
import os
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

from pipeline.connector.choices import Choices, OptionError, split_url, strip_credentials
from pipeline.errors import PipelineError

AMQP_PORTS: Final = {"amqp": 5672, "amqps": 5671}
API_PORTS: Final = {"http": 15672, "https": 15671}
API_OF: Final = {"amqp": "http", "amqps": "https"}
LOG: Final = logging.getLogger("amqpd.pipeline")
BACKOFF_S: Final = 0.2
BACKOFF_MAX_S: Final = 5.0
GATEWAY: Final = (502, 504)  # answers of a proxy whose broker does not answer
LEAST_S: Final = 0.5  # minimum for an answer, whatever is left of the patience
Connection = http.client.HTTPConnection
Target = tuple[str, str]

_idle: dict[Target, list[Connection]] = {}  # kept between tasks, as Spark reuses workers


@atexit.register
def close_idle() -> None:
    """Close the idle connections."""
    while _idle:
        _, connections = _idle.popitem()
        for connection in connections:
            connection.close()


class ServerError(PipelineError):
    """The broker does not answer, or its answer is unusable."""


class RefusedError(ServerError):
    """The broker refuses a request. `status`: of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class PasswordSource:
    """The source of the password, which is read when it is needed, so that tasks need not contain it."""

    value: str | None = field(default=None, repr=False)
    file: str | None = None
    env: str | None = None

    def read(self) -> str:
        """Read the password. Raises OptionError."""
        if self.file is not None:
            try:
                return Path(self.file).read_text().rstrip("\n")
            except OSError as error:
                raise OptionError(f"option 'passwordFile' is '{self.file}': {error.strerror}") from error
        if self.env is not None:
            if self.env not in os.environ:
                raise OptionError(f"option 'passwordEnv' is '{self.env}', which is not set here")
            return os.environ[self.env]
        return "guest" if self.value is None else self.value


@dataclass(frozen=True)
class TlsFiles:
    """The PEM files for TLS, of both sides.

    `authority`: trusted certificates; None: the system's. `certificate`, `key`: of this program; without
    `key` the certificate's file has the key.
    """

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of a connection. The files are read again, as certificates are renewed.

        Raises OptionError.
        """
        try:
            context = ssl.create_default_context(cafile=self.authority)
        except OSError as error:
            raise OptionError(f"option 'caFile' is '{self.authority}': {error_text(error)}") from error
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key, password=_no_password)
            except OSError as error:
                key = f" and option 'keyFile' is '{self.key}'" if self.key is not None else ""
                raise OptionError(
                    f"option 'certFile' is '{self.certificate}'{key}: {error_text(error)}"
                ) from error
        return context


def _no_password() -> str:
    """Return no password, so that OpenSSL does not prompt for the password of a key."""
    raise OSError("the key is encrypted; a key without a password is expected")


class Answer:
    """The answer to a request. The connection is reused after the answer has been read."""

    def __init__(self, target: Target, connection: Connection) -> None:
        self._target = target
        self._connection = connection
        self.response = connection.getresponse()

    def read(self) -> bytes:
        """Return the whole body. Raises the errors of http.client."""
        try:
            data = self.response.read()
        except BaseException:
            self.drop()
            raise
        self.keep()
        return data

    def keep(self) -> None:
        """Keep the connection for the next request: the answer is read."""
        _idle.setdefault(self._target, []).append(self._connection)

    def drop(self) -> None:
        """Close the connection."""
        self._connection.close()


@dataclass(frozen=True)
class Server:
    """A broker, or several addresses of it, which are tried one after the other.

    `amqp`: scheme, host and port of AMQP. `api`: URLs of the HTTP API. `timeout`: seconds for one answer.
    `patience`: seconds for which requests to an unreachable broker are repeated. `retries`: limit of
    repetitions within `patience`; None: no limit.
    """

    amqp: tuple[tuple[str, str, int], ...]
    api: tuple[str, ...]
    user: str
    password: PasswordSource
    vhost: str
    tls: TlsFiles
    timeout: float
    retries: int | None = None
    patience: float = math.inf

    def attempts(self) -> Iterator[float]:
        """Yield the seconds left of `patience` for each attempt, with growing waits between the attempts."""
        until = time.monotonic() + self.patience
        yield self.patience
        pause, retries = BACKOFF_S, 0
        while self.retries is None or retries < self.retries:
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(pause, left))
            pause, retries = min(2 * pause, BACKOFF_MAX_S), retries + 1
            yield until - time.monotonic()

    def warn_of_absence(self, names: str, error: Exception) -> None:
        """Log that the broker does not answer and that requests are repeated."""
        if self.retries != 0 and self.patience > 0:
            LOG.warning(
                "cannot reach %s: %s; trying again for up to %g s", names, error_text(error), self.patience
            )

    def get(self, *path: str, **query: object) -> Any:
        """Return the JSON at a path. Raises ServerError."""
        return self._ask("GET", path, query, None)

    def post(self, *path: str, **fields: object) -> Any:
        """Post a request that may safely be repeated. Raises ServerError."""
        return self._ask("POST", path, {}, fields)

    def send(self, *path: str, data: bytes, **query: object) -> Any:
        """Post octets in a request that may safely be repeated. Raises ServerError."""
        return self._ask("POST", path, query, data)

    def put(self, *path: str, **fields: object) -> Any:
        """Put a value at a path. Raises ServerError."""
        return self._ask("PUT", path, {}, fields)

    def delete(self, *path: str) -> Any:
        """Delete the object at a path. Raises ServerError."""
        return self._ask("DELETE", path, {}, None)

    @contextmanager
    def open(self, *path: str, **query: object) -> Iterator[http.client.HTTPResponse]:
        """Open a long answer for reading. The request is not repeated once the answer has begun.

        Raises ServerError.
        """
        answer = self._begin("GET", path, query, None)
        try:
            yield answer.response
        except (OSError, http.client.HTTPException) as error:
            answer.drop()
            raise ServerError(f"GET {_path(path, query)} broke off: {error_text(error)}") from error
        except BaseException:
            answer.drop()
            raise
        if answer.response.isclosed():
            answer.keep()
        else:
            answer.drop()

    def _ask(self, method: str, path: tuple[str, ...], query: dict[str, object], fields: object) -> Any:
        answer = self._begin(method, path, query, fields)
        try:
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"{method} {_path(path, query)} broke off: {error_text(error)}") from error
        return json.loads(data) if data else None

    def _begin(self, method: str, path: tuple[str, ...], query: dict[str, object], fields: object) -> Answer:
        """Send a request until an answer comes. Raises ServerError."""
        where = _path(path, query)
        body = fields if fields is None or isinstance(fields, bytes) else json.dumps(fields).encode()
        failure: Exception | None = None
        for base, seconds in self._tries():
            try:
                answer = self._send(base, method, where, body, seconds)
            except ssl.SSLCertVerificationError as error:  # no retry: the certificate stays wrong
                raise ServerError(f"cannot trust {base}: {error_text(error)}") from error
            except (OSError, http.client.HTTPException) as error:
                if failure is None:
                    self.warn_of_absence(base, error)
                failure = error
                continue
            if answer.response.status < 400:
                return answer
            if answer.response.status in GATEWAY:
                failure = ServerError(_reason(method, where, answer))
                continue
            raise RefusedError(answer.response.status, _reason(method, where, answer))
        raise ServerError(f"cannot reach {' or '.join(self.api)}: {error_text(failure)}")

    def _tries(self) -> Iterator[tuple[str, float]]:
        """Yield the URLs to try, one after the other, with the seconds for each."""
        for left in self.attempts():
            until = time.monotonic() + max(left, LEAST_S)
            for base in self.api:
                yield base, min(self.timeout, max(until - time.monotonic(), LEAST_S))

    def _send(self, base: str, method: str, where: str, body: bytes | None, seconds: float) -> Answer:
        """Send a request once; twice if an idle connection was closed meanwhile."""
        login = base64.b64encode(f"{self.user}:{self.password.read()}".encode()).decode()
        headers = {"Authorization": f"Basic {login}"}
        target = (base, login)
        kept = _idle.get(target, [])
        while True:
            connection = kept.pop() if kept else None
            fresh = connection is None
            if connection is None:
                connection = self._connect(base, seconds)
            elif connection.sock is not None:
                connection.sock.settimeout(seconds)  # the last request may have had another timeout
            try:
                connection.request(method, where, body, headers)
                return Answer(target, connection)
            except (http.client.RemoteDisconnected, ConnectionError):
                connection.close()
                if fresh:
                    raise
            except BaseException:
                connection.close()
                raise

    def _connect(self, base: str, seconds: float) -> Connection:
        parts = urlsplit(base)
        assert parts.hostname is not None, "options have been looked at"
        if parts.scheme == "https":
            port, context = parts.port or 443, self.tls.context()
            return http.client.HTTPSConnection(parts.hostname, port, timeout=seconds, context=context)
        return http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=seconds)


class Retry:
    """Repeats a request that breaks off, for the server's `patience`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._attempts: Iterator[float] | None = None

    def succeed(self) -> None:
        """Start again: the broker has answered."""
        self._attempts = None

    def fail(self, error: Exception) -> None:
        """Wait before the next attempt. Raises `error` after the last one."""
        if self._attempts is None:
            self._attempts = self._server.attempts()
            next(self._attempts)  # the failed attempt
        if next(self._attempts, None) is None:
            raise error


def make_server(choices: Choices) -> Server:
    """Return the broker that options name. Raises OptionError."""
    url = choices.text("url")
    if url is None:
        raise OptionError("option 'url' is missing: amqp://user:password@host:5672/vhost")
    like = "amqp://user:password@host:5672/vhost"
    parts = [split_url("url", each, AMQP_PORTS, like) for each in url.split(",")]
    api = choices.text("apiUrl")
    bases = (
        [split_url("apiUrl", each, API_PORTS, "http://host:15672") for each in api.split(",")] if api else []
    )
    _refuse_mix(parts, bases)
    first = parts[0]
    value = choices.text("password") or (unquote(first.password) if first.password is not None else None)
    return Server(
        amqp=tuple((part.scheme, str(part.hostname), part.port or AMQP_PORTS[part.scheme]) for part in parts),
        api=tuple(map(strip_credentials, bases or map(_api_of, parts))),
        user=choices.text("username") or (unquote(first.username) if first.username else "guest"),
        password=PasswordSource(value, choices.text("passwordFile"), choices.text("passwordEnv")),
        vhost=choices.text("vhost") or (unquote(first.path[1:]) if len(first.path) > 1 else "/"),
        tls=_tls_of(choices, first.scheme == "amqps"),
        timeout=choices.number("requestTimeoutMs", 30_000) / 1000,
        retries=choices.count("retries", least=0),
        patience=choices.number("retryTimeoutMs", 120_000, least=0) / 1000,
    )


def _refuse_mix(parts: list[SplitResult], bases: list[SplitResult]) -> None:
    """Raise OptionError unless all addresses have TLS or none: each of them gets the password."""
    schemes = {API_OF[part.scheme] for part in parts}
    if len(schemes) > 1:
        named = ", ".join(f"{part.scheme}://{part.hostname}" for part in parts)
        raise OptionError(
            f"option 'url' is '{named}': some with TLS and some without; use amqps for all or for none"
        )
    [wanted] = schemes
    for base in bases:
        if base.scheme != wanted:
            clear = "HTTP API" if base.scheme == "http" else "AMQP connection"
            raise OptionError(
                f"option 'apiUrl' is '{base.scheme}://{base.hostname}' and option 'url' is "
                f"'{parts[0].scheme}://{parts[0].hostname}': passwords and messages would cross the {clear} "
                "without TLS; use amqps with https, or amqp with http"
            )


def _api_of(part: SplitResult) -> SplitResult:
    """Return the HTTP API of a broker at its default port. [RabbitMQ management, "TLS"]"""
    scheme, host = API_OF[part.scheme], str(part.hostname)
    return SplitResult(scheme, f"{f'[{host}]' if ':' in host else host}:{API_PORTS[scheme]}", "", "", "")


def _tls_of(choices: Choices, used: bool) -> TlsFiles:
    """Return the TLS files that options name. Raises OptionError."""
    files = {name: choices.text(name) for name in ("caFile", "certFile", "keyFile")}
    for name, value in files.items():
        if value is not None and not used:
            raise OptionError(
                f"option '{name}' is '{value}', which is for TLS: option 'url' has amqp, not amqps"
            )
    if files["keyFile"] is not None and files["certFile"] is None:
        raise OptionError(f"option 'keyFile' is '{files['keyFile']}': option 'certFile' is missing")
    return TlsFiles(*files.values())


def _path(path: tuple[str, ...], query: dict[str, object]) -> str:
    words = {name: value for name, value in query.items() if value is not None}
    end = f"?{urlencode(words, doseq=True)}" if words else ""
    return "/api/" + "/".join(quote(each, safe="") for each in path) + end


def _reason(method: str, where: str, answer: Answer) -> str:
    data = answer.read()
    try:
        reason = json.loads(data)["reason"]
    except (ValueError, KeyError, TypeError):
        reason = data.decode(errors="replace")[:200]
    return f"{method} {where}: {answer.response.status} {reason}"


def error_text(error: Exception | None) -> str:
    """Return the text of an error, or its type if the text is empty."""
    return str(error) or type(error).__name__
