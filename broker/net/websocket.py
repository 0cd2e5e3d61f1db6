"""WebSockets at the asyncio edge: a protocol for the event loop, and the socket of the transport above."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final, final

import structlog

from broker.net.tls import WEBSOCKET
from broker.net.transport import READ_BYTES, Transport
from protocol.websocket import MESSAGE_BYTES, WebSocketWire

FRAMES_PER_TURN: Final = 128  # what 256 KiB of the smallest frames would take is a third of a second

_BUFFER: Final = bytearray(READ_BYTES)  # shared, as that of all transports is
_VIEW: Final = memoryview(_BUFFER)

_log = structlog.get_logger("amqpd.net")


@final
class WebSocket(asyncio.Transport, asyncio.BufferedProtocol):
    """One peer's WebSocket: to the transport `above` it is the socket, which carries the payload alone.

    To that the connection is made when the peer has connected, so that it bounds the time of HTTP too. Web
    pages of `origins` are welcome.
    """

    def __init__(
        self, above: Transport, loop: asyncio.AbstractEventLoop, origins: Collection[str] = ()
    ) -> None:
        super().__init__()
        self._above = above
        self._loop = loop
        self._wire = WebSocketWire(origins)
        self._below: asyncio.Transport | None = None
        self._paused = False  # the transport above wants to be given nothing now
        self._reading = True
        self._due = False  # a further turn is to come
        self._full = False  # the peer does not take what it is sent
        self._closing = False

    # -- called by the event loop

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        self._below = transport
        self._above.connection_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop may put what it reads."""
        return _VIEW

    def buffer_updated(self, nbytes: int) -> None:
        """`nbytes` bytes have arrived."""
        self._wire.feed(bytes(_VIEW[:nbytes]))
        if not self._paused and not self._due:
            self._take_turn()

    def eof_received(self) -> bool:
        """The client has closed its side, without a word in WebSocket."""
        return self._above.eof_received()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is written to."""
        self._full = True
        self._above.pause_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._full = False
        self._above.resume_writing()
        self._pong()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._below = None
        self._above.connection_lost(exc)

    # -- called by the transport above

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What the socket knows, and that this is a WebSocket."""
        if name == WEBSOCKET:
            return True
        return default if self._below is None else self._below.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When to pause and resume writing."""
        if self._below is not None:
            self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Bytes that the peer has yet to take."""
        return 0 if self._below is None else self._below.get_write_buffer_size()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send `data` in messages; nothing happens before the handshake and once it is closed."""
        below, wire = self._below, self._wire
        for start in range(0, len(data), MESSAGE_BYTES):
            if below is not None and wire.open:
                below.write(wire.message(bytes(data[start : start + MESSAGE_BYTES])))

    def can_write_eof(self) -> bool:
        """To close is what ends the output here: the peer is still heard until it has answered."""
        return False

    def close(self) -> None:
        """Close after what was written has been sent, and the peer has answered that it is closed."""
        below = self._below
        if self._closing or below is None:
            return
        self._closing = True
        farewell = self._wire.close()
        if farewell:
            below.write(farewell)
            self.resume_reading()
        else:
            below.close()

    def abort(self) -> None:
        """Close at once."""
        if self._below is not None:
            self._below.abort()

    def is_closing(self) -> bool:
        """Whether writing is pointless."""
        return self._closing or self._wire.ended or self._below is None or self._below.is_closing()

    def pause_reading(self) -> None:
        """Hand over nothing more."""
        self._paused = not self._closing
        self._regulate()

    def resume_reading(self) -> None:
        """Go on where it was paused."""
        self._paused = False
        self._regulate()

    # -- turns

    def _take_turn(self) -> None:
        """Hand over what one turn may, and answer what is not for AMQP."""
        self._due = False
        below = self._below
        if self._paused or below is None or below.is_closing():
            return  # if it is paused, resume_reading leads here again
        payload = self._wire.read(FRAMES_PER_TURN)
        for start in range(0, len(payload), READ_BYTES):
            self._hand_over(payload[start : start + READ_BYTES])
        answer = self._wire.answer()
        if answer:
            below.write(answer)
        self._pong()
        if self._wire.ended:
            if self._wire.trouble:
                _log.warning("WebSocket refused", peer=self._above.peer, reason=self._wire.trouble)
            below.close()
        self._regulate()

    def _hand_over(self, payload: bytes) -> None:
        if not self._closing and self._below is not None:
            self._above.get_buffer(-1)[: len(payload)] = payload
            self._above.buffer_updated(len(payload))

    def _pong(self) -> None:
        """Answer pings, unless the peer does not read: the latest one is answered when it does."""
        if not self._full and self._below is not None:
            pong = self._wire.pong()
            if pong:
                self._below.write(pong)

    def _regulate(self) -> None:
        """Have a further turn if frames are left, and read from the socket if none are."""
        below = self._below
        if below is None or below.is_closing():
            return
        if self._wire.behind and not self._paused and not self._due:
            self._due = True
            self._loop.call_soon(self._take_turn)
        reading = not self._paused and not self._wire.behind
        if reading != self._reading:
            self._reading = reading
            if reading:
                below.resume_reading()
            else:
                below.pause_reading()
