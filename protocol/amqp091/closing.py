"""The end of a connection, found in a stream whose framing may be broken. [amqp-0-9-1 1.4.2.9]"""

import re
import struct
from typing import Final

from protocol.amqp091.constants import CONNECTION_CLOSE, CONNECTION_CLOSE_OK, FRAME_METHOD

_HEAD: Final = struct.Struct(">BHI")
_END_BYTES: Final = 12  # the bytes of a close-ok, and more than the bytes that identify a close
_END: Final = re.compile(
    rb"\x01\x00\x00....\x00\x0a\x00\x32|\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x33\xce", re.DOTALL
)
_CLOSE_OK_END: Final = b"\x33\xce"


class CloseWatch:
    """A scan for close and close-ok after one side has sent close, because the framing may be broken."""

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, data: bytes) -> list[int]:
        """Take the next bytes; return each CONNECTION_CLOSE and CONNECTION_CLOSE_OK found, in order."""
        data = self._tail + data
        closes: list[int] = []
        at = 0
        for end in _END.finditer(data):
            closes.append(CONNECTION_CLOSE_OK if end[0].endswith(_CLOSE_OK_END) else CONNECTION_CLOSE)
            at = end.end()
        self._tail = data[max(at, len(data) + 1 - _END_BYTES) :]
        return closes


def asks_to_close(frames: bytes) -> bool:
    """Whether connection.close is among these frames; the last frame may be incomplete."""
    at = 0
    while len(frames) - at >= _HEAD.size + 4:
        kind, channel, size = _HEAD.unpack_from(frames, at)
        method = int.from_bytes(frames[at + _HEAD.size : at + _HEAD.size + 4], "big")
        end = at + _HEAD.size + size + 1
        if end <= len(frames) and (kind, channel, method) == (FRAME_METHOD, 0, CONNECTION_CLOSE):
            return True
        at = end
    return False
