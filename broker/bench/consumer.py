"""A consumer: checks and times every delivery, and acknowledges as the plan says.

Deliveries of one run all have the same shape, so after the first has been taken apart carefully, the others
are walked with one precompiled struct; whatever does not fit it exactly goes the careful way again.
"""

import struct
from time import monotonic_ns
from typing import Final

from pamqp import commands

from broker.bench.checker import LANE_SHIFT
from broker.bench.client import CHANNEL, BenchError, Client
from broker.bench.flow import Flow
from broker.bench.plan import STAMP_BYTES, Plan
from broker.bench.publisher import body_filler
from protocol.amqp091 import constants as c

_FRAME_HEAD: Final = struct.Struct(">BHI")
_STAMP: Final = struct.Struct(">QQ")
_ACK_HEAD: Final = _FRAME_HEAD.pack(c.FRAME_METHOD, CHANNEL, 13) + struct.pack(">I", c.BASIC_ACK)
_SINGLE: Final = b"\x00\xce"
_MULTIPLE: Final = b"\x01\xce"
_TAIL_BYTES: Final = 7  # of the body, checked together with the frame end


class Consumer(Client):
    """Consumes from its queues on one channel."""

    def __init__(self, plan: Plan, flow: Flow, queues: list[str]) -> None:
        super().__init__()
        self.damaged = 0  # bodies that are not what was published
        self.misnumbered = 0  # deliveries whose tag is not the one after the last
        self._plan = plan
        self._flow = flow
        self._queues = queues
        self._last: dict[int, int] = {}  # highest sequence per lane, kept by the checker
        self._filler = body_filler(plan.size)
        self._tag = 0  # of the last delivery
        self._acked = 0  # every tag up to here
        self._shape: struct.Struct | None = None
        self._marks = (0, 0, 0)

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
        if not self._plan.auto_ack and self._acked < self._tag:
            self.write(_ACK_HEAD + self._tag.to_bytes(8, "big") + _MULTIPLE)
            self._acked = self._tag

    def failed(self) -> None:
        """End the run."""
        self._flow.settled.set()

    def content(self, start: int, end: int) -> int:
        """Take all deliveries that are complete."""
        now = monotonic_ns()
        place, count = start, 0
        while True:
            after, more = self._walk(place, end, now)
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

    def _walk(self, start: int, end: int, now: int) -> tuple[int, int]:
        """Take deliveries of the known shape; return where the first other one begins, and their number."""
        shape = self._shape
        if shape is None or end - start < shape.size:
            return start, 0
        head, middle, tail = self._marks
        checker, receipt = self._flow.checker, self._flow.receipt
        expected, tag = checker.expected, self._tag
        count, same, published = 0, 0, 0
        whole = (end - start) // shape.size * shape.size
        with memoryview(self._buffer) as buffer, buffer[start : start + whole] as block:
            for one, number_of, two, number, time, three in shape.iter_unpack(block):
                if one != head or two != middle or three != tail:
                    break
                count += 1
                tag += 1
                if number_of != tag:
                    self.misnumbered += 1
                    tag = number_of
                lane = number >> LANE_SHIFT
                if expected.get(lane) == number:
                    expected[lane] = number + 1
                else:
                    checker.see(number, self._last)
                if time == published:
                    same += 1
                else:
                    if same:
                        receipt.add(now - published, same)
                    published, same = time, 1
        if same:
            receipt.add(now - published, same)
        self._tag = tag
        return start + count * shape.size, count

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
        self._judge(start, b"".join(pieces), now)
        if len(pieces) == 1 and size == self._plan.size:
            self._learn(start, place)
        return place

    def _frame_size(self, place: int, kind: int) -> int:
        found, channel, size = _FRAME_HEAD.unpack_from(self._buffer, place)
        if found != kind or channel != CHANNEL:
            raise BenchError(f"a frame of type {found} on channel {channel} inside a delivery")
        return int(size)

    def _judge(self, start: int, body: bytes, now: int) -> None:
        """Check one delivery whose method frame begins at `start`."""
        tag_place = start + 12 + self._buffer[start + 11]  # behind the consumer tag
        tag = int.from_bytes(self._buffer[tag_place : tag_place + 8], "big")
        if tag != self._tag + 1:
            self.misnumbered += 1
        self._tag = tag
        if len(body) != self._plan.size or body[STAMP_BYTES:] != self._filler:
            self.damaged += 1
            return
        number, time = _STAMP.unpack_from(body)
        self._flow.receipt.add(now - time)
        self._flow.checker.see(number, self._last)

    def _learn(self, start: int, after: int) -> None:
        """Remember the shape of the delivery from `start` to `after`."""
        tag_place = start + 12 + self._buffer[start + 11]
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
        assert shape.size == after - start
        fields = shape.unpack_from(self._buffer, start)
        self._shape, self._marks = shape, (fields[0], fields[2], fields[5])

    def _acknowledge(self) -> None:
        """Acknowledge the deliveries up to the last as the plan says, in one write."""
        every = self._plan.ack_every
        if every == 1:
            tags = [tag.to_bytes(8, "big") for tag in range(self._acked + 1, self._tag + 1)]
            self._acked = self._tag
            self.write(_ACK_HEAD + (_SINGLE + _ACK_HEAD).join(tags) + _SINGLE)
            return
        tags = [tag.to_bytes(8, "big") for tag in range(self._acked + every, self._tag + 1, every)]
        if tags:
            self._acked += every * len(tags)
            self.write(_ACK_HEAD + (_MULTIPLE + _ACK_HEAD).join(tags) + _MULTIPLE)
