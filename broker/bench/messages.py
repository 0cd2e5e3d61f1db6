"""Messages of a run: batches that differ in number and time, routing keys, and checks on arrival.

All deliveries of one run have the same shape. The first delivery is decoded completely. The others are read
with one precompiled struct; a delivery that does not match the shape is decoded completely again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from broker.bench.plan import STAMP_BYTES, Plan
from broker.bench.traffic import LANE_SHIFT, Traffic

KEY_DIGITS: Final = 9
KEYS_MAX: Final = 10**KEY_DIGITS
_OTHERS: Final = (
    "%s.*.news",
    "%s.#",
    "*.%s.eu",
    "#.%s",
    "%s.eu.*.#",
    "%s",
)  # each place has a word of its own

FILLER: Final = bytes(range(1, 256))

_STAMP: Final = struct.Struct(">QQ")


def routing_key(queue: str, number: int) -> str:
    """Return the key of a message for `queue`; keys differ in their last KEY_DIGITS characters."""
    return f"{queue}.eu.{number % KEYS_MAX:0{KEY_DIGITS}d}"


def make_patterns(queues: list[str], count: int) -> Iterator[tuple[str, str]]:
    """Yield `count` bindings, as queue and pattern; the first bindings are those that match."""
    for queue in queues:
        yield queue, f"{queue}.*.#"
    for number in range(count - len(queues)):
        yield queues[0], _OTHERS[number % len(_OTHERS)] % f"other-{number}"


def body_filler(size: int) -> bytes:
    """Return the bytes behind the stamp in a body of `size` bytes."""
    length = size - STAMP_BYTES
    return (FILLER * (length // len(FILLER) + 1))[:length]


def blank_body(size: int) -> bytes:
    """Return a body of `size` bytes without its stamp."""
    return bytes(STAMP_BYTES) + body_filler(size)


class Template:
    """A message in frames: the offsets in `data` of the stamp, and of the end of the routing key."""

    def __init__(self, data: bytes, stamp_at: int, key_end: int) -> None:
        self.data = data
        self.stamp_at = stamp_at
        self.key_end = key_end

    def batch(self, count: int, lane: int, sequence: int, now: int, keys: int) -> bytearray:
        """Return `count` messages of `lane`, from `sequence` on, published at `now` (nanoseconds).

        `keys`: number of different routing keys; 0: each message has its own; 1: the key of the template.
        """
        batch = bytearray(self.data * count)
        stamp, step = _STAMP.pack_into, len(self.data)
        for number, place in enumerate(range(self.stamp_at, len(batch), step), lane << LANE_SHIFT | sequence):
            stamp(batch, place, number, now)
        if keys != 1:
            modulus = keys or KEYS_MAX
            for number, end in enumerate(range(self.key_end, len(batch), step), sequence):
                batch[end - KEY_DIGITS : end] = b"%0*d" % (KEY_DIGITS, number % modulus)
        return batch


class Receipts:
    """The deliveries of one consumer, which the protocol numbers from `first` on, modulo `mask` + 1.

    A shape is a struct of six fields: mark, delivery number, mark, number and time of the message, mark. The
    bytes between the fields are not compared.
    """

    def __init__(self, plan: Plan, flow: Traffic, first: int, mask: int) -> None:
        self.damaged = 0  # bodies that differ from the published ones
        self.misnumbered = 0  # deliveries whose number does not follow the last one
        self.following = first  # the number of the next delivery
        self._flow = flow
        self._mask = mask
        self._size = plan.size
        self._filler = body_filler(plan.size)
        self._last: dict[int, int] = {}  # highest sequence of each lane, updated by the checker
        self._shape: struct.Struct | None = None
        self._marks: tuple[object, object, object] = (0, 0, 0)

    def walk(self, buffer: bytearray, start: int, end: int, now: int) -> tuple[int, int]:
        """Count deliveries of the known shape; return where the first other one begins, and their number."""
        shape = self._shape
        if shape is None or end - start < shape.size:
            return start, 0
        head, middle, tail = self._marks
        checker, receipt = self._flow.checker, self._flow.receipt
        expected, following = checker.expected, self.following
        count, same, published = 0, 0, 0
        whole = (end - start) // shape.size * shape.size
        with memoryview(buffer) as view, view[start : start + whole] as block:
            for one, number_of, two, number, time, three in shape.iter_unpack(block):
                if one != head or two != middle or three != tail:
                    break
                count += 1
                if number_of != following:
                    following = self._number(number_of, following)
                following += 1
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
        self.following = following
        return start + count * shape.size, count

    def judge(self, number: int, body: bytes, now: int) -> None:
        """Check one delivery with its number in the protocol."""
        if number != self.following:
            self.following = self._number(number, self.following)
        self.following += 1
        if len(body) != self._size or body[STAMP_BYTES:] != self._filler:
            self.damaged += 1
            return
        stamped, time = _STAMP.unpack_from(body)
        self._flow.receipt.add(now - time)
        self._flow.checker.see(stamped, self._last)

    def learn(self, shape: struct.Struct, delivery: bytes) -> None:
        """Remember the shape of `delivery`."""
        fields = shape.unpack(delivery)
        self._shape, self._marks = shape, (fields[0], fields[2], fields[5])

    def _number(self, found: int, following: int) -> int:
        """Return the number to continue with when a delivery has number `found` instead of `following`."""
        if found == following & self._mask:
            return following
        self.misnumbered += 1
        return found
