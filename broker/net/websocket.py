"""WebSockets at the asyncio edge: a protocol for the event loop, and the socket of a transport."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final, final

import structlog

from broker.net.tls import WEBSOCKET
from broker.net.transport import READ_BYTES, Transport
from protocol.websocket import MESSAGE_BYTES, WebSocketWire

FRAMES_PER_STEP: Final = 128  # 256 KiB of the smallest frames would take a third of a second

_BUFFER: Final = bytearray(READ_BYTES)  # shared by all WebSockets, as the transports share a buffer
_VIEW: Final = memoryview(_BUFFER)

_log = structlog.get_logger("amqpd.net")


@final
class WebSocket(asyncio.Transport, asyncio.BufferedProtocol):
    """The WebSocket of a peer, which `transport` uses as a socket that carries the payload alone.

    The transport's connection is made when the peer has connected, so that the transport's deadlines hold for
    the HTTP handshake too. Web pages of `origins` are accepted.
    """

    def __init__(
        self, transport: Transport, loop: asyncio.AbstractEventLoop, origins: Collection[str] = ()
    ) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._wire = WebSocketWire(origins)
        self._socket: asyncio.Transport | None = None
        self._paused = False  # the transport takes no payload now
        self._reading = True
        self._is_scheduled = False  # a further step is scheduled
        self._is_full = False  # the peer does not read
        self._closing = False

    # -- called by the event loop

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the socket of a client that has connected."""
        self._socket = transport
        self._transport.connection_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer into which the loop reads."""
        return _VIEW

    def buffer_updated(self, nbytes: int) -> None:
        """Take `nbytes` bytes that have arrived."""
        self._wire.feed(bytes(_VIEW[:nbytes]))
        if not self._paused and not self._is_scheduled:
            self._take_step()

    def eof_received(self) -> bool:
        """End the connection: the client has closed its side without a WebSocket close frame."""
        return self._transport.eof_received()

    def pause_writing(self) -> None:
        """Note that the client reads more slowly than the broker writes."""
        self._is_full = True
        self._transport.pause_writing()

    def resume_writing(self) -> None:
        """Note that the client has caught up."""
        self._is_full = False
        self._transport.resume_writing()
        self._pong()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the transport that the socket is closed."""
        self._socket = None
        self._transport.connection_lost(exc)
        self._wire.release()

    # -- called by the transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the socket's information, and True for WEBSOCKET."""
        if name == WEBSOCKET:
            return True
        return default if self._socket is None else self._socket.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the sizes at which writing pauses and resumes."""
        if self._socket is not None:
            self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the peer has not taken yet."""
        return 0 if self._socket is None else self._socket.get_write_buffer_size()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send `data` in messages; nothing happens before the handshake or after closing."""
        socket, wire = self._socket, self._wire
        for start in range(0, len(data), MESSAGE_BYTES):
            if socket is not None and wire.open:
                socket.write(wire.message(bytes(data[start : start + MESSAGE_BYTES])))

    def can_write_eof(self) -> bool:
        """Return False: only `close` ends the output, and the peer is read until it has answered."""
        return False

    def close(self) -> None:
        """Close after all written bytes have been sent and the peer has answered the close."""
        socket = self._socket
        if self._closing or socket is None:
            return
        self._closing = True
        close_frame = self._wire.close()
        if close_frame:
            socket.write(close_frame)
            self.resume_reading()
        else:
            socket.close()

    def abort(self) -> None:
        """Close at once."""
        if self._socket is not None:
            self._socket.abort()

    def is_closing(self) -> bool:
        """Whether written bytes no longer reach the peer."""
        return self._closing or self._wire.ended or self._socket is None or self._socket.is_closing()

    def pause_reading(self) -> None:
        """Pass no more payload on."""
        self._paused = not self._closing
        self._schedule_step()

    def resume_reading(self) -> None:
        """Continue to pass payload on."""
        self._paused = False
        self._schedule_step()

    # -- steps

    def _take_step(self) -> None:
        """Pass on the payload of a step, and answer the frames that are not for AMQP."""
        self._is_scheduled = False
        socket = self._socket
        if self._paused or socket is None or socket.is_closing():
            return  # resume_reading schedules a step after a pause
        payload = self._wire.read(FRAMES_PER_STEP)
        for start in range(0, len(payload), READ_BYTES):
            self._pass_on(payload[start : start + READ_BYTES])
        answer = self._wire.answer()
        if answer:
            socket.write(answer)
        self._pong()
        if self._wire.ended:
            if self._wire.refusal:
                _log.warning("WebSocket refused", peer=self._transport.peer, reason=self._wire.refusal)
            socket.close()
        self._schedule_step()

    def _pass_on(self, payload: bytes) -> None:
        if not self._closing and self._socket is not None:
            self._transport.get_buffer(-1)[: len(payload)] = payload
            self._transport.buffer_updated(len(payload))

    def _pong(self) -> None:
        """Answer pings. If the peer does not read, only the latest ping is answered when it reads again."""
        if not self._is_full and self._socket is not None:
            pong = self._wire.pong()
            if pong:
                self._socket.write(pong)

    def _schedule_step(self) -> None:
        """Schedule a further step if frames are left, and read from the socket if no frame is left."""
        socket = self._socket
        if socket is None or socket.is_closing():
            return
        if self._wire.has_unread and not self._paused and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._take_step)
        reading = not self._paused and not self._wire.has_unread
        if reading != self._reading:
            self._reading = reading
            if reading:
                socket.resume_reading()
            else:
                socket.pause_reading()
