"""The files of one stream: chunks are appended, and let go of from the beginning."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from broker.store.errors import LogDamaged
from broker.store.stream_segment import StreamSegment, stream_segment_name
from broker.store.stream_segments import Place, StreamSegments
from protocol.streams.chunk import Header, chain


@final
class Appended:
    """A chunk that has been written to a segment, and what was known of that before."""

    def __init__(self, segment: StreamSegment, size: i64) -> None:
        self.segment = segment
        self.size = size
        self.end = segment.end
        self.next = segment.next
        self.last_time = segment.last_time
        self.unsynced = segment.unsynced


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
