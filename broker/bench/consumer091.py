"""A consumer over AMQP 0-9-1: takes deliveries, and acknowledges as the plan says."""

import struct
from time import monotonic_ns
from typing import Final

from pamqp import commands

from broker.bench.client091 import CHANNEL, Client091
from broker.bench.connection import BenchError
from broker.bench.flow import Flow
from broker.bench.plan import STAMP_BYTES, Plan
from broker.bench.receipts import Receipts
from protocol.amqp091 import constants as c

_FRAME_HEAD: Final = struct.Struct(">BHI")
_ACK_HEAD: Final = _FRAME_HEAD.pack(c.FRAME_METHOD, CHANNEL, 13) + struct.pack(">I", c.BASIC_ACK)
_SINGLE: Final = b"\x00\xce"
_MULTIPLE: Final = b"\x01\xce"
_TAIL_BYTES: Final = 7  # of the body, checked together with the frame end


class Consumer091(Client091):
    """Consumes from its queues on one channel."""

    def __init__(self, plan: Plan, flow: Flow, queues: list[str]) -> None:
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
        """Acknowledge what waits for its group of `ack_every` to fill."""
        tag = self.receipts.following - 1
        if not self._plan.auto_ack and self._acked < tag:
            self.write(_ACK_HEAD + tag.to_bytes(8, "big") + _MULTIPLE)
            self._acked = tag

    def failed(self) -> None:
        """End the run."""
        self._flow.settled.set()

    def content(self, start: int, end: int) -> int:
        """Take all deliveries that are complete."""
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
        """Take one delivery frame by frame; return where it ends, or `start` if it is not complete."""
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
        found, channel, size = _FRAME_HEAD.unpack_from(self._buffer, place)
        if found != kind or channel != CHANNEL:
            raise BenchError(f"a frame of type {found} on channel {channel} inside a delivery")
        return int(size)

    def _learn(self, start: int, tag_place: int, after: int) -> None:
        """Have the shape of the delivery from `start` to `after` remembered."""
        body = after - 1 - self._plan.size
        filler = self._plan.size - STAMP_BYTES
        tail = min(filler, _TAIL_BYTES)  # 0 or 7, or what there is between
        if 0 < tail < _TAIL_BYTES:
            return
        # fields: mark, delivery tag, mark, number, time, mark; the marks are size and method id of the first
        # frame, end of the header frame with head of the body frame, and the body's tail with the frame end
        before_tag, before_body = tag_place - start - 11, body - 8 - tag_place - 8
        last = "Q" if tail else "B"
        shape = struct.Struct(f">3xQ {before_tag}xQ {before_body}xQ QQ {filler - tail}x{last}")
        self.receipts.learn(shape, bytes(self._buffer[start:after]))

    def _acknowledge(self) -> None:
        """Acknowledge the deliveries up to the last as the plan says, in one write."""
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
