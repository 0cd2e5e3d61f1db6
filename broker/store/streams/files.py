"""The files of one stream: chunks are appended, found by offset or time, and let go of from the beginning."""

from __future__ import annotations

import os
from bisect import bisect_right, insort
from typing import Final, final

import structlog
from mypy_extensions import i64

from broker.core.ports import StreamExtent
from broker.store.batch import WrittenChunk
from broker.store.disk import NO_DESCRIPTORS, Disk
from broker.store.errors import LogDamaged
from protocol.streams.chunk import HEADER_BYTES, MAGIC, Chunk, ChunkDamagedError, Header, chain

OPEN_MAX: Final = 128


@final
class OpenFiles:
    """Of more than `limit`, those that were used longest ago are closed, but for those that are held."""

    def __init__(self, disk: Disk, limit: int = OPEN_MAX) -> None:
        self.disk = disk
        self.limit = limit
        self._open: dict[StreamSegment, None] = {}  # the one used last at the end
        self._held: dict[StreamSegment, None] = {}  # those that are to be synced

    def __len__(self) -> int:
        """How many there are."""
        return len(self._open) + len(self._held)

    def use(self, segment: StreamSegment, path: str) -> int:
        """The descriptor of a segment's file, to be used before another one is asked for. Raises OSError."""
        if segment.fd < 0:
            return self._add(segment, path, False)
        if segment in self._open:
            del self._open[segment]
            self._open[segment] = None
        return segment.fd

    def copy(self, segment: StreamSegment, path: str) -> int:
        """A descriptor of a segment's file that is the caller's, to be closed by it. Raises OSError."""
        fd = self.use(segment, path)
        while True:
            try:
                return self.disk.duplicate(fd)
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS or next(iter(self._open), segment) is segment:
                    raise
                self._close_oldest()

    def create(self, segment: StreamSegment, path: str) -> int:
        """The descriptor of the new file of a segment. Raises OSError."""
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
        self.shut(next(iter(self._open)))

    def hold(self, segment: StreamSegment) -> None:
        """Leave the file of a segment, which is open, open until it is let go of."""
        self._open.pop(segment, None)
        self._held[segment] = None

    def let_go(self, segment: StreamSegment) -> None:
        """The file of a segment may be closed."""
        if segment in self._held:
            del self._held[segment]
            self._open[segment] = None
        while len(self._open) > self.limit:
            self._close_oldest()

    def shut(self, segment: StreamSegment) -> None:
        """Close the file of a segment, if it is open."""
        if segment.fd >= 0:
            self.disk.close(segment.fd)
            segment.fd = -1
            self._open.pop(segment, None)
            self._held.pop(segment, None)

    def close(self) -> None:
        """Close all."""
        for segment in [*self._open, *self._held]:
            self.shut(segment)


SUFFIX: Final = ".chunks"


def stream_segment_name(number: int, first: int) -> str:
    """The file of the stream with this number whose first row has this offset: sorts by that."""
    return f"stream-{number}-{first:020d}{SUFFIX}"


def parse_stream_name(name: str) -> tuple[int, int] | None:
    """The number of the stream and the first offset of a segment's file; None for any other name."""
    parts = name.removesuffix(SUFFIX).split("-")
    if not name.endswith(SUFFIX) or len(parts) != 3 or parts[0] != "stream":
        return None
    if not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None
    return int(parts[1]), int(parts[2])


