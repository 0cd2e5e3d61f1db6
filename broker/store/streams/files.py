"""The files of one stream: chunks are appended, found by offset or time, and removed from the beginning."""

from __future__ import annotations

import os
from bisect import bisect_right, insort
from typing import Final, final

import structlog
from mypy_extensions import i64

from broker.core.ports import StreamExtent
from broker.store.commit import StreamStorage
from broker.store.disk import NO_DESCRIPTORS, Disk
from broker.store.errors import LogDamaged
from protocol.streams.chunk import HEADER_BYTES, MAGIC, Chunk, ChunkDamagedError, Header, chain_checksum

OPEN_MAX: Final = 128


@final
class OpenFiles:
    """The open files of all streams; beyond `limit` the least recently used ones are closed.

    Held files stay open.
    """

    def __init__(self, disk: Disk, limit: int = OPEN_MAX) -> None:
        self.disk = disk
        self.limit = limit
        self._open: dict[StreamSegment, None] = {}  # the one used last at the end
        self._kept: dict[StreamSegment, None] = {}  # files to sync

    def __len__(self) -> int:
        """The number of open files."""
        return len(self._open) + len(self._kept)

    def use(self, segment: StreamSegment, path: str) -> int:
        """Return the descriptor of a segment's file, valid until the next call. Raises OSError."""
        if segment.fd < 0:
            return self._add(segment, path, False)
        if segment in self._open:
            del self._open[segment]
            self._open[segment] = None
        return segment.fd

    def copy(self, segment: StreamSegment, path: str) -> int:
        """Return a descriptor of a segment's file that the caller owns and closes. Raises OSError."""
        fd = self.use(segment, path)
        while True:
            try:
                return self.disk.duplicate(fd)
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS or next(iter(self._open), segment) is segment:
                    raise
                self._close_oldest()

    def create(self, segment: StreamSegment, path: str) -> int:
        """Create a segment's file. Return its descriptor. Raises OSError."""
        return self._add(segment, path, True)

    def _add(self, segment: StreamSegment, path: str, new: bool) -> int:
        while len(self._open) >= self.limit:
            self._close_oldest()
        while True:
            try:
                segment.fd = self.disk.create(path) if new else self.disk.open(path)
                break
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS or not self._open:
                    raise
                self._close_oldest()
        self._open[segment] = None
        return segment.fd

    def _close_oldest(self) -> None:
        self.close_file(next(iter(self._open)))

    def keep_open(self, segment: StreamSegment) -> None:
        """Keep the open file of a segment open until `release`."""
        self._open.pop(segment, None)
        self._kept[segment] = None

    def release(self, segment: StreamSegment) -> None:
        """Allow the file of a segment to be closed."""
        if segment in self._kept:
            del self._kept[segment]
            self._open[segment] = None
        while len(self._open) > self.limit:
            self._close_oldest()

    def close_file(self, segment: StreamSegment) -> None:
        """Close the file of a segment, if it is open."""
        if segment.fd >= 0:
            self.disk.close(segment.fd)
            segment.fd = -1
            self._open.pop(segment, None)
            self._kept.pop(segment, None)

    def close(self) -> None:
        """Close all files."""
        for segment in [*self._open, *self._kept]:
            self.close_file(segment)


SUFFIX: Final = ".chunks"


def stream_segment_name(number: int, first: int) -> str:
    """Return the file name for a stream's number and a first offset; names sort by the offset."""
    return f"stream-{number}-{first:020d}{SUFFIX}"


def parse_stream_name(name: str) -> tuple[int, int] | None:
    """Return the stream's number and the first offset in a segment's file name; None for other names."""
    parts = name.removesuffix(SUFFIX).split("-")
    if not name.endswith(SUFFIX) or len(parts) != 3 or parts[0] != "stream":
        return None
    if not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None
    return int(parts[1]), int(parts[2])


def incarnation_of(identity: int, number: int) -> int:
    """Return the number that distinguishes a stream from all others, also from those of other logs."""
    return (identity + number) & 0x7FFFFFFFFFFFFFFF


