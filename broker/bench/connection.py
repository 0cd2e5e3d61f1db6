"""The bench's connection, for any protocol: a socket, a buffer, and the call that waits for an answer."""

import asyncio
from typing import Final, Generic, TypeVar, cast

from broker.bench.plan import Address
from protocol.amqp10.conditions import PeerError
from protocol.errors import ProtocolError

BUFFER_BYTES: Final = 256 * 1024
ANSWER_TIMEOUT_S: Final = 30.0

Answer = TypeVar("Answer")


class BenchError(Exception):
    """The broker refused a request, violated the protocol or closed the connection."""


class Connection(asyncio.BufferedProtocol, Generic[Answer]):
    """A connection. Frames are read in place in a buffer that grows to the largest message.

    Subclasses log in, and handle frames in `consume`.
    """

    def __init__(self) -> None:
        self.failure: BenchError | None = None
        self.paused = False  # the socket's buffer is full, or `blocked`
        self.blocked = False  # the broker has blocked publishers
        self._socket_full = False
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(BUFFER_BYTES)
        self._filled = 0
        self._answer: asyncio.Future[Answer] | None = None
        self._closed = False

    async def connect(self, address: Address) -> None:
        """Connect the socket. Raises BenchError."""
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self, address.host, address.port)
        except OSError as error:
            raise BenchError(f"cannot connect to {address.host} port {address.port}: {error}") from error

    async def close(self) -> None:
        """Close the connection. The broker has read everything written before, unless it is `blocked`."""
        if self._transport is None or self.failure is not None or self._closed:
            return
        try:
            if not self.blocked:  # a blocked broker reads no more
                await self.say_goodbye()
        finally:
            self._closed = True
            self._transport.close()

    async def ask(self, data: bytes, what: str) -> Answer:
        """Send a request and wait for the answer. Raises BenchError."""
        if self.failure is not None:
            raise self.failure
        self._answer = asyncio.get_running_loop().create_future()
        self.write(data)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self._answer
        except TimeoutError as error:
            self.fail(BenchError(f"no answer to {what} within {ANSWER_TIMEOUT_S:g} s"))
            assert self.failure is not None
            raise self.failure from error

    def write(self, data: bytes | bytearray) -> None:
        """Write frames to the socket; after the end of the connection they are dropped."""
        if self._transport is not None and self.failure is None:
            self._transport.write(data)

    # -- methods of subclasses

    async def say_goodbye(self) -> None:
        """Close the connection as the protocol does. Raises BenchError."""
        raise NotImplementedError

    def consume(self, end: int) -> int:
        """Handle the frames from the beginning of the buffer; return the start of the first incomplete one.

        Raises BenchError, ProtocolError, PeerError.
        """
        raise NotImplementedError

    def on_resumed(self) -> None:
        """Resume publishing after `paused`."""

    def on_failed(self) -> None:
        """Handle the end of the connection; `failure` has the reason."""

    # -- calls from subclasses

    def answered(self, answer: Answer) -> bool:
        """Give `answer` to the call that waits; False if no call waits."""
        if self._answer is None or self._answer.done():
            return False
        self._answer.set_result(answer)
        return True

    def fail(self, failure: BenchError) -> None:
        """End the connection, once."""
        if self.failure is not None or self._closed:
            return
        self.failure = failure
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(failure)
        if self._transport is not None:
            self._transport.close()
        self.on_failed()

    def go_on(self) -> None:
        """Resume: the socket or the broker accepts bytes again."""
        self.paused = self._socket_full or self.blocked
        if not self.paused:
            self.on_resumed()

    # -- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the connected socket."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has another base class
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES)

    def connection_lost(self, error: Exception | None) -> None:
        """End the connection, as the socket is closed."""
        self.fail(BenchError(f"the broker closed the connection{f': {error}' if error else ''}"))

    def pause_writing(self) -> None:
        """Pause: the socket's buffer is full."""
        self._socket_full = self.paused = True

    def resume_writing(self) -> None:
        """Resume: the socket's buffer has room."""
        self._socket_full = False
        self.go_on()

    def get_buffer(self, _hint: int) -> memoryview:
        """Return the free part of the buffer, which doubles when a message does not fit."""
        if self._filled * 2 > len(self._buffer):
            larger = bytearray(len(self._buffer) * 2)
            larger[: self._filled] = memoryview(self._buffer)[: self._filled]
            self._buffer = larger
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, count: int) -> None:
        """Handle all complete frames, and keep the rest."""
        end = self._filled + count
        try:
            start = self.consume(end)
        except BenchError as error:
            self.fail(error)
            start = end
        except (ProtocolError, PeerError) as error:
            self.fail(BenchError(f"malformed: {error}"))
            start = end
        if start < end:
            self._buffer[: end - start] = self._buffer[start:end]
        self._filled = end - start
