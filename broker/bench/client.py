"""The client's end of one AMQP 0-9-1 connection with one channel, as lean as a load generator needs it."""

import asyncio
import struct
from typing import Final, cast

from pamqp import base, commands, common

from broker.bench.plan import Address
from protocol.amqp091 import constants as c
from protocol.amqp091.methods import decode_method
from protocol.errors import ProtocolError

CHANNEL: Final = 1
BUFFER_BYTES: Final = 256 * 1024
ANSWER_TIMEOUT_S: Final = 30.0

_FRAME_HEAD: Final = struct.Struct(">BHI")
_METHOD: Final = struct.Struct(">I")
_CAPABILITIES: Final = (
    "authentication_failure_close",
    "basic.nack",
    "connection.blocked",
    "consumer_cancel_notify",
    "publisher_confirms",
)


class BenchError(Exception):
    """The broker refused something, broke the protocol or went away."""


class Client(asyncio.BufferedProtocol):
    """One connection; frames are looked at in place in one buffer that grows to the largest message.

    Subclasses take the data plane in `content` and `confirm`; everything else is answered or awaited here.
    """

    def __init__(self) -> None:
        self.failure: BenchError | None = None
        self.frame_max = 131072
        self.paused = False  # the socket takes no more, or `blocked`
        self._socket_full = False
        self.blocked = False  # the broker asked to stop publishing
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(BUFFER_BYTES)
        self._filled = 0
        self._answer: asyncio.Future[base.Frame] | None = None
        self._closed = False

    async def open(self, address: Address) -> None:
        """Connect, log in and open the channel. Raises BenchError."""
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self, address.host, address.port)
        except OSError as error:
            raise BenchError(f"cannot connect to {address.host} port {address.port}: {error}") from error
        answer = self._expect()
        self.write(b"AMQP\x00\x00\x09\x01")
        await self._wait(answer, "protocol header")
        properties: common.FieldTable = {
            "product": "amqpd bench",
            "capabilities": dict.fromkeys(_CAPABILITIES, True),
        }
        response = f"\0{address.user}\0{address.password}"
        tune = await self.call(commands.Connection.StartOk(properties, "PLAIN", response, "en_US"), channel=0)
        if not isinstance(tune, commands.Connection.Tune):
            raise BenchError(f"{tune.name} in answer to the login")
        self.frame_max = min(tune.frame_max or self.frame_max, self.frame_max)
        # no heartbeats: a broker that stops answering is noticed because nothing arrives
        self.write(frame(0, commands.Connection.TuneOk(tune.channel_max, self.frame_max, 0)))
        await self.call(commands.Connection.Open(address.virtual_host), channel=0)
        await self.call(commands.Channel.Open())

    async def close(self) -> None:
        """Close the connection; the broker has then seen everything written to it, unless it is `blocked`."""
        if self._transport is None or self.failure is not None or self._closed:
            return
        try:
            if not self.blocked:  # the broker reads nothing more of it
                await self.call(commands.Connection.Close(200, "bye", 0, 0), channel=0)
        finally:
            self._closed = True
            self._transport.close()

    async def call(self, method: base.Frame, channel: int = CHANNEL) -> base.Frame:
        """Send a method and wait for the answer. Raises BenchError."""
        answer = self._expect()
        self.write(frame(channel, method))
        return await self._wait(answer, method.name)

    def write(self, data: bytes | bytearray) -> None:
        """Hand frames to the socket; what comes after the end of the connection is dropped."""
        if self._transport is not None and self.failure is None:
            self._transport.write(data)

    def content(self, start: int, end: int) -> int:
        """Take the delivery at `start` of the buffer, which is filled up to `end`; return where it is over.

        Returning `start` means that the delivery is not complete yet.
        """
        raise BenchError("a delivery on a connection that does not consume")

    def confirm(self, tag: int, multiple: bool, nack: bool) -> None:
        """Take the broker's basic.ack or basic.nack."""
        raise BenchError("a confirm on a connection that does not publish")

    def resumed(self) -> None:
        """Publishing may go on after `paused`."""

    def failed(self) -> None:
        """The connection has ended; `failure` says why."""

    def _expect(self) -> asyncio.Future[base.Frame]:
        if self.failure is not None:
            raise self.failure
        self._answer = asyncio.get_running_loop().create_future()
        return self._answer

    async def _wait(self, answer: asyncio.Future[base.Frame], what: str) -> base.Frame:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await answer
        except TimeoutError as error:
            self._fail(BenchError(f"no answer to {what} within {ANSWER_TIMEOUT_S:g} s"))
            assert self.failure is not None
            raise self.failure from error

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES)

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        self._fail(BenchError(f"the broker closed the connection{f': {error}' if error else ''}"))

    def pause_writing(self) -> None:
        """The socket takes no more for now."""
        self._socket_full = self.paused = True

    def resume_writing(self) -> None:
        """The socket takes more."""
        self._socket_full = False
        self._resume()

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
            start = self._consume(end)
        except (BenchError, ProtocolError) as error:
            self._fail(error if isinstance(error, BenchError) else BenchError(f"malformed: {error}"))
            start = end
        if start < end:
            self._buffer[: end - start] = self._buffer[start:end]
        self._filled = end - start

    def _consume(self, end: int) -> int:
        """Take the frames from the beginning of the buffer; return where the first incomplete one begins."""
        buffer, start = self._buffer, 0
        while end - start >= c.FRAME_OVERHEAD:
            kind, channel, size = _FRAME_HEAD.unpack_from(buffer, start)
            after = start + c.FRAME_OVERHEAD + size
            if after > end:
                break
            if buffer[after - 1] != c.FRAME_END:
                raise BenchError(f"frame of type {kind} and size {size} does not end with 0xCE")
            if kind == c.FRAME_METHOD:
                method = _METHOD.unpack_from(buffer, start + 7)[0]
                if method == c.BASIC_DELIVER:
                    after = self.content(start, end)
                    if after == start:
                        break
                elif method in (c.BASIC_ACK, c.BASIC_NACK):
                    tag, bits = struct.unpack_from(">QB", buffer, start + 11)
                    self.confirm(tag, bool(bits & 1), method == c.BASIC_NACK)
                else:
                    self._method(channel, decode_method(method, bytes(buffer[start + 7 : after - 1])))
            elif kind != c.FRAME_HEARTBEAT:
                raise BenchError(f"a frame of type {kind} where none belongs")
            start = after
        return start

    def _method(self, channel: int, method: base.Frame) -> None:
        if isinstance(method, commands.Connection.Close | commands.Channel.Close):
            ok = commands.Channel.CloseOk() if channel else commands.Connection.CloseOk()
            self.write(frame(channel, ok))
            self._fail(BenchError(f"the broker says {method.reply_code} {method.reply_text}"))
        elif isinstance(method, commands.Connection.Blocked):
            self.blocked = self.paused = True
        elif isinstance(method, commands.Connection.Unblocked):
            self.blocked = False
            self._resume()
        elif isinstance(method, commands.Basic.Cancel):
            raise BenchError(f"the broker cancelled consumer {method.consumer_tag}")
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(method)
        else:
            raise BenchError(f"{method.name} out of the blue")

    def _resume(self) -> None:
        self.paused = self._socket_full or self.blocked
        if not self.paused:
            self.resumed()

    def _fail(self, failure: BenchError) -> None:
        if self.failure is not None or self._closed:
            return
        self.failure = failure
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(failure)
        if self._transport is not None:
            self._transport.close()
        self.failed()


def frame(channel: int, method: base.Frame) -> bytes:
    """One whole method frame."""
    payload = _METHOD.pack(method.index) + method.marshal()
    return _FRAME_HEAD.pack(c.FRAME_METHOD, channel, len(payload)) + payload + b"\xce"
