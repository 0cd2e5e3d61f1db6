"""The salvage of streams: all chunks of a damaged stream are read, and its files rewritten without damage.

The start of the daemon does not wait for such a complete read: a disk may need minutes to read a large
stream.

A repair loses the rows of chunks that are not whole. All other rows keep their offsets, and `next` stays too:
no offset is used twice. In the place of the lost rows there is a chunk that marks the loss
(`protocol.streams.chunk.LOST`), which readers step over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

from mypy_extensions import i64

from broker.store.disk import Disk
from broker.store.file_commit import FileStorage
from broker.store.repair.salvage import KEPT_SUFFIX
from broker.store.streams.files import StreamFiles, StreamSegment, stream_segment_name
from protocol.streams.chunk import HEADER_BYTES, MAGIC, Chunk, ChunkDamagedError, Header, lost_rows


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
    """A chunk that is not readable; `first`: the offset of its first row."""

    def __init__(self, file: StoredFile, position: int, first: int, reason: str) -> None:
        self.file = file
        self.position = position
        self.first = first
        self.reason = reason

    def mark_unreadable(self, storage: FileStorage) -> None:
        """Let readers step over the chunk, if the stream still has it. Raises OSError."""
        files = storage.streams.get(self.file.number)
        if files is not None:
            for segment in files.segments:
                if segment.name == self.file.name:
                    files.note_damage(segment, self.position, self.first, self.reason)


def stored_files(storage: FileStorage) -> list[StoredFile]:
    """Return the present files of all streams."""
    return [
        StoredFile(number, segment.name, files.path(segment), int(segment.end))
        for number, files in storage.streams.items()
        for segment in files.segments
    ]


def read_all(files: list[StoredFile], disk: Disk) -> Iterator[UnreadableChunk | None]:
    """Read one chunk after the other. Yield unreadable ones, and None for the others.

    The log itself is not accessed, so another thread may do this. A file that has been removed is skipped.
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
            return  # readable at the start, damaged since: readers will find the damage
        unreadable: UnreadableChunk | None = None
        try:
            Chunk(disk.read(fd, header.size, position))
        except (ChunkDamagedError, OSError) as error:
            unreadable = UnreadableChunk(file, position, header.first, str(error))
        yield unreadable
        position += header.size


NEW_SUFFIX: Final = ".repaired"
WINDOW: Final = 1024 * 1024
ROWS_MAX: Final = (1 << 32) - 1
NO_LIMIT: Final[i64] = (1 << 63) - 1


@dataclass
class StreamDamage:
    """A stretch of a file, in bytes, without whole chunks; length 0: the file is missing from there on.

    The rows that were there have the offsets from `first` up to `behind`, exclusively.
    """

    path: str
    offset: int
    length: int
    first: int
    behind: int

    def line(self, name: str) -> str:
        """Return the report of the damage."""
        rows = f"rows {self.first} to {self.behind - 1} of {name}"
        if self.length:
            return f"damaged: {self.path} at offset {self.offset}, {self.length} bytes: {rows}"
        return f"missing: {self.path} from offset {self.offset} on: {rows}"


@dataclass
class _Part:
    """A chunk at a position of a file; position -1: lost rows. `time`: of the row before the lost rows."""

    position: int
    length: int
    first: int
    rows: int
    time: int


@final
class _File:
    """The planned contents of a segment's file."""

    def __init__(self, segment: StreamSegment) -> None:
        self.segment = segment
        self.parts: list[_Part] = []
        self.damaged = False


