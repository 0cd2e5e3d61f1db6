"""An HTTP connection of the admin port, with limits: time to send a request in, size, strict framing.

uvicorn's protocol serves the requests. uvicorn has no time limit for a request, and buffers 300 KiB of a body
before the application reads the body. h11 accepts heads that proxies read in another way. This module limits
all three.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import h11
import structlog
from h11._connection import DEFAULT_MAX_INCOMPLETE_EVENT_SIZE
from uvicorn.config import Config
from uvicorn.server import ServerState

from broker.admin.zero_copy import STALLED_SECONDS, ZeroCopyProtocol
from broker.logs import SeldomEach

PEER: Final = "amqpd.peer"
"""The extension of an ASGI scope that is the Peer who sent the request."""

READ_BYTES: Final = 8 * 1024
BODY_BYTES: Final = 4 * 1024  # the part of a body that is read before the application reads

_HEAD_END: Final = b"\r\n\r\n"
_BARE_LF: Final = re.compile(rb"(?<!\r)\n")
_FOLD: Final = re.compile(rb"\n[ \t]")
_BUFFER: Final = bytearray(READ_BYTES)  # shared: a read is parsed before the next one
_VIEW: Final = memoryview(_BUFFER)

_log = structlog.get_logger("amqpd.admin")
_seldom = SeldomEach(time.monotonic)


def _log_event(event: str, peer: str, reason: str) -> None:
    _seldom.warning(_log, event, (), peer=peer, reason=reason)


class Bounds(NamedTuple):
    """Time limits for a peer, in seconds: for the head of a request, and for a body without progress."""

    header_seconds: float = 10.0
    body_seconds: float = 30.0


class Watcher(Protocol):
    """Counts the HTTP connections."""

    def add(self, connection: HttpConnection) -> None:
        """Count a connection. Over TLS the handshake is complete."""

    def on_logged_in(self, connection: HttpConnection) -> None:
        """Note that a known user has sent a request on the connection."""

    def on_request_answered(self, connection: HttpConnection) -> None:
        """Note that the request has been answered."""

    def remove(self, connection: HttpConnection) -> None:
        """Remove a closed connection from the count."""


class Peer(Protocol):
    """The sender of a request, for the application."""

    def on_logged_in(self) -> None:
        """Note that the user of the request is known.

        The connection is not closed in favour of new ones then.
        """

    def when_gone(self, call: Callable[[], None]) -> None:
        """Call `call` when the peer disconnects before the request is answered."""


class _StrictConnection(h11.Connection):
    """h11 without its tolerance: two parsers must not see two different requests. [RFC 9112 11.2]"""

    trouble = ""

    def next_event(self) -> Any:
        """Return the next event. Raises RemoteProtocolError, with the reason in `trouble`."""
        try:
            if self.their_state is h11.IDLE:
                _check_head(self.trailing_data[0])
            in_body = self.their_state is h11.SEND_BODY
            received = self.trailing_data[0] if in_body else b""
            event = super().next_event()
            if in_body and received and not isinstance(event, h11.Data):
                left = self.trailing_data[0]  # incomplete lines, or bytes behind the body
                _check_lines(left if event is h11.NEED_DATA else received[: len(received) - len(left)])
            if isinstance(event, h11.Request):
                _check_framing(event)
            return event
        except h11.RemoteProtocolError as error:
            self.trouble = str(error)
            error.__traceback__ = None  # h11's error refers to itself, and would keep the connection alive
        raise h11.RemoteProtocolError(self.trouble)


class HttpConnection(ZeroCopyProtocol):
    """Serves the requests of one connection.

    `check`, called periodically, closes a connection with a slow peer.

    `front` is the protocol that the event loop calls, once a client has connected.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        watcher: Watcher | None = None,
        bounds: Bounds = Bounds(),  # noqa: B008  immutable
        clock: Callable[[], float] = time.monotonic,
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(config, state, {})
        self._is_open = is_open
        self.conn: h11.Connection = _StrictConnection(h11.SERVER, DEFAULT_MAX_INCOMPLETE_EVENT_SIZE)
        self.front: Front | None = None
        self._watcher = watcher
        self._bounds = bounds
        self._clock = clock
        self._known = False
        self._when_gone: Callable[[], None] | None = None
        self._heard_at = clock()  # when the last bytes came
        self._waiting_since = clock()  # for a head, or for the rest of a body that nothing reads
        self._unsent = 0
        self._sent_at = clock()  # when the peer took bytes last

    # -- called by the event loop

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Accept a client, perhaps after the server has begun to stop."""
        if not self._is_open():
            self._let_memory_go()
            transport.abort()
            return
        super().connection_made(transport)
        self._waiting_since = self._heard_at = self._clock()
        if self._watcher is not None:
            self._watcher.add(self)

    def data_received(self, data: bytes) -> None:
        """Parse bytes of the client."""
        if self.transport.is_closing():
            return
        if self.timeout_keep_alive_task is not None and self.conn.their_state is h11.IDLE:
            self._waiting_since = self._clock()  # the head of a further request begins
        self._heard_at = self._clock()
        super().data_received(data)
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and len(cycle.body) >= BODY_BYTES:
            self.flow.pause_reading()  # until the application reads the body

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the socket is closed, and free all memory."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._tell_gone()
        if self._watcher is not None:
            self._watcher.remove(self)
        self._let_memory_go()

    # -- called by uvicorn

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not one of HTTP, and close."""
        reason = getattr(self.conn, "trouble", "") or msg
        _log_event("HTTP request refused", self.peer, reason)
        self._refuse(400, "bad_request", reason)

    def on_response_complete(self) -> None:
        """Note that a request has been answered."""
        self._when_gone = None
        if self._known:
            self._known = False
            if self._watcher is not None:
                self._watcher.on_request_answered(self)
        self._waiting_since = self._clock()
        super().on_response_complete()

    # -- Peer

    def on_logged_in(self) -> None:
        """Note that the user of the request is known."""
        if not self._known and not self.transport.is_closing():
            self._known = True
            if self._watcher is not None:
                self._watcher.on_logged_in(self)

    def when_gone(self, call: Callable[[], None]) -> None:
        """Call `call` when the peer disconnects before the answer; at once if it has disconnected."""
        if self.cycle.disconnected:
            call()
        else:
            self._when_gone = call

    # -- called by the watcher and the server

    @property
    def address(self) -> str:
        """The peer's address without the port."""
        return "" if self.client is None else self.client[0]

    @property
    def peer(self) -> str:
        """The peer's name in the log."""
        if self.client is None:
            return ""
        host, port = self.client
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close_now(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    def refuse(self) -> None:
        """Answer a new peer that there are too many connections, and close the connection."""
        self._refuse(503, "service_unavailable", "too many connections")

    def check(self) -> None:
        """Close the connection if its peer takes too long."""
        now = self._clock()
        if self._stalls(now):
            _log.warning("HTTP connection closed", peer=self.peer, reason="the peer does not read its answer")
            self.transport.abort()
        elif self.transport.is_closing():
            pass  # the answer is being sent
        elif self.conn.their_state is h11.IDLE:
            idle = self.timeout_keep_alive_task is not None  # uvicorn closes the connection soon
            if not idle and now - self._waiting_since > self._bounds.header_seconds:
                self._too_slow("the head of the request takes too long")
        elif self.conn.their_state is h11.SEND_BODY:
            if self.cycle.response_complete:
                if now - self._waiting_since > self._bounds.header_seconds:
                    self.transport.abort()
            elif self.flow.read_paused:
                self._heard_at = now
            elif now - self._heard_at > self._bounds.body_seconds:
                self._too_slow("the body of the request does not come")

    def _stalls(self, now: float) -> bool:
        """Whether the peer has taken none of the bytes to send for too long."""
        unsent = self.transport.get_write_buffer_size()
        if not unsent or unsent < self._unsent or not self._unsent:
            self._sent_at = now
        self._unsent = unsent
        longest = STALLED_SECONDS if self._known else self._bounds.body_seconds
        return now - self._sent_at > longest

    def _too_slow(self, reason: str) -> None:
        _log_event("HTTP request timed out", self.peer, reason)
        self._refuse(408, "request_timeout", reason)

    def _refuse(self, status: int, error: str, reason: str) -> None:
        """Answer with a status if nothing has been answered yet, close, and read no more of the request."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started:
                self.transport.abort()
                return
            cycle.disconnected = True  # the application must not answer too
            cycle.message_event.set()
            self._tell_gone()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": error, "reason": reason}).encode()
            self.transport.write(_answer(status, body))
        self.transport.close()

    def _tell_gone(self) -> None:
        call, self._when_gone = self._when_gone, None
        if call is not None:
            call()

    def _let_memory_go(self) -> None:
        """Break the reference cycles of this connection, so that its buffers are freed at once."""
        if self.front is not None:
            self.front.forget()
        self.app = self._application
        if self.cycle is not None and self.cycle.response_complete:
            self.cycle.on_response = _do_nothing  # an incomplete cycle ends by itself

    async def _extended(self, scope: Any, receive: Any, send: Any) -> None:
        extensions = scope.setdefault("extensions", {})
        extensions[PEER] = self
        try:
            await super()._extended(scope, receive, send)
        finally:
            extensions.clear()  # the scope refers to the connection


class Front(asyncio.BufferedProtocol):
    """The protocol that the event loop calls: the loop reads into one small buffer of all connections.

    Without this protocol the loop reads 250 KiB at once, and each connection would keep its own buffer.
    """

    def __init__(self, connection: HttpConnection) -> None:
        self.connection: HttpConnection | None = connection

    def forget(self) -> None:
        """Drop the connection: later calls of the loop do nothing."""
        self.connection = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Pass a new client to the connection."""
        if self.connection is not None:
            self.connection.front = self
            self.connection.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the end of the socket to the connection."""
        if self.connection is not None:
            self.connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Stop sending: the client's receive buffer is full."""
        if self.connection is not None:
            self.connection.pause_writing()

    def resume_writing(self) -> None:
        """Go on sending: the client has read."""
        if self.connection is not None:
            self.connection.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer that the loop reads into."""
        return _VIEW

    def buffer_updated(self, nbytes: int) -> None:
        """Parse `nbytes` received bytes."""
        if self.connection is not None:
            self.connection.data_received(bytes(_VIEW[:nbytes]))

    def eof_received(self) -> None:
        """Close the connection, as the client has closed its side."""


def _do_nothing() -> None:
    pass


def _check_head(received: bytes) -> None:
    """Refuse lines that end with LF alone, and header values of several lines. Raises RemoteProtocolError."""
    end = received.find(_HEAD_END)
    _check_lines(received if end < 0 else received[: end + len(_HEAD_END)])


def _check_lines(received: bytes) -> None:
    """Refuse malformed lines of a head, or lines between and behind chunks, as `_check_head` does."""
    if _BARE_LF.search(received):
        raise h11.RemoteProtocolError("a line ends with LF instead of CRLF")
    if _FOLD.search(received):
        raise h11.RemoteProtocolError("a header value is folded over several lines")


def _check_framing(request: h11.Request) -> None:
    """Refuse a body with two contradictory lengths. Raises RemoteProtocolError."""
    names = {name for name, _ in request.headers}
    if b"transfer-encoding" in names:
        if b"content-length" in names:
            raise h11.RemoteProtocolError("a request has Content-Length or Transfer-Encoding, not both")
        if request.http_version < b"1.1":
            raise h11.RemoteProtocolError("a request of HTTP/1.0 has no Transfer-Encoding")


_PHRASES: Final = {400: "Bad Request", 408: "Request Timeout", 503: "Service Unavailable"}


def _answer(status: int, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status} {_PHRASES[status]}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
