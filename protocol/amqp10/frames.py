"""The frames in a stream of bytes. [amqp-1.0 2.2, 2.3, 5.3.1]"""

from typing import Final, final

from librt.strings import read_i16_be, read_i32_be
from mypy_extensions import i64

from protocol.amqp10.conditions import FRAMING_ERROR, PeerError

FRAME_HEADER_BYTES: Final = 8
FRAME_MAX_MIN: Final = 512  # the smallest max-frame-size that a peer may have, and the limit before its open
AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1
EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"  # a heartbeat

_SIZE_BYTES: Final = 4


@final
class Frames:
    """The frames of a stream, each parsed when the caller requests it.

    Call `advance` after `append` until it returns False, or stop before and continue later. The owner sets
    `kind`, `size_max` and `channel_max` before the frames to which they apply. A frame's body is
    `data[start:end]` until the next call.
    """

    def __init__(self, kind: i64, size_max: i64, channel_max: i64) -> None:
        self.kind: i64 = kind
        self.size_max: i64 = size_max
        self.channel_max: i64 = channel_max
        self.data = b""
        self.channel: i64 = 0
        self.start: i64 = 0
        self.end: i64 = 0
        self._p: i64 = 0  # the offset in `data` of the first byte that was not consumed
        self._queued: list[bytes] = []  # the chunks of the stream after `data`
        self._queued_bytes: i64 = 0
        self._skip: i64 = 0  # the number of bytes of the first such chunk that are in `data` already

    def append(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        if self._p == len(self.data) and self._queued_bytes == 0:
            self.data = data
            self._p = 0
        else:
            self._queued.append(data)
            self._queued_bytes += len(data)

    def advance(self) -> bool:
        """Go to the next frame, and return whether it is complete.

        `channel`, `data`, `start` and `end` are then those of the frame. Raises PeerError(FRAMING_ERROR) for
        a wrong header as soon as the wrong byte has arrived.
        """
        while True:
            data = self.data
            p = self._p
            have: i64 = len(data) - p
            need: i64 = _SIZE_BYTES  # so that a wrong size is found before more bytes are kept
            if have >= _SIZE_BYTES:
                size: int = read_i32_be(data, p)
                need = self._check_size(size)
                if have >= FRAME_HEADER_BYTES:
                    offset: i64 = self._body_offset(data, p, need)
                    if have >= need:
                        self.start = p + offset
                        self.end = p + need
                        self._p = self.end
                        return True
                else:
                    need = FRAME_HEADER_BYTES
            if not self._join_chunks(have, need):
                return False

    def unconsumed_bytes(self) -> i64:
        """Return the number of bytes that belong to no consumed frame."""
        return len(self.data) - self._p + self._queued_bytes

    def take_protocol_header(self) -> bytes | None:
        """Consume the next eight bytes, a protocol header; None if not all of them have arrived."""
        while True:
            have: i64 = len(self.data) - self._p
            if have >= FRAME_HEADER_BYTES:
                self._p += FRAME_HEADER_BYTES
                return self.data[self._p - FRAME_HEADER_BYTES : self._p]
            if not self._join_chunks(have, FRAME_HEADER_BYTES):
                return None

    def _check_size(self, size: i64) -> i64:
        """Return the size in a frame's header. Raises PeerError if the size is not allowed."""
        size &= 0xFFFFFFFF
        if size < FRAME_HEADER_BYTES:
            raise PeerError(FRAMING_ERROR, f"frame of {size} bytes, at least {FRAME_HEADER_BYTES} are needed")
        if size > self.size_max:
            raise PeerError(FRAMING_ERROR, f"frame of {size} bytes, at most {self.size_max} are allowed")
        return size

    def _body_offset(self, data: bytes, p: i64, size: i64) -> i64:
        """Return the distance of a frame's body from `p`, and set the channel. Raises PeerError."""
        offset: i64 = data[p + 4] * 4
        if offset < FRAME_HEADER_BYTES:
            raise PeerError(
                FRAMING_ERROR, f"frame with a data offset of {data[p + 4]} words, at least 2 are needed"
            )
        if offset > size:
            raise PeerError(FRAMING_ERROR, f"frame of {size} bytes with a data offset of {offset} bytes")
        if data[p + 5] != self.kind:
            raise PeerError(FRAMING_ERROR, f"frame of type {data[p + 5]}, expected {self.kind}")
        if self.kind == AMQP_FRAME:
            channel: int = read_i16_be(data, p + 6)
            self.channel = channel & 0xFFFF
            if self.channel > self.channel_max:
                raise PeerError(
                    FRAMING_ERROR, f"frame on channel {self.channel}, channel-max is {self.channel_max}"
                )
        elif offset == size:
            raise PeerError(FRAMING_ERROR, "empty SASL frame")
        return offset

    def _join_chunks(self, have: i64, need: i64) -> bool:
        """Join chunks until `data` has `need` bytes; False if too few have arrived.

        `have`: the number of bytes in `data` that were not consumed. If there are none, the next chunk is
        used as it is.
        """
        if have + self._queued_bytes < need:
            if self._p > 0 and self._queued_bytes == 0:
                self.data = self.data[self._p :] if have > 0 else b""  # so that the consumed bytes are freed
                self._p = 0
            return False
        queued = self._queued
        if have == 0:
            self.data = queued.pop(0)
            self._p = self._skip
            self._queued_bytes -= len(self.data) - self._skip
            self._skip = 0
            return True
        chunks = [self.data[self._p :]]
        skip = self._skip
        used = 0
        while have < need:
            chunk = queued[used]
            end: i64 = skip + need - have
            if end >= len(chunk):
                end = len(chunk)
                used += 1
            chunks.append(chunk[skip:end])
            have += end - skip
            self._queued_bytes -= end - skip
            skip = 0 if end == len(chunk) else end
        self._skip = skip
        self._queued = queued[used:]
        self.data = b"".join(chunks)
        self._p = 0
        return True


def frame(channel: int, body: bytes, kind: int = AMQP_FRAME) -> bytes:
    """Return a frame with this body."""
    head = (FRAME_HEADER_BYTES + len(body)).to_bytes(4, "big") + bytes((2, kind))
    return head + channel.to_bytes(2, "big") + body
