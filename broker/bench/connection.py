"""The client's end of one connection of any protocol: a socket, a buffer, and who waits for an answer."""

import asyncio
from typing import Final, Generic, TypeVar, cast

from broker.bench.plan import Address
from protocol.amqp10.conditions import PeerError
from protocol.errors import ProtocolError

BUFFER_BYTES: Final = 256 * 1024
ANSWER_TIMEOUT_S: Final = 30.0

Answer = TypeVar("Answer")


class BenchError(Exception):
    """The broker refused something, broke the protocol or went away."""


class Connection(asyncio.BufferedProtocol, Generic[Answer]):
    """A connection; frames are read in place in a buffer that grows to the largest message.

    Subclasses log in, and take frames in `consume`.
    """

    def __init__(self) -> None:
        self.failure: BenchError | None = None
        self.paused = False  # the socket takes no more, or `blocked`
        self.blocked = False  # the broker asked to stop publishing
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
        """Close the connection; the broker has then seen everything written to it, unless it is `blocked`."""
        if self._transport is None or self.failure is not None or self._closed:
            return
        try:
            if not self.blocked:  # the broker reads nothing more of it
                await self.say_goodbye()
        finally:
            self._closed = True
            self._transport.close()

    async def ask(self, data: bytes, what: str) -> Answer:
        """Send a question and wait for the answer. Raises BenchError."""
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
        """Hand frames to the socket; what comes after the end of the connection is dropped."""
        if self._transport is not None and self.failure is None:
            self._transport.write(data)

    # -- what a subclass does

    async def say_goodbye(self) -> None:
        """Close the connection as the protocol does. Raises BenchError."""
        raise NotImplementedError

    def consume(self, end: int) -> int:
        """Take the frames from the beginning of the buffer; return where the first incomplete one begins.

        Raises BenchError, ProtocolError, PeerError.
        """
        raise NotImplementedError

    def resumed(self) -> None:
        """Publishing may go on after `paused`."""

    def failed(self) -> None:
        """The connection has ended; `failure` says why."""

    # -- what subclasses call

    def answered(self, answer: Answer) -> bool:
        """Give `answer` to the call that waits; return False if none waits."""
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
        self.failed()

    def go_on(self) -> None:
        """The socket or the broker takes more."""
        self.paused = self._socket_full or self.blocked
        if not self.paused:
            self.resumed()

    # -- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES)

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        self.fail(BenchError(f"the broker closed the connection{f': {error}' if error else ''}"))

    def pause_writing(self) -> None:
        """The socket takes no more for now."""
        self._socket_full = self.paused = True

    def resume_writing(self) -> None:
        """The socket takes more."""
        self._socket_full = False
        self.go_on()

    def get_buffer(self, _hint: int) -> memoryview:
        """The free part of the buffer, which doubles when a message does not fit."""
        if self._filled * 2 > len(self._buffer):
            larger = bytearray(len(self._buffer) * 2)
            larger[: self._filled] = memoryview(self._buffer)[: self._filled]
            self._buffer = larger
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, count: int) -> None:
        """Look at all frames that are complete, and keep the rest for later."""
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
