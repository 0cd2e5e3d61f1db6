"""Frames out of a stream of bytes. [amqp-1.0 2.2, 2.3, 5.3.1]"""

from typing import Final, final

from librt.strings import read_i16_be, read_i32_be
from mypy_extensions import i64

from protocol.amqp10.conditions import FRAMING_ERROR, PeerError

FRAME_HEADER_BYTES: Final = 8
FRAME_MAX_MIN: Final = 512  # the smallest limit that a peer may have, and what holds before it has said one
AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1
EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"  # all that a heartbeat is

_SIZE_BYTES: Final = 4


@final
class Frames:
    """A stream, taken apart frame by frame, and never further than it is asked.

    After `append`, `advance` until it returns False; or stop before, and go on later. `kind`, `size_max` and
    `channel_max` are the owner's to set before the frames that they are for. A frame's body is
    `data[start:end]`, and lies there until the next call.
    """

    def __init__(self, kind: i64, size_max: i64, channel_max: i64) -> None:
        self.kind: i64 = kind
        self.size_max: i64 = size_max
        self.channel_max: i64 = channel_max
        self.data = b""
        self.channel: i64 = 0
        self.start: i64 = 0
        self.end: i64 = 0
        self._p: i64 = 0  # first byte in `data` that is not used
        self._later: list[bytes] = []  # what follows `data`
        self._later_bytes: i64 = 0
        self._skip: i64 = 0  # that many bytes of the first one of them are in `data`

    def append(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        if self._p == len(self.data) and self._later_bytes == 0:
            self.data = data
            self._p = 0
        else:
            self._later.append(data)
            self._later_bytes += len(data)

    def advance(self) -> bool:
        """Whether a frame is complete; `channel`, `data`, `start` and `end` are then its own.

        Raises PeerError(FRAMING_ERROR) for a header that is wrong, as soon as that is seen.
        """
        while True:
            data = self.data
            p = self._p
            have: i64 = len(data) - p
            need: i64 = _SIZE_BYTES  # so that a wrong size is seen before more is kept
            if have >= _SIZE_BYTES:
                size: int = read_i32_be(data, p)
                need = self._checked_size(size)
                if have >= FRAME_HEADER_BYTES:
                    offset: i64 = self._body_offset(data, p, need)
                    if have >= need:
                        self.start = p + offset
                        self.end = p + need
                        self._p = self.end
                        return True
                else:
                    need = FRAME_HEADER_BYTES
            if not self._reach(have, need):
                return False

    def kept(self) -> i64:
        """Bytes that are in no frame which has been taken."""
        return len(self.data) - self._p + self._later_bytes

    def protocol_header(self) -> bytes | None:
        """Take the next eight bytes, which are no frame; None if they have not all arrived."""
        while True:
            have: i64 = len(self.data) - self._p
            if have >= FRAME_HEADER_BYTES:
                self._p += FRAME_HEADER_BYTES
                return self.data[self._p - FRAME_HEADER_BYTES : self._p]
            if not self._reach(have, FRAME_HEADER_BYTES):
                return None

    def _checked_size(self, size: i64) -> i64:
        """The size that a header says, if it is not wrong."""
        size &= 0xFFFFFFFF
        if size < FRAME_HEADER_BYTES:
            raise PeerError(FRAMING_ERROR, f"frame of {size} bytes, at least {FRAME_HEADER_BYTES} are needed")
        if size > self.size_max:
            raise PeerError(FRAMING_ERROR, f"frame of {size} bytes, at most {self.size_max} are allowed")
        return size

    def _body_offset(self, data: bytes, p: i64, size: i64) -> i64:
        """How far from `p` the body of the frame begins; takes its channel, raises what is wrong."""
        offset: i64 = data[p + 4] * 4
        if offset < FRAME_HEADER_BYTES:
            raise PeerError(
                FRAMING_ERROR, f"frame with a data offset of {data[p + 4]} words, at least 2 are needed"
            )
        if offset > size:
            raise PeerError(FRAMING_ERROR, f"frame of {size} bytes with its body at {offset}")
        if data[p + 5] != self.kind:
            raise PeerError(FRAMING_ERROR, f"frame of type {data[p + 5]}, expected {self.kind}")
        if self.kind == AMQP_FRAME:
            channel: int = read_i16_be(data, p + 6)
            self.channel = channel & 0xFFFF
            if self.channel > self.channel_max:
                raise PeerError(
                    FRAMING_ERROR, f"frame on channel {self.channel} of at most {self.channel_max}"
                )
        elif offset == size:
            raise PeerError(FRAMING_ERROR, "empty frame of SASL")
        return offset

    def _reach(self, have: i64, need: i64) -> bool:
        """Have `need` bytes in `data`, of which `have` are there, or all that follow if none are."""
        if have + self._later_bytes < need:
            if self._p > 0 and self._later_bytes == 0:
                self.data = self.data[self._p :] if have > 0 else b""  # so that all the rest can go
                self._p = 0
            return False
        later = self._later
        if have == 0:
            self.data = later.pop(0)
            self._p = self._skip
            self._later_bytes -= len(self.data) - self._skip
            self._skip = 0
            return True
        chunks = [self.data[self._p :]]
        skip = self._skip
        used = 0
        while have < need:
            chunk = later[used]
            end: i64 = skip + need - have
            if end >= len(chunk):
                end = len(chunk)
                used += 1
            chunks.append(chunk[skip:end])
            have += end - skip
            self._later_bytes -= end - skip
            skip = 0 if end == len(chunk) else end
        self._skip = skip
        self._later = later[used:]
        self.data = b"".join(chunks)
        self._p = 0
        return True


def frame(channel: int, body: bytes, kind: int = AMQP_FRAME) -> bytes:
    """A frame with this body."""
    head = (FRAME_HEADER_BYTES + len(body)).to_bytes(4, "big") + bytes((2, kind))
    return head + channel.to_bytes(2, "big") + body
