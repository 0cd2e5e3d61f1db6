"""A connection of AMQP 0-9-1 with a single channel, in the thread of its task. [amqp-0-9-1 4]

Heartbeats are off, as Spark may let a task wait for minutes.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections import deque
from typing import Final

from pamqp import base, commands, common

from pipeline.connector.server import LEAST_S, Server, ServerError, error_text
from protocol.amqp091 import constants as c
from protocol.amqp091.methods import decode_method, method_frame
from protocol.errors import CONNECTION_FORCED, ProtocolError

CHANNEL: Final = 1
FRAME_MAX: Final = 131072
READ_BYTES: Final = 256 * 1024
HEADER: Final = b"AMQP\x00\x00\x09\x01"
_FRAME_HEAD: Final = struct.Struct(">BHI")
_METHOD: Final = struct.Struct(">I")
_CAPABILITIES: Final = (
    "authentication_failure_close",
    "basic.nack",
    "connection.blocked",
    "consumer_cancel_notify",
)

Frame = tuple[int, bytes]
"""The type of a frame and its payload."""


class ConnectionLostError(ServerError):
    """The connection is lost, or the broker is stopping: a new connection may succeed soon."""


def connect(server: Server) -> Link:
    """Open a connection; retry for the server's `patience` if the broker does not answer.

    Raises ServerError.
    """
    failure: Exception | None = None
    names = " or ".join(f"{host}:{port}" for _, host, port in server.amqp)
    for left in server.attempts():
        until = time.monotonic() + max(left, LEAST_S)
        for address in server.amqp:
            seconds = min(server.timeout, max(until - time.monotonic(), LEAST_S))
            try:
                return Link(server, _connected(server, address, seconds))
            except ssl.SSLCertVerificationError as error:  # no retry: the certificate stays wrong
                raise ServerError(f"cannot trust {address[1]}:{address[2]}: {error_text(error)}") from error
            except (OSError, ConnectionLostError) as error:
                if failure is None:
                    server.warn_of_absence(names, error)
                failure = error
    raise ConnectionLostError(f"cannot connect to {names}: {error_text(failure)}") from failure


class Link:
    """An open connection. All functions raise ServerError: the connection cannot be used any more then."""

    def __init__(self, server: Server, connected: socket.socket) -> None:
        """Log in over a socket. Raises ServerError."""
        self._server = server
        self._frames: deque[Frame] = deque()
        self._rest = b""  # the start of an incomplete frame
        self._socket = connected
        connected.settimeout(server.timeout)
        self.frame_max = FRAME_MAX
        self.product = ""  # the product name of the broker
        try:
            self._log_in()
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close the connection, if the broker still listens, and the socket."""
        try:
            self._send_method(commands.Connection.Close(200, "", 0, 0), 0)
            self._wait(commands.Connection.CloseOk)
        except (ServerError, OSError):
            pass
        finally:
            self._socket.close()

    def drop(self) -> None:
        """Close the socket only."""
        self._socket.close()

    def call(self, method: base.Frame, channel: int = CHANNEL) -> base.Frame:
        """Send a method and wait for the answer to it."""
        self._send_method(method, channel)
        return self._wait(*(_named(each) for each in method.valid_responses))

    def send(self, data: bytes) -> None:
        """Send frames."""
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._last_words() or ConnectionLostError(
                f"the connection to the broker broke off: {error}"
            ) from error

    def frame(self, timeout: float) -> Frame | None:
        """Return the next frame, if one arrives completely within `timeout` seconds."""
        if not self._frames:
            until = time.monotonic() + timeout
            while not self._frames:
                if not self._readable(max(until - time.monotonic(), 0)):
                    return None
                self._receive()
        return self._frames.popleft()

    def pending(self) -> bool:
        """Whether bytes have arrived."""
        return bool(self._frames) or self._readable(0)

    def _readable(self, timeout: float) -> bool:
        """Whether bytes arrive within `timeout` seconds; bytes that TLS has already read count."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return bool(select.select([self._socket], [], [], timeout)[0])

    def _log_in(self) -> None:
        server = self._server
        self.send(HEADER)
        start = self._wait(commands.Connection.Start)
        assert isinstance(start, commands.Connection.Start), "nothing else was waited for"
        self.product = str(start.server_properties.get("product", ""))
        properties: common.FieldTable = {
            "product": "amqpd pipeline",
            "capabilities": dict.fromkeys(_CAPABILITIES, True),
        }
        response = f"\0{server.user}\0{server.password.read()}"
        start_ok = commands.Connection.StartOk(properties, "PLAIN", response, "en_US")
        self._send_method(start_ok, 0)
        tune = self._wait(commands.Connection.Tune)
        assert isinstance(tune, commands.Connection.Tune), "nothing else was waited for"
        self.frame_max = min(tune.frame_max or FRAME_MAX, FRAME_MAX)
        self._send_method(commands.Connection.TuneOk(tune.channel_max, self.frame_max, 0), 0)
        self.call(commands.Connection.Open(server.vhost), 0)
        self.call(commands.Channel.Open())

    def _send_method(self, method: base.Frame, channel: int) -> None:
        self.send(encode_method(method, channel))

    def _wait(self, *kinds: type[base.Frame]) -> base.Frame:
        """Return the next method, which must be one of `kinds`."""
        while True:
            frame = self.frame(self._server.timeout)
            if frame is None:
                raise ConnectionLostError(f"no answer of the broker within {self._server.timeout:g} s")
            if frame[0] == c.FRAME_METHOD:
                method = parse_method(frame[1])
                if isinstance(method, kinds):
                    return method
                if not isinstance(method, commands.Connection.Blocked | commands.Connection.Unblocked):
                    raise unexpected_method_error(method)

    def _receive(self) -> None:
        """Read the bytes that have arrived, and cut them into frames; keep an incomplete frame."""
        try:
            data = self._socket.recv(READ_BYTES)
        except OSError as error:
            raise ConnectionLostError(f"the connection to the broker broke off: {error}") from error
        if not data:
            raise ConnectionLostError("the broker closed the connection")
        data = self._rest + data if self._rest else data
        at = 0
        while len(data) - at >= c.FRAME_OVERHEAD:
            kind, _, size = _FRAME_HEAD.unpack_from(data, at)
            behind = at + c.FRAME_OVERHEAD + size
            if behind > len(data):
                break
            self._frames.append((kind, data[at + 7 : behind - 1]))
            at = behind
        self._rest = data[at:]

    def _last_words(self) -> ServerError | None:
        """Return the reason of the broker's connection.close; None without one."""
        try:
            while (frame := self.frame(1.0)) is not None:
                if frame[0] == c.FRAME_METHOD and parse_method(frame[1]).name.endswith(".Close"):
                    return unexpected_method_error(parse_method(frame[1]))
        except ServerError:
            pass
        return None


