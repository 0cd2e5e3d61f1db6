"""The files of one stream, as they are read: chunks are found by offset or time."""

from __future__ import annotations

import os
from bisect import bisect_right
from typing import Final, final

import structlog
from mypy_extensions import i64

from broker.core.ports import StreamExtent
from broker.store.disk import Disk
from broker.store.errors import LogDamaged
from broker.store.open_files import OpenFiles
from broker.store.stream_segment import StreamSegment, parse_stream_name
from protocol.streams.chunk import HEADER_BYTES, MAGIC, Chunk, ChunkDamagedError, Header

WINDOW: Final = 65536  # bytes that are read at once to walk over chunks,
SHORT: Final[i64] = 16384  # if they are no longer than this
MARK_BYTES: Final[i64] = 65536  # from one chunk that is found without walking to the next


_log = structlog.get_logger("amqpd.store")


@final
class Place:
    """Where a chunk begins. `header` says which rows it has."""

    def __init__(self, segment: StreamSegment, position: i64, header: Header) -> None:
        self.segment = segment
        self.position = position
        self.header = header


@final
class Headers:
    """Reads the headers of a file's chunks one after the other: many at once where chunks are short.

    `size`: bytes of the file when it was opened for this.
    """

    def __init__(self, disk: Disk, fd: int) -> None:
        self.disk = disk
        self.fd = fd
        self.size: i64 = disk.size(fd)
        self._window = b""
        self._start: i64 = 0  # of the window in the file
        self._last: i64 = -1

    def at(self, position: i64) -> Header:
        """The header of the chunk at a position. Raises OSError, ChunkDamagedError."""
        at = position - self._start
        if at < 0 or at + HEADER_BYTES > len(self._window):
            short = self._last < 0 or position - self._last <= SHORT
            self._window = self.disk.read(self.fd, WINDOW if short else HEADER_BYTES, int(position))
            self._start = position
            at = 0
        self._last = position
        return Header(self._window, int(at))


