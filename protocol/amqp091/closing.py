"""The end of a connection, found in a stream that may be out of step. [amqp-0-9-1 1.4.2.9]"""

import re
import struct
from typing import Final

from protocol.amqp091.constants import CONNECTION_CLOSE, CONNECTION_CLOSE_OK, FRAME_METHOD

_HEAD: Final = struct.Struct(">BHI")
_CLOSE_OK: Final = b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x33\xce"
_CLOSE_START: Final = re.compile(rb"\x01\x00\x00....\x00\x0a\x00\x32", re.DOTALL)


class CloseWatch:
    """After this end has sent connection.close: the peer's mistake may have been its framing."""

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, data: bytes) -> int:
        """Take the next bytes: CONNECTION_CLOSE when the peer closes too, CONNECTION_CLOSE_OK, or 0.

        A close that has crossed ours comes first: its sender may wait for the answer instead of giving one.
        """
        data = self._tail + data
        self._tail = data[1 - len(_CLOSE_OK) :]
        if _CLOSE_START.search(data):
            return CONNECTION_CLOSE
        return CONNECTION_CLOSE_OK if _CLOSE_OK in data else 0


def asks_to_close(frames: bytes) -> bool:
    """Whether connection.close is among these frames, the last of which may be incomplete."""
    at = 0
    while len(frames) - at >= _HEAD.size + 4:
        kind, channel, size = _HEAD.unpack_from(frames, at)
        method = int.from_bytes(frames[at + _HEAD.size : at + _HEAD.size + 4], "big")
        end = at + _HEAD.size + size + 1
        if end <= len(frames) and (kind, channel, method) == (FRAME_METHOD, 0, CONNECTION_CLOSE):
            return True
        at = end
    return False
