"""The client's end of one AMQP 0-9-1 connection with one channel, as lean as a load generator needs it."""

import struct
from typing import Final

from pamqp import base, commands, common

from broker.bench.connection import BenchError, Connection
from broker.bench.plan import Address
from protocol.amqp091 import constants as c
from protocol.amqp091.methods import decode_method, method_frame

CHANNEL: Final = 1

_FRAME_HEAD: Final = struct.Struct(">BHI")
_METHOD: Final = struct.Struct(">I")
_CAPABILITIES: Final = (
    "authentication_failure_close",
    "basic.nack",
    "connection.blocked",
    "consumer_cancel_notify",
    "publisher_confirms",
)


class Client091(Connection[base.Frame]):
    """Subclasses take the data plane in `content` and `confirm`; all else is answered or awaited here."""

    def __init__(self) -> None:
        super().__init__()
        self.frame_max = 131072

    async def open(self, address: Address) -> None:
        """Connect, log in and open the channel. Raises BenchError."""
        await self.connect(address)
        await self.ask(b"AMQP\x00\x00\x09\x01", "protocol header")
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

    async def say_goodbye(self) -> None:
        """Close the connection (Connection)."""
        await self.call(commands.Connection.Close(200, "bye", 0, 0), channel=0)

    async def call(self, method: base.Frame, channel: int = CHANNEL) -> base.Frame:
        """Send a method and wait for the answer. Raises BenchError."""
        return await self.ask(frame(channel, method), method.name)

    def content(self, start: int, end: int) -> int:
        """Take the delivery at `start` of the buffer, which is filled up to `end`; return where it is over.

        Returning `start` means that the delivery is not complete yet.
        """
        raise BenchError("a delivery on a connection that does not consume")

    def confirm(self, tag: int, multiple: bool, nack: bool) -> None:
        """Take the broker's basic.ack or basic.nack."""
        raise BenchError("a confirm on a connection that does not publish")

    def consume(self, end: int) -> int:
        """Take the frames from the beginning of the buffer (Connection)."""
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
            self.fail(BenchError(f"the broker says {method.reply_code} {method.reply_text}"))
        elif isinstance(method, commands.Connection.Blocked):
            self.blocked = self.paused = True
        elif isinstance(method, commands.Connection.Unblocked):
            self.blocked = False
            self.go_on()
        elif isinstance(method, commands.Basic.Cancel):
            raise BenchError(f"the broker cancelled consumer {method.consumer_tag}")
        elif not self.answered(method):
            raise BenchError(f"{method.name} out of the blue")


def frame(channel: int, method: base.Frame) -> bytes:
    """One whole method frame."""
    return method_frame(channel, method.index, method.marshal())