@final
class StreamSegment:
    """A segment file. `end`: bytes of whole chunks in it. `next`: the offset behind its last row.

    Marked chunks are at least `mark_bytes` apart, and the first one is the file's first chunk. `offsets` has
    their first offsets, `times` the times of their first rows, in microseconds since 1970, and `positions`
    their positions. `lost`: the positions of chunks that mark lost rows.
    """

    def __init__(self, name: str, first: i64, mark_bytes: i64) -> None:
        self.name = name
        self.mark_bytes = mark_bytes
        self.first = first
        self.next = first
        self.end: i64 = 0
        self.fd: int = -1
        self.entry_synced = False  # the directory entry is durable
        self.unsynced = False  # the file may have chunks that are not synced
        self.last_time: i64 = 0
        self.offsets: list[int] = []
        self.times: list[int] = []
        self.positions: list[int] = []
        self.lost: list[int] = []
        # unreadable positions: the rows there, and the position of the next whole chunk, -1: none
        self.damaged: dict[int, tuple[int, int, int]] = {}

    def add(self, header: Header) -> None:
        """Note that a chunk has been written at the end."""
        if not self.positions or self.end - self.positions[-1] >= self.mark_bytes:
            self.offsets.append(header.first)
            self.times.append(header.first_time)
            self.positions.append(self.end)
        if header.lost:
            self.lost.append(self.end)
        self.end += header.size
        self.next = header.behind
        self.last_time = header.last_time

    def cut(self, end: i64, behind: i64, last_time: i64) -> None:
        """Remove the chunks from the position `end` on; `behind` and `last_time`: of the chunks that stay."""
        while self.positions and self.positions[-1] >= end:
            self.positions.pop()
            self.offsets.pop()
            self.times.pop()
        while self.lost and self.lost[-1] >= end:
            self.damaged.pop(self.lost.pop(), None)
        self.end = end
        self.next = behind
        self.last_time = last_time

    def before_offset(self, offset: i64) -> i64:
        """Return the position of a marked chunk at or before the chunk with this offset."""
        index: i64 = bisect_right(self.offsets, offset)
        return self.positions[max(index - 1, 0)] if self.positions else 0

    def before_time(self, time: i64) -> i64:
        """Return the position of a marked chunk before which all rows are earlier than this time."""
        index: i64 = bisect_right(self.times, time - 1)
        return self.positions[max(index - 1, 0)] if self.positions else 0

    def add_damage(self, position: i64, first: i64, behind: i64, following: i64) -> None:
        """Note that rows `first` to `behind` are unreadable, from a position to the `following` chunk."""
        at: int = position
        self.damaged[at] = (int(first), int(behind), int(following))
        insort(self.lost, at)

    def offset_at(self, position: i64) -> i64:
        """Return the first offset of the marked chunk at a position."""
        index: i64 = bisect_right(self.positions, position)
        return self.offsets[max(index - 1, 0)] if self.offsets else self.first

    def mark_behind(self, position: i64) -> i64:
        """Return the next marked chunk behind a position; -1: there is none."""
        index: i64 = bisect_right(self.positions, position)
        return self.positions[index] if index < len(self.positions) else -1

    def lost_behind(self, position: i64) -> i64:
        """Return the position of the first chunk with lost rows behind a position; -1: there is none."""
        index: i64 = bisect_right(self.lost, position)
        return self.lost[index] if index < len(self.lost) else -1


WINDOW: Final = 65536  # bytes that are read at once to walk over chunks,
SHORT: Final[i64] = 16384  # if they are no longer than this
MARK_BYTES: Final[i64] = 65536  # the distance of chunks that are found without walking


_log = structlog.get_logger("amqpd.store")


@final
class ChunkPosition:
    """The position of a chunk. `header` has the offsets of its rows."""

    def __init__(self, segment: StreamSegment, position: i64, header: Header) -> None:
        self.segment = segment
        self.position = position
        self.header = header


@final
class Headers:
    """Reads the headers of a file's chunks one after the other; many at once where chunks are short.

    `size`: the bytes of the file when it was opened for this.
    """

    def __init__(self, disk: Disk, fd: int) -> None:
        self.disk = disk
        self.fd = fd
        self.size: i64 = disk.size(fd)
        self._window = b""
        self._start: i64 = 0  # the place of the window in the file
        self._last: i64 = -1

    def at(self, position: i64) -> Header:
        """Return the header of the chunk at a position. Raises OSError, ChunkDamagedError."""
        at = position - self._start
        if at < 0 or at + HEADER_BYTES > len(self._window):
            short = self._last < 0 or position - self._last <= SHORT
            self._window = self.disk.read(self.fd, WINDOW if short else HEADER_BYTES, int(position))
            self._start = position
            at = 0
        self._last = position
        return Header(self._window, int(at))