@final
class StreamSegment:
    """A segment file. `end`: bytes of whole chunks in it. `next`: the offset behind its last row.

    Of the marked chunks, which are `mark_bytes` from each other at least and the first of which is the file's
    first, `offsets` has the first offsets, `times` the times of the first rows, in microseconds since 1970,
    and `positions` where they begin. `lost`: where those chunks begin that say that rows are lost.
    """

    def __init__(self, name: str, first: i64, mark_bytes: i64) -> None:
        self.name = name
        self.mark_bytes = mark_bytes
        self.first = first
        self.next = first
        self.end: i64 = 0
        self.fd: int = -1
        self.entry_synced = False  # the directory entry is durable
        self.unsynced = False  # there are chunks that are not, perhaps
        self.last_time: i64 = 0
        self.offsets: list[int] = []
        self.times: list[int] = []
        self.positions: list[int] = []
        self.lost: list[int] = []
        # where nothing reads back: which rows, and where the next whole chunk begins, -1: nowhere
        self.damaged: dict[int, tuple[int, int, int]] = {}

    def add(self, header: Header) -> None:
        """A chunk has been written at the end."""
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
        """The chunks from the position `end` on are gone; `behind` and `last_time` are as before them."""
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
        """The position of a marked chunk from which on to look for the one with this offset."""
        found: i64 = bisect_right(self.offsets, offset)
        return self.positions[max(found - 1, 0)] if self.positions else 0

    def before_time(self, time: i64) -> i64:
        """The position of a marked chunk before which all rows are earlier than this."""
        found: i64 = bisect_right(self.times, time - 1)
        return self.positions[max(found - 1, 0)] if self.positions else 0

    def add_damage(self, position: i64, first: i64, behind: i64, following: i64) -> None:
        """From a position up to the `following` chunk nothing reads back: rows `first` to `behind`."""
        at: int = position
        self.damaged[at] = (int(first), int(behind), int(following))
        insort(self.lost, at)

    def offset_at(self, position: i64) -> i64:
        """The first offset of the marked chunk at a position."""
        found: i64 = bisect_right(self.positions, position)
        return self.offsets[max(found - 1, 0)] if self.offsets else self.first

    def mark_behind(self, position: i64) -> i64:
        """The next marked chunk behind a position; -1: there is none."""
        found: i64 = bisect_right(self.positions, position)
        return self.positions[found] if found < len(self.positions) else -1

    def lost_behind(self, position: i64) -> i64:
        """Where behind a position the first chunk is that says that rows are lost; -1: there is none."""
        found: i64 = bisect_right(self.lost, position)
        return self.lost[found] if found < len(self.lost) else -1


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


@final
class Appended(WrittenChunk):
    """A chunk that has been written to a segment, and what was known of that before."""

    def __init__(self, segment: StreamSegment, size: i64) -> None:
        self.segment = segment
        self.size = size
        self.end = segment.end
        self.next = segment.next
        self.last_time = segment.last_time
        self.unsynced = segment.unsynced

    @property
    def fd(self) -> int:
        """The descriptor of the chunk's file (WrittenChunk)."""
        return self.segment.fd

    @property
    def is_entry_synced(self) -> bool:
        """Whether the name of the file is on disk (WrittenChunk)."""
        return self.segment.entry_synced