@final
class StreamSalvage:
    """The salvage of one stream, which has at least the rows from `first` up to `committed`.

    `all_rows`: the log has lost batches, so whole rows behind `committed` count too. After `run`, `next` is
    the offset behind the last row, `rows` the count of whole rows, and `lost` the count of rows that an
    earlier repair has lost. `damages` is empty if the daemon can read the whole stream.
    """

    def __init__(self, files: StreamFiles, first: i64, committed: i64, all_rows: bool) -> None:
        self.files = files
        self.first = first
        self.committed = committed
        self.all_rows = all_rows
        self.next: i64 = first
        self.rows: i64 = 0
        self.lost: i64 = 0
        self.bytes: i64 = 0
        self.damages: list[StreamDamage] = []
        self._files: list[_File] = []
        self._time = 0  # the time of the last row so far

    @property
    def disk(self) -> Disk:
        """The disk of its files."""
        return self.files.disk

    @property
    def damaged_rows(self) -> int:
        """The count of rows that a repair loses, or has lost."""
        return sum(damage.behind - damage.first for damage in self.damages)

    def run(self) -> None:
        """Read everything. Raises OSError."""
        segments = self.files.find_segments()
        if self.all_rows and segments:
            self.next = self.first = max(self.first, segments[0].first)
        if not self.all_rows:
            segments = [segment for segment in segments if segment.first < self.committed]
        for index, segment in enumerate(segments):
            last = index + 1 == len(segments)
            following = segments[index + 1].first if not last else self.committed
            if following <= self.first and not last:
                continue
            if segment.first > self.next:
                self._missing(segment.first)
            self._read(segment, NO_LIMIT if last and self.all_rows else following, following)
        if self.next < self.committed:
            self._missing(self.committed)

    def _missing(self, behind: i64) -> None:
        """Note that there is no file with the rows up to `behind`."""
        segment = StreamSegment(stream_segment_name(self.files.number, int(self.next)), self.next, 0)
        file = _File(segment)
        self._files.append(file)
        self._damage(file, 0, 0, behind)

    def _damage(self, file: _File, offset: int, length: int, behind: i64) -> None:
        """Note that the rows up to `behind` are not in a file."""
        path = self.files.path(file.segment)
        self.damages.append(StreamDamage(path, offset, length, int(self.next), int(behind)))
        file.parts.append(_Part(-1, 0, int(self.next), int(behind - self.next), self._time))
        file.damaged = True
        self.next = behind

    def _read(self, segment: StreamSegment, limit: i64, needed: i64) -> None:
        """Read a file for rows before `limit`; the rows before `needed` must exist."""
        file = _File(segment)
        self._files.append(file)
        self.next = segment.first
        fd = self.files.open_for_reading(segment)
        size: i64 = self.disk.size(fd)
        at: i64 = 0
        while self.next < limit and at < size:
            header = self._chunk(fd, at, size, limit)
            start = at
            if header is None or header.first != self.next:
                at, header = self._search(fd, at, size, limit)
            if header is None:
                break
            if header.first > self.next:
                self._damage(file, int(start), int(at - start), header.first)
            file.parts.append(_Part(int(at), header.size, header.first, header.rows, 0))
            self._time = header.last_time
            at += header.size
            self.next = header.behind
            if header.lost:
                self.lost += header.rows
            else:
                self.rows += header.rows
        if self.next < needed and at < size:  # else the rows of a missing file are missing
            self._damage(file, int(at), int(size - at), needed)
        self.bytes += at
        self.files.open_files.close_file(segment)

    def _chunk(self, fd: int, at: i64, size: i64, limit: i64) -> Header | None:
        """Return the header of the whole chunk at a position, if there is a plausible one."""
        try:
            header = Header(self.disk.read(fd, HEADER_BYTES, int(at)))
            if header.incarnation != self.files.incarnation or header.size > size - at:
                return None
            if header.first < self.next or header.behind > limit:
                return None
            return Chunk(self.disk.read(fd, header.size, int(at))).header
        except ChunkDamagedError:
            return None

    def _search(self, fd: int, at: i64, size: i64, limit: i64) -> tuple[i64, Header | None]:
        """Return the position of the next whole chunk from `at` on, and its header."""
        start = at
        position = at
        while position < size:
            window = self.disk.read(fd, WINDOW + len(MAGIC), int(position))
            magic_at = window.find(MAGIC)
            while magic_at >= 0:
                header = self._chunk(fd, position + magic_at, size, limit)
                if header is not None:
                    return position + magic_at, header
                magic_at = window.find(MAGIC, magic_at + 1)
            position += WINDOW
        return start, None

    # ---- repairing

    def repair(self) -> None:
        """Rewrite damaged files; the old ones are kept under other names. Raises OSError."""
        files = self.files
        disk = self.disk
        for file in self._files:
            if not file.damaged:
                continue
            path = files.path(file.segment)
            source = -1
            if file.segment.name in disk.names(files.directory):
                source = files.open_for_reading(file.segment)
                self._write(path + KEPT_SUFFIX, source, [_Part(0, disk.size(source), 0, 0, 0)])
            self._write(path + NEW_SUFFIX, source, file.parts)
            files.open_files.close_file(file.segment)
            disk.sync_directory(files.directory)  # the old file's new name is on disk
            disk.rename(path + NEW_SUFFIX, path)
            disk.sync_directory(files.directory)

    def _write(self, path: str, source: int, parts: list[_Part]) -> None:
        """Write a file from parts of another one, and sync it."""
        disk = self.disk
        disk.unlink(path)
        fd = disk.create(path)
        end = 0
        try:
            for part in parts:
                pieces = self._lost(part) if part.position < 0 else self._read_part(source, part)
                for data in pieces:
                    disk.write(fd, [data], end)
                    end += len(data)
            disk.sync(fd)
        finally:
            disk.close(fd)

    def _read_part(self, source: int, part: _Part) -> Iterator[bytes]:
        end = part.position + part.length
        for at in range(part.position, end, WINDOW):
            yield self.disk.read(source, min(WINDOW, end - at), at)

    def _lost(self, part: _Part) -> Iterator[bytes]:
        end = part.first + part.rows
        for first in range(part.first, end, ROWS_MAX):
            yield lost_rows(first, min(ROWS_MAX, end - first), self.files.incarnation, part.time)