class StreamSegments(StreamStorage):
    """The segments of the stream with this number, in a folder that its log has locked.

    `incarnation` distinguishes it from an earlier stream of its number. `first` is the oldest offset that is
    kept, `next` the offset of the next row. Appended rows are durable when their file is synced, and the
    folder too if the segment's `entry_synced` is not set.
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
        super().__init__(number, incarnation)
        self.directory = directory
        self.disk = open_files.disk
        self.open_files = open_files
        self.segment_bytes = segment_bytes
        self.mark_bytes = mark_bytes
        self.segments: list[StreamSegment] = []

    # ---- finding

    def find_segments(self) -> list[StreamSegment]:
        """Return the segments whose files are in the folder, oldest first, not read yet. Raises OSError."""
        segments: list[StreamSegment] = []
        for name in sorted(self.disk.names(self.directory)):
            parsed = parse_stream_name(name)
            if parsed is not None and parsed[0] == self.number:
                segments.append(StreamSegment(name, parsed[1], self.mark_bytes))
        return segments

    def scan(self, segment: StreamSegment, behind: i64) -> None:
        """Read the chunk headers of a file up to the offset `behind`. Raises OSError, LogDamaged."""
        headers = self.headers(segment)
        while segment.next < behind:
            segment.add(self.header(headers, segment))
        if segment.next > behind:
            raise LogDamaged(self.path(segment), int(segment.end), f"a chunk goes beyond row {behind}")

    def headers(self, segment: StreamSegment) -> Headers:
        """Return a reader for the headers in a file, valid until another file is used. Raises OSError."""
        return Headers(self.disk, self.open_for_reading(segment))

    def header(self, headers: Headers, segment: StreamSegment) -> Header:
        """Return the header of a segment's next chunk. Raises OSError, LogDamaged."""
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

    def find(self, offset: i64) -> ChunkPosition | None:
        """Return the chunk with this offset, or with the next one that is kept; None: not written yet.

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
        """Return the chunk of `find`, or the next readable one; None: not written yet. Raises OSError."""
        while True:
            place = self.find(offset)
            if place is None:
                return None
            try:
                return self.load(place)
            except LogDamaged as error:
                self.note_damage(place.segment, place.position, place.header.first, str(error))

    def note_damage(self, segment: StreamSegment, position: i64, first: i64, reason: str) -> None:
        """Let readers step over unreadable bytes from a position on, and log that once.

        Readers step to the next whole chunk, because the damaged chunk's own header may be wrong. Raises
        OSError.
        """
        if int(position) in segment.damaged:
            return
        place = self._search(segment, position, first)
        behind: i64 = segment.next if place is None else i64(place.header.first)
        segment.add_damage(position, first, behind, -1 if place is None else place.position)
        _log.error(
            "rows of a stream do not read back, readers step over them: see amqpd check",
            file=self.path(segment),
            offset=int(position),
            rows=f"{first} to {behind - 1}",
            reason=reason,
        )

    def at_time(self, time: i64) -> i64:
        """Return the offset of the first row from this time on, in microseconds since 1970; `next`: none yet.

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

    def following(self, place: ChunkPosition) -> ChunkPosition | None:
        """Return the chunk behind another one; None if there is none yet. Raises OSError, LogDamaged."""
        return self.find(place.header.behind)

    def extent_from(self, offset: i64, behind: i64) -> StreamExtent | None:
        """Return whole chunks of one file from the one with an offset on."""
        place = self.find(offset)
        return None if place is None or place.header.first >= behind else self.extent(place, behind)

    def extent(self, place: ChunkPosition, behind: i64) -> StreamExtent:
        """Return whole chunks of one file from a place on, up to the one with the row before `behind`.

        The extent has at least one chunk, and ends before lost rows. Raises OSError, LogDamaged.
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
        """Return the offset up to which the rows from `offset` on take `size` bytes.

        `offset` is kept. Raises OSError, LogDamaged.
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
        """Return the offset of the row at a position in a file."""
        index: i64 = bisect_right(segment.positions, position) - 1
        start: i64 = segment.positions[index]
        headers = self.headers(segment)
        while True:
            try:
                header = self._header_at(headers, segment, start)
            except LogDamaged:  # then the offset is only about right: behind the damage
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

    def load(self, place: ChunkPosition) -> Chunk:
        """Read a chunk. Raises OSError, LogDamaged."""
        segment = place.segment
        data = self.disk.read(self.open_for_reading(segment), place.header.size, int(place.position))
        try:
            return Chunk(data)
        except ChunkDamagedError as error:
            raise LogDamaged(self.path(segment), int(place.position), str(error)) from error

    def _walk(self, segment: StreamSegment, position: i64, offset: i64, time: i64) -> ChunkPosition | None:
        """Walk from the chunk at `position` to the one that has `offset`, and rows from `time` on.

        Unreadable headers are stepped over; None: no readable chunk follows in the file.
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
                return ChunkPosition(segment, position, header)
            position += header.size
            expected = header.behind
        return None

    def _search(self, segment: StreamSegment, position: i64, first: i64) -> ChunkPosition | None:
        """Return the next whole chunk of the stream in a file behind a position without one."""
        position += 1
        fd = self.open_for_reading(segment)
        while position < segment.end:
            window = self.disk.read(fd, WINDOW + len(MAGIC), int(position))
            magic_at = window.find(MAGIC)
            while magic_at >= 0:
                at = position + magic_at
                try:
                    header = Header(self.disk.read(fd, HEADER_BYTES, int(at)))
                    fits = header.incarnation == self.incarnation and header.first >= first
                    if fits and header.behind <= segment.next and at + header.size <= segment.end:
                        Chunk(self.disk.read(fd, header.size, int(at)))
                        return ChunkPosition(segment, at, header)
                except ChunkDamagedError:
                    pass
                magic_at = window.find(MAGIC, magic_at + 1)
            position += WINDOW
        return None

    def close(self) -> None:
        """Close all files."""
        for segment in self.segments:
            self.open_files.close_file(segment)

    # ---- files

    def path(self, segment: StreamSegment) -> str:
        """Return the path of a segment's file."""
        return os.path.join(self.directory, segment.name)

    def open_for_reading(self, segment: StreamSegment) -> int:
        """Return the descriptor of a segment's file, which stays open until others are used.

        Raises OSError.
        """
        return self.open_files.use(segment, self.path(segment))