@final
class StreamFiles(StreamSegments):
    """The segments of a stream, to be recovered before anything is appended.

    What has been appended is durable when the file that it was written to is synced, and the folder too if
    the segment's `entry_synced` is not set.
    """

    # ---- starting

    def recover(self, first: i64, committed: i64) -> None:
        """Find what there is from `first` up to the offset `committed`, and cut off what is behind.

        Files with nothing but earlier rows stay: the log may not be durable that says so. Raises OSError, and
        LogDamaged if rows are missing in between.
        """
        self.first = first
        self.next = committed
        found = self.found()
        for index, segment in enumerate(found):
            following = found[index + 1].first if index + 1 < len(found) else committed
            if segment.first >= committed:
                self.disk.unlink(self.path(segment))  # now: another file may soon have this name
            if segment.first >= committed or following <= first:
                continue
            segment.entry_synced = True
            self.scan(segment, min(following, committed))
            self.disk.truncate(self.readable(segment), int(segment.end))
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
        """Write a chunk, whose first row has the offset `next`. The file is to be synced.

        Raises OSError: then nothing has been appended.
        """
        header = Header(data)
        assert header.first == self.next, "offsets are dense"
        assert header.incarnation == self.incarnation, "a chunk is of one stream"
        segment = self.segments[-1] if self.segments else None
        if segment is None or segment.end >= self.segment_bytes:
            segment = self._begin(data)
        else:
            fd = self.readable(segment)
            try:
                self.disk.write(fd, [data], int(segment.end))
            except OSError:
                self.disk.truncate(fd, int(segment.end))
                raise
        appended = Appended(segment, header.size)
        segment.add(header)
        segment.unsynced = True
        self.open_files.hold(segment)
        self.next = header.behind
        self.bytes += header.size
        return appended

    def _begin(self, data: bytes) -> StreamSegment:
        """A new file with this chunk."""
        segment = StreamSegment(stream_segment_name(self.number, self.next), self.next, self.mark_bytes)
        path = self.path(segment)
        self.disk.unlink(path)  # one that was begun before and never had a durable row
        fd = self.open_files.create(segment, path)
        try:
            self.disk.write(fd, [data], 0)
        except OSError:
            self.open_files.shut(segment)
            self.disk.unlink(path)
            raise
        self.segments.append(segment)
        return segment

    def synced(self, appended: Appended) -> None:
        """Nothing of a chunk's file is to be synced any more."""
        appended.segment.unsynced = False
        self.open_files.let_go(appended.segment)

    def take_back(self, appended: Appended) -> None:
        """The chunk that was appended last is not to be durable. Raises OSError."""
        segment = appended.segment
        assert segment is self.segments[-1], "the last one first"
        segment.cut(appended.end, appended.next, appended.last_time)
        if not appended.unsynced:
            self.synced(appended)
        self.bytes -= appended.size
        self.next = segment.next
        if segment.end > 0:
            self.disk.truncate(self.readable(segment), int(segment.end))
            return
        self.segments.pop()
        self.open_files.shut(segment)
        self.disk.unlink(self.path(segment))

    # ---- letting go

    def trim(self, bytes_max: i64, oldest: i64) -> list[str]:
        """Let go of files while `bytes_max` are there without them, or all in them is before `oldest`.

        0 and 0: no limit. The file that is written to stays, and so does one that is about to be synced.
        Returns the names of the files, which are to be removed when it is on disk that `first` is what it is
        now.
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
            self.open_files.shut(segment)
            gone.append(segment.name)
        return gone

    def names(self) -> list[str]:
        """The names of all files."""
        return [segment.name for segment in self.segments]

    # ---- after a crash

    def write_again(self, offset: i64) -> None:
        """Have the chunks from this offset on be on disk. Raises OSError, LogDamaged.

        They may be in memory only, and after a failed sync the kernel may take that for what is on disk.
        """
        place = self.find(offset)
        while place is not None:
            fd = self.readable(place.segment)
            data = self.disk.read(fd, place.header.size, int(place.position))
            self.disk.write(fd, [data], int(place.position))
            self.disk.sync(fd)
            place = self.following(place)

    def is_whole(self, first: i64, behind: i64, checksum: i64) -> bool:
        """Whether chunks with exactly these rows are there, and with this checksum in a row.

        It is asked of files that have not been recovered. Raises OSError.
        """
        found = [segment for segment in self.found() if segment.first < behind]
        while len(found) > 1 and found[1].first <= first:
            found.pop(0)
        expected = first
        chained = 0
        try:
            for segment in found:
                if segment.first > expected:
                    return False
                self.scan(segment, max(first, segment.first))
                headers = self.headers(segment)
                while segment.next < behind and segment.end < headers.size:
                    header = self.header(headers, segment)
                    self.load(Place(segment, segment.end, header))
                    segment.add(header)
                    chained = chain(chained, header.crc)
                expected = segment.next
        except LogDamaged:
            return False
        finally:
            for segment in found:
                self.open_files.shut(segment)
        return bool(expected == behind and chained == checksum)
