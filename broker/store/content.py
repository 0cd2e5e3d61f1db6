"""Reads of message contents that are only on disk."""

from typing import Final, final

from mypy_extensions import i64

from broker.core.message import Message
from broker.store.disk import Disk
from broker.store.errors import LogDamaged
from broker.store.segment import Segment
from broker.store.segment_files import SegmentFiles

READ_AHEAD: Final = 256 * 1024
STREAMS: Final = 4  # consumers of so many queues read ahead independently
GAP_MAX: Final = 64 * 1024  # a read that begins so close behind the last one counts as sequential


@final
class _Stream:
    """A stretch of a segment in memory."""

    def __init__(self) -> None:
        self.segment: i64 = -1
        self.start: i64 = 0
        self.end: i64 = 0
        self.data = b""


@final
class ContentReader:
    """Reads contents at their positions; for a queue that is drained in order it reads large pieces."""

    def __init__(self, disk: Disk, files: SegmentFiles) -> None:
        self.disk = disk
        self.files = files
        self.streams = [_Stream() for _ in range(STREAMS)]
        self.oldest: i64 = 0

    def load(self, message: Message, segment: Segment) -> bytes:
        """Return the content of a message in `segment`.

        Raises OSError, LogDamaged if the file is too short.
        """
        offset = message.offset
        end = offset + message.length
        nearest: _Stream | None = None
        for stream in self.streams:
            if stream.segment == segment.number:
                if stream.start <= offset and end <= stream.end:
                    return stream.data[offset - stream.start : end - stream.start]
                if stream.start <= offset <= stream.end + GAP_MAX:
                    nearest = stream
        if nearest is None:  # close to no earlier read: read just this content
            nearest = self.streams[self.oldest]
            self.oldest = (self.oldest + 1) % STREAMS
            wanted = message.length
        else:
            wanted = max(message.length, READ_AHEAD)
        data = self.disk.read(
            self.files.open_for_reading(segment), min(wanted, segment.written - offset), offset
        )
        if len(data) < message.length:
            raise LogDamaged(self.files.path(segment.name), offset, "the file is too short")
        nearest.segment = segment.number
        nearest.start = offset
        nearest.end = offset + len(data)
        nearest.data = data
        return data if len(data) == message.length else data[: message.length]