def _first(segment: StreamSegment) -> int:
    return segment.first


@final
class Appended:
    """A chunk that has been written to a segment, and the segment's state before that."""

    def __init__(self, segment: StreamSegment, size: i64) -> None:
        self.segment = segment
        self.size = size
        self.end = segment.end
        self.next = segment.next
        self.last_time = segment.last_time
        self.unsynced = segment.unsynced

    @property
    def fd(self) -> int:
        """The descriptor of the chunk's file."""
        return self.segment.fd

    @property
    def is_entry_synced(self) -> bool:
        """Whether the name of the file is on disk."""
        return self.segment.entry_synced


@final
class StreamFiles(StreamSegments):
    """The segments of a stream, which must be recovered before an append.

    Appended rows are durable when their file is synced, and the folder too if the segment's `entry_synced` is
    not set.
    """

    # ---- starting

    def recover(self, first: i64, committed: i64) -> None:
        """Find the rows from `first` up to the offset `committed`, and cut off all later ones.

        Files with earlier rows only stay, because the record of their removal may not be durable. Raises
        OSError, and LogDamaged if rows are missing in between.
        """
        self.first = first
        self.next = committed
        segments = self.find_segments()
        for index, segment in enumerate(segments):
            following = segments[index + 1].first if index + 1 < len(segments) else committed
            if segment.first >= committed:
                self.disk.unlink(self.path(segment))  # now, because another file may soon have this name
            if segment.first >= committed or following <= first:
                continue
            segment.entry_synced = True
            self.scan(segment, min(following, committed))
            self.disk.truncate(self.open_for_reading(segment), int(segment.end))
            self.segments.append(segment)
            self.bytes += segment.end
        self._check(first, committed)

    def _check(self, first: i64, committed: i64) -> None:
        expected = first
        for segment in self.segments:
            if segment.first > expected:
                raise LogDamaged(self.path(segment), 0, f"rows {expected} to {segment.first} are missing")
            expected = segment.next
        if expected < committed:
            path = self.path(self.segments[-1]) if self.segments else self.directory
            raise LogDamaged(path, 0, f"rows {expected} to {committed} are missing")

    # ---- writing

    def append(self, data: bytes) -> Appended:
        """Write a chunk, whose first row has the offset `next`. The caller syncs the file.

        Raises OSError: then nothing has been appended.
        """
        header = Header(data)
        assert header.first == self.next, "offsets are dense"
        assert header.incarnation == self.incarnation, "a chunk is of one stream"
        segment = self.segments[-1] if self.segments else None
        if segment is None or segment.end >= self.segment_bytes:
            segment = self._begin(data)
        else:
            fd = self.open_for_reading(segment)
            try:
                self.disk.write(fd, [data], int(segment.end))
            except OSError:
                self.disk.truncate(fd, int(segment.end))
                raise
        appended = Appended(segment, header.size)
        segment.add(header)
        segment.unsynced = True
        self.open_files.keep_open(segment)
        self.next = header.behind
        self.bytes += header.size
        return appended

    def _begin(self, data: bytes) -> StreamSegment:
        """Begin a new file with this chunk."""
        segment = StreamSegment(stream_segment_name(self.number, self.next), self.next, self.mark_bytes)
        path = self.path(segment)
        self.disk.unlink(path)  # an earlier file without a durable row
        fd = self.open_files.create(segment, path)
        try:
            self.disk.write(fd, [data], 0)
        except OSError:
            self.open_files.close_file(segment)
            self.disk.unlink(path)
            raise
        self.segments.append(segment)
        return segment

    def note_synced(self, appended: Appended) -> None:
        """Note that a chunk's file is synced."""
        appended.segment.unsynced = False
        self.open_files.release(appended.segment)

    def take_back(self, appended: Appended) -> None:
        """Remove the chunk that was appended last, which must not become durable. Raises OSError."""
        segment = appended.segment
        assert segment is self.segments[-1], "the last one first"
        segment.cut(appended.end, appended.next, appended.last_time)
        if not appended.unsynced:
            self.note_synced(appended)
        self.bytes -= appended.size
        self.next = segment.next
        if segment.end > 0:
            self.disk.truncate(self.open_for_reading(segment), int(segment.end))
            return
        self.segments.pop()
        self.open_files.close_file(segment)
        self.disk.unlink(self.path(segment))

    # ---- removing

    def apply_retention(self, bytes_max: i64, oldest: i64) -> list[str]:
        """Remove the oldest files while `bytes_max` bytes remain without them, or all rows precede `oldest`.

        0 and 0: no limit. The file that is being written stays, and so does one that is about to be synced.
        Returns the names of the files, which must be deleted when the present `first` is on disk.
        """
        gone: list[str] = []
        while len(self.segments) > 1 and not self.segments[0].unsynced:
            segment = self.segments[0]
            too_much = bytes_max > 0 and self.bytes - segment.end >= bytes_max
            if not too_much and not (oldest > 0 and segment.last_time < oldest):
                break
            self.segments.pop(0)
            self.bytes -= segment.end
            self.first = segment.next
            self.open_files.close_file(segment)
            gone.append(segment.name)
        return gone

    def names(self) -> list[str]:
        """Return the names of all files."""
        return [segment.name for segment in self.segments]

    # ---- after a crash

    def write_again(self, offset: i64) -> None:
        """Write and sync the chunks from this offset on again. Raises OSError, LogDamaged.

        The chunks may be in memory only. After a failed sync the kernel may treat them as if they were on
        disk.
        """
        place = self.find(offset)
        while place is not None:
            fd = self.open_for_reading(place.segment)
            data = self.disk.read(fd, place.header.size, int(place.position))
            self.disk.write(fd, [data], int(place.position))
            self.disk.sync(fd)
            place = self.following(place)

    def is_whole(self, first: i64, behind: i64, checksum: i64) -> bool:
        """Whether chunks with exactly these rows exist, and with this checksum in a row.

        Called for files that have not been recovered. Raises OSError.
        """
        segments = [segment for segment in self.find_segments() if segment.first < behind]
        while len(segments) > 1 and segments[1].first <= first:
            segments.pop(0)
        expected = first
        chained = 0
        try:
            for segment in segments:
                if segment.first > expected:
                    return False
                self.scan(segment, max(first, segment.first))
                headers = self.headers(segment)
                while segment.next < behind and segment.end < headers.size:
                    header = self.header(headers, segment)
                    self.load(ChunkPosition(segment, segment.end, header))
                    segment.add(header)
                    chained = chain_checksum(chained, header.crc)
                expected = segment.next
        except LogDamaged:
            return False
        finally:
            for segment in segments:
                self.open_files.close_file(segment)
        return bool(expected == behind and chained == checksum)
