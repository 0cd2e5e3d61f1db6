"""AMQP in WebSocket messages: the server's side of a connection. [RFC 6455; AMQP WebSocket Binding 2]

wsproto reads and writes the handshake and the frames. The boundaries of messages and frames mean nothing to
AMQP: their payloads are a single stream of bytes, cut anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from http import HTTPStatus
from itertools import islice
from typing import Final, final

import h11
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Pong, Request, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import RemoteProtocolError

SUBPROTOCOLS: Final = ("amqp", "AMQPWSB10")  # the name in the binding, and the name of Azure's clients
MESSAGE_BYTES: Final = 32768  # sent as one message: by default some clients take no more than 32 or 64 KiB
ANY: Final = "any"  # among the origins: every origin is allowed
NO_HTTP: Final = (b"AMQP", b"\x16\x03")  # the first bytes of clients that use AMQP, or TLS, instead of HTTP
REASON_CHARACTERS: Final = 200  # the longest reason of a refusal

_HEAD_END: Final = re.compile(rb"\n\r?\n")


@final
class WebSocketWire:
    """A WebSocket without I/O: `feed` takes the peer's bytes, `read` returns the payload.

    `answer`, `pong`, `message` and `close` return bytes to send. `open`: from the end of the handshake until
    either side closes. `ended`: nothing more can be read, because the peer has closed or was refused.
    `refusal` has the reason of a refusal. `has_unread`: frames that were not read yet may be left. Web pages
    are accepted from the host that they connect to and from `origins`.
    """

    def __init__(self, origins: Collection[str] = ()) -> None:
        self._peer = WSConnection(ConnectionType.SERVER)
        self._origins = origins
        self._start = b""
        self._tail = b""
        self._answer = b""
        self._ping: bytes | None = None
        self.ended = False
        self.has_unread = False
        self.refusal = ""

    @property
    def open(self) -> bool:
        """Whether messages can be sent."""
        frames = self._peer.connection
        return frames is not None and frames.state is ConnectionState.OPEN and not self.ended

    def feed(self, data: bytes) -> None:
        """Take the next bytes from the socket."""
        if self.ended:
            return
        if self._peer.connection is None:
            self._do_handshake(data)
        else:
            self._peer.receive_data(data)
            self.has_unread = True

    def read(self, frames: int) -> bytes:
        """Return the payload of at most `frames` frames, and of the received part of an incomplete frame."""
        self.has_unread = False
        if self.ended or self._peer.connection is None:
            return b""
        pieces = []
        count = 0
        for event in islice(self._peer.events(), frames):
            count += 1
            if isinstance(event, BytesMessage):
                pieces.append(event.data)
            elif isinstance(event, Ping):
                self._ping = event.payload
            elif isinstance(event, TextMessage):
                self._close_with_error(
                    CloseReason.UNSUPPORTED_DATA, "text messages are not allowed: AMQP is binary"
                )
                break
            elif isinstance(event, CloseConnection):
                self._closed(event)
                break
        self.has_unread = count == frames and not self.ended
        return b"".join(pieces)

    def answer(self) -> bytes:
        """Return the bytes to send to the peer next, which do not depend on AMQP."""
        answer, self._answer = self._answer, b""
        return answer

    def pong(self) -> bytes:
        """Return the answer to the latest ping, if one came since the last answer. [RFC 6455 5.5.3]"""
        ping, self._ping = self._ping, None
        return self._peer.send(Pong(payload=ping)) if ping is not None and self.open else b""

    def message(self, data: bytes) -> bytes:
        """Return the frame for `data`, of at most MESSAGE_BYTES, while the connection is open."""
        return self._peer.send(BytesMessage(data=data))

    def close(self) -> bytes:
        """Close the connection; return the bytes to send, if any. The peer's answer ends it."""
        return self._peer.send(CloseConnection(CloseReason.NORMAL_CLOSURE)) if self.open else b""

    def release(self) -> None:
        """Free the parser, because the socket is closed; nothing more can be read.

        wsproto's parser is a generator that refers to itself.
        """
        self.ended = True
        frames = self._peer.connection
        if frames is not None:
            frames._proto._parse_more.close()  # noqa: SLF001  wsproto has no method for the end of the socket

    def _do_handshake(self, data: bytes) -> None:
        before = self._tail
        self._start, self._tail = (self._start + data)[:4], (before + data)[-2:]
        if self._start.startswith(NO_HTTP):
            self._refuse(HTTPStatus.BAD_REQUEST, "expected an HTTP request for a WebSocket, got AMQP or TLS")
            return
        try:
            self._peer.receive_data(data)
            request = next(self._peer.events(), None)
            if isinstance(request, Request):
                self._check_request(request)
                early = _HEAD_END.split(before + data, 1)[1]
                if early and self.open:  # the peer has not waited for the answer
                    self.feed(early)
        except RemoteProtocolError as error:
            self._refuse(*_refusal_of(error))
        except UnicodeError:
            self._refuse(HTTPStatus.BAD_REQUEST, "a header has characters beyond ASCII")

    def _check_request(self, request: Request) -> None:
        """Accept a request, or refuse it. Raises UnicodeError."""
        for origin in (value.decode("ascii") for name, value in request.extra_headers if name == b"origin"):
            if not self._is_allowed(origin.lower(), request.host):
                reason = (
                    f"web pages of {origin} are not allowed; add the origin to the setting websocket_origins"
                )
                self._refuse(HTTPStatus.FORBIDDEN, reason)
                return
        requested = request.subprotocols
        chosen = next((name for name in SUBPROTOCOLS if name in requested), None)
        if chosen is None:
            offer = f"requested: {', '.join(requested)}" if requested else "none was requested"
            self._refuse(HTTPStatus.BAD_REQUEST, f"expected the subprotocol amqp; {offer}")
        else:
            self._answer += self._peer.send(AcceptConnection(subprotocol=chosen))

    def _is_allowed(self, origin: str, host: str) -> bool:
        """Whether a web page of `origin` may connect to the broker at `host`. [RFC 6455 10.2]"""
        is_own_host = _name_in(origin).encode().decode("idna") == _name_in(host.lower())
        return is_own_host or origin in self._origins or ANY in self._origins

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        """Answer the request with an HTTP error, whatever state wsproto is in."""
        self.ended = True
        self.refusal = reason[:REASON_CHARACTERS]
        body = f"This address is for AMQP over WebSocket: {self.refusal}\n".encode(
            "ascii", "backslashreplace"
        )
        upgrade = status is HTTPStatus.UPGRADE_REQUIRED
        lines = (
            f"HTTP/1.1 {status.value} {status.phrase}",
            "Connection: upgrade, close" if upgrade else "Connection: close",
            *(("Upgrade: websocket", "Sec-WebSocket-Version: 13") if upgrade else ()),
            "Content-Type: text/plain; charset=us-ascii",
            f"Content-Length: {len(body)}",
            "\r\n",
        )
        self._answer += "\r\n".join(lines).encode() + body

    def _closed(self, event: CloseConnection) -> None:
        frames = self._peer.connection
        assert frames is not None
        if frames.state is ConnectionState.OPEN:  # wsproto reports a malformed frame as a close
            self._close_with_error(event.code, event.reason or "")
            return
        self.ended = True
        if frames.state is ConnectionState.REMOTE_CLOSING:
            self._answer += frames.send(event.response())

    def _close_with_error(self, code: int, reason: str) -> None:
        """Close the connection with the reason of an error. [RFC 6455 7.1.7]"""
        self.refusal = reason[:REASON_CHARACTERS]
        if self.open:
            self._answer += self._peer.send(CloseConnection(code, self.refusal))
        self.ended = True


def _refusal_of(error: RemoteProtocolError) -> tuple[HTTPStatus, str]:
    """Return the status and the reason for bytes that are no request."""
    status, reason = HTTPStatus.UPGRADE_REQUIRED, str(error)
    unreadable = error.__context__
    if isinstance(unreadable, h11.RemoteProtocolError):
        status, reason = HTTPStatus(unreadable.error_status_hint), str(unreadable)
        unreadable.__traceback__ = None  # a cycle of references would keep the connection in memory
    error.__traceback__ = None
    return status, reason


def _name_in(place: str) -> str:
    """Return the host in `HOST`, `HOST:PORT` or `SCHEME://HOST:PORT`."""
    host = place.split("://", 1)[-1]
    return host.partition("]")[0] if host.startswith("[") else host.partition(":")[0]
