"""The bench's client of AMQP 0-9-1: one connection with one channel, a sender, and a consumer."""

from __future__ import annotations

import struct
from time import monotonic_ns
from typing import Final

from pamqp import base, commands, common

from broker.bench.connection import BenchError, Connection
from broker.bench.messages import Receipts, Template, blank_body, routing_key
from broker.bench.plan import STAMP_BYTES, Address, Plan
from broker.bench.roles import PublisherPort
from broker.bench.traffic import Traffic
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

KEY_TAIL: Final = 2  # octets behind the routing key in basic.publish: the bits, and the end of the frame
NO_BOUND: Final = 1 << 30
_ACK_HEAD: Final = _FRAME_HEAD.pack(c.FRAME_METHOD, CHANNEL, 13) + struct.pack(">I", c.BASIC_ACK)
_SINGLE: Final = b"\x00\xce"
_MULTIPLE: Final = b"\x01\xce"
_TAIL_BYTES: Final = 7  # the end of the body, compared together with the frame end


class Client091(Connection[base.Frame]):
    """A connection.

    Subclasses handle messages in `content` and confirms in `confirm`; all else is handled here.
    """

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
        # No heartbeats: a broker that stops answering is noticed because nothing arrives.
        self.write(encode_method(0, commands.Connection.TuneOk(tune.channel_max, self.frame_max, 0)))
        await self.call(commands.Connection.Open(address.virtual_host), channel=0)
        await self.call(commands.Channel.Open())

    async def say_goodbye(self) -> None:
        """Close the connection."""
        await self.call(commands.Connection.Close(200, "bye", 0, 0), channel=0)

    async def call(self, method: base.Frame, channel: int = CHANNEL) -> base.Frame:
        """Send a method and wait for the answer. Raises BenchError."""
        return await self.ask(encode_method(channel, method), method.name)

    def content(self, start: int, end: int) -> int:
        """Handle the delivery at `start` of the buffer, and return the end of the delivery.

        The buffer is filled up to `end`. Return `start` while the delivery is incomplete.
        """
        raise BenchError("a delivery on a connection that does not consume")

    def confirm(self, tag: int, multiple: bool, nack: bool) -> None:
        """Handle the broker's basic.ack or basic.nack."""
        raise BenchError("a confirm on a connection that does not publish")

    def consume(self, end: int) -> int:
        """Handle the frames from the beginning of the buffer."""
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
                raise BenchError(f"an unexpected frame of type {kind}")
            start = after
        return start

    def _method(self, channel: int, method: base.Frame) -> None:
        if isinstance(method, commands.Connection.Close | commands.Channel.Close):
            ok = commands.Channel.CloseOk() if channel else commands.Connection.CloseOk()
            self.write(encode_method(channel, ok))
            self.fail(BenchError(f"the broker says {method.reply_code} {method.reply_text}"))
        elif isinstance(method, commands.Connection.Blocked):
            self.blocked = self.paused = True
        elif isinstance(method, commands.Connection.Unblocked):
            self.blocked = False
            self.go_on()
        elif isinstance(method, commands.Basic.Cancel):
            raise BenchError(f"the broker cancelled consumer {method.consumer_tag}")
        elif not self.answered(method):
            raise BenchError(f"an unexpected {method.name}")


def encode_method(channel: int, method: base.Frame) -> bytes:
    """Return a whole method frame."""
    return method_frame(channel, method.index, method.marshal())


def make_template(exchange: str, key: str, size: int, persistent: bool, frame_max: int) -> Template:
    """Return the frames of one publish as a template."""
    publish = encode_method(CHANNEL, commands.Basic.Publish(0, exchange, key, False, False))
    key_end = len(publish) - KEY_TAIL
    properties = struct.pack(">HB", 0x1000, 2) if persistent else struct.pack(">H", 0)  # delivery-mode alone
    head = struct.pack(">HHQ", c.CLASS_BASIC, 0, size) + properties
    header = _FRAME_HEAD.pack(c.FRAME_HEADER, CHANNEL, len(head)) + head + b"\xce"
    body = blank_body(size)
    step = frame_max - c.FRAME_OVERHEAD
    pieces = [body[start : start + step] for start in range(0, size, step)]
    bodies = [_FRAME_HEAD.pack(c.FRAME_BODY, CHANNEL, len(piece)) + piece + b"\xce" for piece in pieces]
    stamp_at = len(publish) + len(header) + _FRAME_HEAD.size
    return Template(publish + header + b"".join(bodies), stamp_at, key_end)


class Sender091(Client091):
    """Publishes the messages of a publisher."""

    def __init__(self, plan: Plan, flow: Traffic, lanes: list[tuple[int, str]], exchange: str) -> None:
        super().__init__()
        self.publisher: PublisherPort | None = None
        self._plan = plan
        self._flow = flow
        self._lanes = lanes
        self._exchange = exchange
        self._templates: list[Template] = []

    async def prepare(self) -> None:
        """Select confirms if the plan has them."""
        plan = self._plan
        for _, queue in self._lanes:
            key = routing_key(queue, 0) if self._exchange else queue
            self._templates.append(
                make_template(self._exchange, key, plan.size, plan.persistent, self.frame_max)
            )
        if plan.confirm:
            await self.call(commands.Confirm.Select())

    def message_bytes(self, turn: int) -> int:
        """Return the size of a lane's messages."""
        return len(self._templates[turn].data)

    def room(self, turn: int) -> int:
        """No limit: a broker that takes no more messages stops reading, and `paused` is set."""
        return NO_BOUND

    def send(self, turn: int, count: int, sequence: int, now: int) -> None:
        """Publish."""
        self.write(self._templates[turn].batch(count, self._lanes[turn][0], sequence, now, self._plan.keys))

    def confirm(self, tag: int, multiple: bool, nack: bool) -> None:
        """Pass a confirm to the publisher."""
        if self.publisher is not None:
            self.publisher.confirm(0 if multiple else tag, tag, nack)

    def on_resumed(self) -> None:
        """Resume publishing."""
        if self.publisher is not None:
            self.publisher.resume()

    def on_failed(self) -> None:
        """End the run."""
        self._flow.settled.set()


