"""The broker's HTTP API, as the driver and the executors ask it."""

from __future__ import annotations

import atexit
import base64
import http.client
import json
import math
import os
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode, urlsplit

from pipeline.connector.choices import Choices, OptionError
from pipeline.connector.urls import split, without_login
from pipeline.errors import PipelineError

AMQP_PORTS: Final = {"amqp": 5672, "amqps": 5671}
API_PORT: Final = 15672
API_SCHEMES: Final = ("http", "https")
BACKOFF_S: Final = 0.2
Connection = http.client.HTTPConnection
Target = tuple[str, str]

_idle: dict[Target, list[Connection]] = {}  # kept from one task to the next: Spark uses workers again


@atexit.register
def close_idle() -> None:
    """Close the connections that are kept for later."""
    while _idle:
        _, connections = _idle.popitem()
        for connection in connections:
            connection.close()


class ServerError(PipelineError):
    """The broker could not be asked."""


class RefusedError(ServerError):
    """The broker has said no. `status`: of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Password:
    """Where the password is: read where it is used, so that it need not travel."""

    value: str | None = field(default=None, repr=False)
    file: str | None = None
    env: str | None = None

    def read(self) -> str:
        """The password. Raises OptionError."""
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


class Answer:
    """The answer to a request, on a connection that is kept for the next one when it has been read."""

    def __init__(self, target: Target, connection: Connection) -> None:
        self._target = target
        self._connection = connection
        self.response = connection.getresponse()

    def read(self) -> bytes:
        """All of it. Raises what http.client raises."""
        try:
            data = self.response.read()
        except BaseException:
            self.drop()
            raise
        self.keep()
        return data

    def keep(self) -> None:
        """Keep the connection: nothing is left to be read."""
        _idle.setdefault(self._target, []).append(self._connection)

    def drop(self) -> None:
        """Close the connection."""
        self._connection.close()


@dataclass(frozen=True)
class Server:
    """A broker, or several addresses of it that are tried in turn.

    `amqp`: scheme, host and port of AMQP; `api`: URLs of the HTTP API; `authority`: a file with certificates
    that are trusted, None: those of the system. `timeout`: seconds; `retries`: how often something is tried
    again when the connection fails; `patience`: seconds for all of that.
    """

    amqp: tuple[tuple[str, str, int], ...]
    api: tuple[str, ...]
    user: str
    password: Password
    vhost: str
    authority: str | None
    timeout: float
    retries: int
    patience: float = math.inf

    def get(self, *path: str, **query: object) -> Any:
        """What is at a path. Raises ServerError."""
        return self._ask("GET", path, query, None)

    def post(self, *path: str, **fields: object) -> Any:
        """Ask for something that does no harm if it is asked twice. Raises ServerError."""
        return self._ask("POST", path, {}, fields)

    def send(self, *path: str, data: bytes, **query: object) -> Any:
        """Post octets, which does no harm if it is done twice. Raises ServerError."""
        return self._ask("POST", path, query, data)

    def put(self, *path: str, **fields: object) -> Any:
        """Have something be so. Raises ServerError."""
        return self._ask("PUT", path, {}, fields)

    def delete(self, *path: str) -> Any:
        """Have something be gone. Raises ServerError."""
        return self._ask("DELETE", path, {}, None)

    @contextmanager
    def open(self, *path: str, **query: object) -> Iterator[http.client.HTTPResponse]:
        """A long answer, to be read. It is not asked for again once it has begun. Raises ServerError."""
        answer = self._begin("GET", path, query, None)
        try:
            yield answer.response
        except (OSError, http.client.HTTPException) as error:
            answer.drop()
            raise ServerError(f"GET {_path(path, query)} broke off: {_told(error)}") from error
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
            raise ServerError(f"{method} {_path(path, query)} broke off: {_told(error)}") from error
        return json.loads(data) if data else None

    def _begin(self, method: str, path: tuple[str, ...], query: dict[str, object], fields: object) -> Answer:
        """Send a request until there is an answer. Raises ServerError."""
        where = _path(path, query)
        body = fields if fields is None or isinstance(fields, bytes) else json.dumps(fields).encode()
        failure: Exception | None = None
        for base, seconds in self._tries():
            try:
                answer = self._send(base, method, where, body, seconds)
            except (OSError, http.client.HTTPException) as error:
                failure = error
                continue
            if answer.response.status < 400:
                return answer
            raise RefusedError(answer.response.status, _reason(method, where, answer))
        raise ServerError(f"cannot reach {' or '.join(self.api)}: {_told(failure)}")

    def _tries(self) -> Iterator[tuple[str, float]]:
        """The URLs to ask, one after the other, and for how many seconds each."""
        until = time.monotonic() + self.patience
        for attempt in range(self.retries + 1):
            pause(attempt)
            for base in self.api:
                left = until - time.monotonic()
                if left <= 0:
                    return
                yield base, min(self.timeout, left)

    def _send(self, base: str, method: str, where: str, body: bytes | None, seconds: float) -> Answer:
        """Send it once; twice if the connection had been idle and was closed meanwhile."""
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
                connection.sock.settimeout(seconds)  # who had it was more patient, or less
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
            context = ssl.create_default_context(cafile=self.authority)
            port = parts.port or 443
            return http.client.HTTPSConnection(parts.hostname, port, timeout=seconds, context=context)
        return http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=seconds)


def pause(attempt: int) -> None:
    """Wait before something is tried again, longer each time; the first time, 0, not at all."""
    if attempt:
        time.sleep(BACKOFF_S * 2 ** min(attempt - 1, 5))


def server_of(choices: Choices) -> Server:
    """The broker that options name. Raises OptionError."""
    url = choices.text("url")
    if url is None:
        raise OptionError("option 'url' is missing: amqp://user:password@host:5672/vhost")
    like = "amqp://user:password@host:5672/vhost"
    parts = [split("url", each, AMQP_PORTS, like) for each in url.split(",")]
    amqp = [(part.scheme, str(part.hostname), part.port or AMQP_PORTS[part.scheme]) for part in parts]
    api = choices.text("apiUrl")
    said = [split("apiUrl", each, API_SCHEMES, "http://host:15672") for each in api.split(",")] if api else []
    bases = tuple(map(without_login, said)) or _bases(amqp)
    first = parts[0]
    value = choices.text("password") or (unquote(first.password) if first.password is not None else None)
    user = choices.text("username") or (unquote(first.username) if first.username else "guest")
    vhost = choices.text("vhost") or (unquote(first.path[1:]) if len(first.path) > 1 else "/")
    retries = choices.number("retries", 3, least=0)
    timeout = choices.number("requestTimeoutMs", 30_000)
    password = Password(value, choices.text("passwordFile"), choices.text("passwordEnv"))
    return Server(tuple(amqp), bases, user, password, vhost, choices.text("caFile"), timeout / 1000, retries)


def _bases(amqp: list[tuple[str, str, int]]) -> tuple[str, ...]:
    """Where the HTTP API is if nothing is said: the broker itself has it without TLS."""
    return tuple(f"http://{f'[{host}]' if ':' in host else host}:{API_PORT}" for _, host, _ in amqp)


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


def _told(error: Exception | None) -> str:
    return str(error) or type(error).__name__