class StreamSegments:
    """The segments of the stream with this number, in a folder that is locked by its log.

    `incarnation` tells it from an earlier stream of its number. `first` is the oldest offset that is kept,
    `next` the one that the next row gets. What has been appended is durable when the file that it was written
    to is synced, and the folder too if the segment's `entry_synced` is not set.
    """

    def __init__(
        self,
        directory: str,
        open_files: OpenFiles,
        number: int,
        incarnation: int,
        segment_bytes: i64,
        mark_bytes: i64 = MARK_BYTES,
    ) -> None:
        self.directory = directory
        self.disk = open_files.disk
        self.open_files = open_files
        self.number = number
        self.incarnation = incarnation
        self.segment_bytes = segment_bytes
        self.mark_bytes = mark_bytes
        self.segments: list[StreamSegment] = []
        self.first: i64 = 0
        self.next: i64 = 0
        self.bytes: i64 = 0

    # ---- finding

    def found(self) -> list[StreamSegment]:
        """The segments whose files are in the folder, oldest first, not read yet. Raises OSError."""
        segments: list[StreamSegment] = []
        for name in sorted(self.disk.names(self.directory)):
            parsed = parse_stream_name(name)
            if parsed is not None and parsed[0] == self.number:
                segments.append(StreamSegment(name, parsed[1], self.mark_bytes))
        return segments

    def scan(self, segment: StreamSegment, behind: i64) -> None:
        """Learn what is in a file up to the offset `behind`. Raises OSError, LogDamaged."""
        headers = self.headers(segment)
        while segment.next < behind:
            segment.add(self.header(headers, segment))
        if segment.next > behind:
            raise LogDamaged(self.path(segment), int(segment.end), f"a chunk goes beyond row {behind}")

    def headers(self, segment: StreamSegment) -> Headers:
        """To read the headers in its file, before another one is asked for. Raises OSError."""
        return Headers(self.disk, self.readable(segment))

    def header(self, headers: Headers, segment: StreamSegment) -> Header:
        """The header of the chunk that is to be next in a segment. Raises OSError, LogDamaged."""
        position = segment.end
        header = self._header_at(headers, segment, position)
        wrong = header.incarnation != self.incarnation or header.first != segment.next
        if wrong or position + header.size > headers.size:
            problem = f"no chunk of this stream with row {segment.next} is here"
            raise LogDamaged(self.path(segment), int(position), problem)
        return header

    def _header_at(self, headers: Headers, segment: StreamSegment, position: i64) -> Header:
        try:
            return headers.at(position)
        except ChunkDamagedError as error:
            raise LogDamaged(self.path(segment), int(position), str(error)) from error

    def find(self, offset: i64) -> Place | None:
        """The chunk with this offset, or with the next one that is kept if that is later; None: not yet.

        Raises OSError, LogDamaged.
        """
        offset = max(offset, self.first)
        while offset < self.next:
            index: i64 = bisect_right(self.segments, offset, key=_first) - 1
            segment = self.segments[index]
            place = self._walk(segment, segment.before_offset(offset), offset, 0)
            if place is None:
                offset = max(segment.next, offset + 1)
            elif place.header.lost:
                offset = place.header.behind
            else:
                return place
        return None

    def chunk_with(self, offset: i64) -> Chunk | None:
        """The chunk that `find` finds, or the next one that reads back; None: not yet. Raises OSError."""
        while True:
            place = self.find(offset)
            if place is None:
                return None
            try:
                return self.load(place)
            except LogDamaged as error:
                self.note_damage(place.segment, place.position, place.header.first, str(error))

    def note_damage(self, segment: StreamSegment, position: i64, first: i64, reason: str) -> None:
        """Have readers step over what does not read back from a position on, and say so, once.

        That is up to the next whole chunk: what this one says of itself may be what is wrong. Raises OSError.
        """
        if int(position) in segment.damaged:
            return
        place = self._search(segment, position, first)
        behind: i64 = segment.next if place is None else i64(place.header.first)
        segment.add_damage(position, first, behind, -1 if place is None else place.position)
        _log.error(
            "rows of a stream do not read back, readers step over them: amqpd check tells more",
            file=self.path(segment),
            offset=int(position),
            rows=f"{first} to {behind - 1}",
            reason=reason,
        )

    def at_time(self, time: i64) -> i64:
        """The offset of the first row from this time on, in microseconds since 1970; `next`: none yet.

        Raises OSError, LogDamaged.
        """
        for segment in self.segments:
            if segment.last_time >= time and segment.next > self.first:
                place = self._walk(segment, segment.before_time(time), 0, time)
                if place is None:
                    continue
                behind: i64 = place.header.behind
                if place.header.lost:
                    return max(self.first, behind)
                try:
                    chunk = self.load(place)
                except LogDamaged as error:
                    self.note_damage(segment, place.position, place.header.first, str(error))
                    return max(self.first, place.header.first)
                row = 0
                while chunk.time(row) < time:
                    row += 1
                return max(self.first, place.header.first + row)
        return self.next

    def following(self, place: Place) -> Place | None:
        """The chunk behind one; None if there is none yet. Raises OSError, LogDamaged."""
        return self.find(place.header.behind)

    def extent(self, place: Place, behind: i64) -> StreamExtent:
        """Whole chunks from one on, of the same file: up to the one that has the row before `behind`.

        That is not before the first of them. They end before lost rows. Raises OSError, LogDamaged.
        """
        segment = place.segment
        end: i64 = segment.end
        last: i64 = segment.next
        lost = segment.lost_behind(place.position)
        if lost >= 0:
            end = lost
            damaged = segment.damaged.get(int(lost))
            if damaged is None:
                last = self._header_at(self.headers(segment), segment, lost).first
            else:
                last = damaged[0]
        if behind < last:
            final = self._walk(segment, segment.before_offset(behind - 1), behind - 1, 0)
            if final is not None and final.position < end:
                end = final.position + final.header.size
                last = final.header.behind
        fd = self.open_files.copy(segment, self.path(segment))
        return StreamExtent(fd, place.position, end - place.position, place.header.first, last)

    def reach(self, offset: i64, size: i64) -> i64:
        """The offset up to which the rows from `offset` on, which is kept, take `size` bytes (StoredStream).

        Raises OSError, LogDamaged.
        """
        place = self.find(offset)
        if place is None:
            return self.next
        offset = max(offset, place.header.first)
        rows: i64 = place.header.rows
        length: i64 = place.header.size
        here = length - length * (offset - place.header.first) // rows
        if size < here:
            return offset + max(size * rows // length, 1)
        left = size - here
        position = place.position + length
        index: i64 = bisect_right(self.segments, offset, key=_first) - 1
        for segment in self.segments[index:]:
            if left < segment.end - position:
                return self._reached(segment, position + left)
            left -= segment.end - position
            position = 0
        return self.next

    def _reached(self, segment: StreamSegment, position: i64) -> i64:
        """The offset of the row that is at a position in a file."""
        index: i64 = bisect_right(segment.positions, position) - 1
        start: i64 = segment.positions[index]
        headers = self.headers(segment)
        while True:
            try:
                header = self._header_at(headers, segment, start)
            except LogDamaged:  # then it is roughly where the damage ends
                following = segment.mark_behind(start)
                if following < 0:
                    return segment.next
                start = following
                continue
            length: i64 = header.size
            if position < start + length:
                rows: i64 = header.rows
                first: i64 = header.first
                return first + (position - start) * rows // length
            start += length

    def load(self, place: Place) -> Chunk:
        """Read a chunk. Raises OSError, LogDamaged."""
        segment = place.segment
        data = self.disk.read(self.readable(segment), place.header.size, int(place.position))
        try:
            return Chunk(data)
        except ChunkDamagedError as error:
            raise LogDamaged(self.path(segment), int(place.position), str(error)) from error

    def _walk(self, segment: StreamSegment, position: i64, offset: i64, time: i64) -> Place | None:
        """From the chunk at `position` on to the one that has `offset`, and rows from `time` on.

        A header that does not read back is stepped over; None: nothing that does follows in the file.
        """
        headers = self.headers(segment)
        expected: i64 = segment.offset_at(position)
        while position < segment.end:
            if segment.damaged:
                known = segment.damaged.get(int(position))
                if known is not None:
                    _, expected, position = known
                    if position < 0:
                        return None
                    continue
            try:
                header = self._header_at(headers, segment, position)
                if header.incarnation != self.incarnation or header.first != expected:
                    raise LogDamaged(
                        self.path(segment), int(position), f"no chunk with row {expected} is here"
                    )
            except LogDamaged as error:
                self.note_damage(segment, position, expected, str(error))
                continue
            if header.behind > offset and header.last_time >= time:
                return Place(segment, position, header)
            position += header.size
            expected = header.behind
        return None

    def _search(self, segment: StreamSegment, position: i64, first: i64) -> Place | None:
        """The next whole chunk of the stream in a file behind a position where none is."""
        position += 1
        fd = self.readable(segment)
        while position < segment.end:
            window = self.disk.read(fd, WINDOW + len(MAGIC), int(position))
            found = window.find(MAGIC)
            while found >= 0:
                at = position + found
                try:
                    header = Header(self.disk.read(fd, HEADER_BYTES, int(at)))
                    fits = header.incarnation == self.incarnation and header.first >= first
                    if fits and header.behind <= segment.next and at + header.size <= segment.end:
                        Chunk(self.disk.read(fd, header.size, int(at)))
                        return Place(segment, at, header)
                except ChunkDamagedError:
                    pass
                found = window.find(MAGIC, found + 1)
            position += WINDOW
        return None

    def close(self) -> None:
        """Close all files."""
        for segment in self.segments:
            self.open_files.shut(segment)

    # ---- files

    def path(self, segment: StreamSegment) -> str:
        """Where its file is."""
        return os.path.join(self.directory, segment.name)

    def readable(self, segment: StreamSegment) -> int:
        """The descriptor of its file, which stays open until others are used. Raises OSError."""
        return self.open_files.use(segment, self.path(segment))


def _first(segment: StreamSegment) -> int:
    return segment.first