class Consumer091(Client091):
    """Consumes from its queues on one channel."""

    def __init__(self, plan: Plan, flow: Traffic, queues: list[str]) -> None:
        super().__init__()
        self.receipts = Receipts(plan, flow, 1, (1 << 64) - 1)
        self._plan = plan
        self._flow = flow
        self._queues = queues
        self._acked = 0  # every tag up to here

    async def start(self) -> None:
        """Set the prefetch and consume from every queue."""
        if self._plan.prefetch:
            await self.call(commands.Basic.Qos(0, self._plan.prefetch, False))
        for number, queue in enumerate(self._queues):
            consume = commands.Basic.Consume(
                0, queue, f"bench-{number:05d}", False, self._plan.auto_ack, False, False, {}
            )
            await self.call(consume)

    def finish(self) -> None:
        """Acknowledge the deliveries of an incomplete group of `ack_every`."""
        tag = self.receipts.following - 1
        if not self._plan.auto_ack and self._acked < tag:
            self.write(_ACK_HEAD + tag.to_bytes(8, "big") + _MULTIPLE)
            self._acked = tag

    def on_failed(self) -> None:
        """End the run."""
        self._flow.settled.set()

    def content(self, start: int, end: int) -> int:
        """Handle all complete deliveries."""
        now = monotonic_ns()
        place, count = start, 0
        while True:
            after, more = self.receipts.walk(self._buffer, place, end, now)
            count += more
            if after == place:
                after = self._take_apart(place, end, now)
                count += after > place
            if after == place or not self._delivery_at(after, end):
                break
            place = after
        if count:
            if not self._plan.auto_ack:
                self._acknowledge()
            self._flow.took(count, now)
        return after

    def _delivery_at(self, place: int, end: int) -> bool:
        """Whether a basic.deliver begins at `place`."""
        buffer = self._buffer
        if end - place < 11 or buffer[place] != c.FRAME_METHOD:
            return False
        return int.from_bytes(buffer[place + 7 : place + 11], "big") == c.BASIC_DELIVER

    def _take_apart(self, start: int, end: int, now: int) -> int:
        """Handle one delivery frame by frame; return its end, or `start` if it is not complete."""
        buffer = self._buffer
        header = start + c.FRAME_OVERHEAD + self._frame_size(start, c.FRAME_METHOD)
        if end - header < c.FRAME_OVERHEAD:
            return start
        place = header + c.FRAME_OVERHEAD + self._frame_size(header, c.FRAME_HEADER)
        if place > end:
            return start
        size = int.from_bytes(buffer[header + 11 : header + 19], "big")
        pieces: list[bytes] = []
        missing = size
        while missing > 0:
            if end - place < c.FRAME_OVERHEAD:
                return start
            length = self._frame_size(place, c.FRAME_BODY)
            if place + c.FRAME_OVERHEAD + length > end:
                return start
            pieces.append(bytes(buffer[place + 7 : place + 7 + length]))
            missing -= length
            place += c.FRAME_OVERHEAD + length
        tag_place = start + 12 + buffer[start + 11]  # behind the consumer tag
        tag = int.from_bytes(buffer[tag_place : tag_place + 8], "big")
        self.receipts.judge(tag, b"".join(pieces), now)
        if len(pieces) == 1 and size == self._plan.size:
            self._learn(start, tag_place, place)
        return place

    def _frame_size(self, place: int, kind: int) -> int:
        frame_type, channel, size = _FRAME_HEAD.unpack_from(self._buffer, place)
        if frame_type != kind or channel != CHANNEL:
            raise BenchError(f"a frame of type {frame_type} on channel {channel} inside a delivery")
        return int(size)

    def _learn(self, start: int, tag_place: int, after: int) -> None:
        """Remember the shape of the delivery from `start` to `after`."""
        body = after - 1 - self._plan.size
        filler = self._plan.size - STAMP_BYTES
        tail = min(filler, _TAIL_BYTES)  # 0 or 7, or the length of a shorter body
        if 0 < tail < _TAIL_BYTES:
            return
        # Fields: mark, delivery tag, mark, number, time, mark. The marks are: size and method id of the first
        # frame; end of the header frame with head of the body frame; the body's tail with the frame end.
        before_tag, before_body = tag_place - start - 11, body - 8 - tag_place - 8
        last = "Q" if tail else "B"
        shape = struct.Struct(f">3xQ {before_tag}xQ {before_body}xQ QQ {filler - tail}x{last}")
        self.receipts.learn(shape, bytes(self._buffer[start:after]))

    def _acknowledge(self) -> None:
        """Acknowledge the deliveries up to the last one as the plan requires, in one write."""
        every, last = self._plan.ack_every, self.receipts.following - 1
        if every == 1:
            tags = [tag.to_bytes(8, "big") for tag in range(self._acked + 1, last + 1)]
            self._acked = last
            self.write(_ACK_HEAD + (_SINGLE + _ACK_HEAD).join(tags) + _SINGLE)
            return
        tags = [tag.to_bytes(8, "big") for tag in range(self._acked + every, last + 1, every)]
        if tags:
            self._acked += every * len(tags)
            self.write(_ACK_HEAD + (_MULTIPLE + _ACK_HEAD).join(tags) + _MULTIPLE)
