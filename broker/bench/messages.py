"""What publishers send: batches of messages that differ only in number and time, copies of a template."""

import struct
from typing import Final

from broker.bench.checker import LANE_SHIFT
from broker.bench.plan import STAMP_BYTES
from broker.bench.topics import KEY_DIGITS, KEYS_MAX

FILLER: Final = bytes(range(1, 256))

_STAMP: Final = struct.Struct(">QQ")


def body_filler(size: int) -> bytes:
    """What follows the stamp in a body of `size` bytes."""
    length = size - STAMP_BYTES
    return (FILLER * (length // len(FILLER) + 1))[:length]


def blank_body(size: int) -> bytes:
    """A body of `size` bytes without its stamp."""
    return bytes(STAMP_BYTES) + body_filler(size)


class Template:
    """One message in frames: where in `data` the stamp belongs, and where a routing key ends."""

    def __init__(self, data: bytes, stamp_at: int, key_end: int) -> None:
        self.data = data
        self.stamp_at = stamp_at
        self.key_end = key_end

    def batch(self, count: int, lane: int, sequence: int, now: int, keys: int) -> bytearray:
        """`count` messages of `lane`, from `sequence` on, published at `now` (nanoseconds).

        `keys`: how many routing keys there are; 0: each message has its own; 1: it is in the template.
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
