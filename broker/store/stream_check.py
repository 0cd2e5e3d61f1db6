"""Reads all chunks of the streams that a start has found, which looks at their headers only.

The start does not wait for it: streams may be larger than what a disk reads in minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, final

from broker.store.disk import Disk
from protocol.streams.chunk import HEADER_BYTES, Chunk, ChunkDamagedError, Header

if TYPE_CHECKING:
    from broker.store.streams import Streams


@final
class StoredFile:
    """A file of a stream, as far as it was written when the broker started."""

    def __init__(self, number: int, name: str, path: str, end: int) -> None:
        self.number = number
        self.name = name
        self.path = path
        self.end = end


@final
class UnreadableChunk:
    """A chunk that does not read back; `first`: the offset of its first row."""

    def __init__(self, file: StoredFile, position: int, first: int, reason: str) -> None:
        self.file = file
        self.position = position
        self.first = first
        self.reason = reason

    def tell(self, streams: Streams) -> None:
        """Have readers step over it, if the stream still has it. Raises OSError."""
        stream = streams.all.get(self.file.number)
        if stream is not None:
            for segment in stream.files.segments:
                if segment.name == self.file.name:
                    stream.files.note_damage(segment, self.position, self.first, self.reason)


def stored_files(streams: Streams) -> list[StoredFile]:
    """The files that streams have now."""
    return [
        StoredFile(number, segment.name, stream.files.path(segment), int(segment.end))
        for number, stream in streams.all.items()
        for segment in stream.files.segments
    ]


def read_all(files: list[StoredFile], disk: Disk) -> Iterator[UnreadableChunk | None]:
    """Read one chunk after the other: those that do not read back, None for the others.

    Nothing of the log is touched, so that another thread may do it. A file that has gone is passed over.
    """
    for file in files:
        try:
            fd = disk.open(file.path)
        except OSError:
            continue
        try:
            yield from _read(file, disk, fd)
        finally:
            disk.close(fd)


def _read(file: StoredFile, disk: Disk, fd: int) -> Iterator[UnreadableChunk | None]:
    position = 0
    while position < file.end:
        try:
            header = Header(disk.read(fd, HEADER_BYTES, position))
        except (ChunkDamagedError, OSError):
            return  # the start has read it: readers will find out
        found: UnreadableChunk | None = None
        try:
            Chunk(disk.read(fd, header.size, position))
        except (ChunkDamagedError, OSError) as error:
            found = UnreadableChunk(file, position, header.first, str(error))
        yield found
        position += header.size
