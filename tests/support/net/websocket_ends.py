"""Both ends of a WebSocket in the broker, the event loop's and the transport's, all moved by hand."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from wsproto import ConnectionType, WSConnection
from wsproto.events import Event

from broker.net.transport import READ_BYTES, Transport
from broker.net.websocket import WebSocket


class LoopSocket:
    """The event loop's end."""

    def __init__(self) -> None:
        self.written = b""
        self.reading = True
        self.closed = False
        self.aborted = False
        self.limits: tuple[int | None, int | None] = (None, None)

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written += data

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: object = None) -> object:
        return {"peername": ("::1", 7)}.get(name, default)

    def get_write_buffer_size(self) -> int:
        return 77

    def set_write_buffer_limits(self, high: int | None, low: int | None) -> None:
        self.limits = (high, low)


class RecordingTransport:
    """The transport's end of a WebSocket, which acts as a test tells it."""

    peer = "[::1]:7"

    def __init__(self) -> None:
        self.buffer = bytearray(READ_BYTES)
        self.heard = b""
        self.reads: list[int] = []
        self.socket: WebSocket | None = None
        self.on_data: Callable[[], None] = lambda: None
        self.blocked: bool | None = None
        self.lost = 0

    def connection_made(self, socket: WebSocket) -> None:
        self.socket = socket

    def get_buffer(self, size_hint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, size: int) -> None:
        self.heard += self.buffer[:size]
        self.reads.append(size)
        self.on_data()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.blocked = True

    def resume_writing(self) -> None:
        self.blocked = False

    def connection_lost(self, error: Exception | None) -> None:
        self.lost += 1


class Loop:
    """Turns that are due."""

    def __init__(self) -> None:
        self.due: deque[Callable[[], None]] = deque()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def run(self) -> int:
        """Have all of them; returns how many there were."""
        turns = 0
        while self.due:
            self.due.popleft()()
            turns += 1
        return turns


class WebSocketEnds:
    """The three ends around a WebSocket, and a client that has sent nothing."""

    def __init__(self) -> None:
        self.socket, self.above, self.loop = LoopSocket(), RecordingTransport(), Loop()
        self.websocket = WebSocket(
            cast("Transport", self.above), cast("asyncio.AbstractEventLoop", self.loop)
        )
        self.client = WSConnection(ConnectionType.CLIENT)
        self.websocket.connection_made(cast("asyncio.Transport", self.socket))

    def send(self, *events: Event) -> None:
        """Send all events of the client in a single piece."""
        self.arrive(b"".join(self.client.send(event) for event in events))

    def arrive(self, data: bytes) -> None:
        """Bytes come from the socket."""
        for start in range(0, len(data), READ_BYTES):
            piece = data[start : start + READ_BYTES]
            self.websocket.get_buffer(-1)[: len(piece)] = piece
            self.websocket.buffer_updated(len(piece))

    def heard(self) -> list[Any]:
        """Return the events that the client receives."""
        written, self.socket.written = self.socket.written, b""
        if written:
            self.client.receive_data(written)
        return list(self.client.events())