def encode_method(method: base.Frame, channel: int = CHANNEL) -> bytes:
    """Return a method as a frame."""
    return method_frame(channel, method.index, method.marshal())


def parse_method(payload: bytes) -> base.Frame:
    """Return the method in the payload of a frame. Raises ServerError."""
    try:
        return decode_method(_METHOD.unpack_from(payload)[0], payload)
    except (ProtocolError, struct.error) as error:
        raise ServerError(f"the broker sent a malformed method: {error}") from error


def unexpected_method_error(method: base.Frame) -> ServerError:
    """Return the error for an unexpected method of the broker."""
    if isinstance(method, commands.Connection.Close | commands.Channel.Close):
        kind = ConnectionLostError if method.reply_code == CONNECTION_FORCED else ServerError
        return kind(f"the broker says {method.reply_code} {method.reply_text}")
    if isinstance(method, commands.Basic.Cancel):
        return ServerError("the broker cancelled the consumer: the queue may have been deleted")
    return ServerError(f"the broker sent an unexpected {method.name}")


def _named(name: str) -> type[base.Frame]:
    group, method = name.split(".")
    frame_class: type[base.Frame] = getattr(getattr(commands, group), method)
    return frame_class


def _connected(server: Server, address: tuple[str, str, int], seconds: float) -> socket.socket:
    """Return a socket connected to an address, with TLS if its scheme says so.

    Raises OSError, OptionError.
    """
    scheme, host, port = address
    plain = socket.create_connection((host, port), seconds)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if scheme == "amqps":
            return server.tls.context().wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
    return plain
