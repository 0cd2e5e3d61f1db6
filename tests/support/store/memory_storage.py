"""A storage of batches without files: it outlives the logs on it, as a service outlives its clients."""

import os
from collections.abc import Container

from mypy_extensions import i64

from broker.core.message import Message
from broker.core.ports import StreamExtent
from broker.store.batch import Batch
from broker.store.commit import BatchStorage, CommitListener, StreamStorage
from broker.store.format import HEADER_BYTES, Header
from broker.store.recovery.replay import Replay, StoredLog
from broker.store.scan import BatchScanner
from broker.store.segment import Segment, SegmentTable
from protocol.streams.chunk import Chunk
from protocol.streams.chunk import Header as ChunkHeader


class Kept:
    """The durable state: the bytes of segments, the chunks of streams, and the storage that owns them."""

    def __init__(self) -> None:
        self.segments: dict[int, bytes] = {}
        self.chunks: dict[int, list[bytes]] = {}
        self.owner: MemoryStorage | None = None
        self.identity = 0


class MemoryScanner(BatchScanner):
    """Walks over the bytes of a segment."""

    def __init__(self, name: str, data: bytes) -> None:
        super().__init__(name)
        self.data = data

    def next(self) -> bool:
        """Step to the next batch."""
        if self.position >= len(self.data):
            return False
        header = Header(self.data, int(self.position))
        self.number = header.number
        self.first_sequence = header.first_sequence
        self.count = header.count
        self.batch_at = self.position
        self.start = self.position + HEADER_BYTES
        self.end = self.start + header.length
        self.position = self.end
        return True


class MemoryStream(StreamStorage):
    """The chunks of a stream; `chunks` has those whose batch is in flight too."""

    def __init__(self, number: int, incarnation: int) -> None:
        super().__init__(number, incarnation)
        self.chunks: list[bytes] = []

    def restore(self, chunks: list[bytes], first: int, behind: int) -> None:
        """Take the chunks with these rows."""
        headers = [(ChunkHeader(chunk), chunk) for chunk in chunks]
        self.chunks = [chunk for header, chunk in headers if first < header.behind <= behind]
        self.first = first
        self.next = behind
        self.count()

    def count(self) -> None:
        """Add up the bytes."""
        self.bytes = sum(map(len, self.chunks))

    def append(self, data: bytes) -> None:
        """Append a chunk."""
        self.chunks.append(data)
        self.next = ChunkHeader(data).behind
        self.count()

    def take_back(self) -> None:
        """Remove the last chunk."""
        self.next = ChunkHeader(self.chunks.pop()).first
        self.count()

    def _chunk_at(self, offset: i64) -> bytes | None:
        return next((chunk for chunk in self.chunks if ChunkHeader(chunk).behind > offset), None)

    def chunk_with(self, offset: i64) -> Chunk | None:
        """Return the chunk with an offset, or the next one."""
        data = self._chunk_at(max(offset, self.first))
        return None if data is None else Chunk(data)

    def extent_from(self, offset: i64, behind: i64) -> StreamExtent | None:
        """Return one chunk, in a file that only the reader has."""
        data = self._chunk_at(max(offset, self.first))
        if data is None or ChunkHeader(data).first >= behind:
            return None
        fd = os.memfd_create("chunk")
        os.write(fd, data)
        return StreamExtent(fd, 0, len(data), ChunkHeader(data).first, ChunkHeader(data).behind)

    def reach(self, offset: i64, size: i64) -> i64:
        """Return the end of the chunk."""
        data = self._chunk_at(offset)
        return self.next if data is None else ChunkHeader(data).behind

    def at_time(self, time: i64) -> i64:
        """Return the first row from a time on."""
        for data in self.chunks:
            chunk = Chunk(data)
            for row in range(chunk.header.rows):
                if chunk.time(row) >= time:
                    return chunk.header.first + row
        return self.next

    def apply_retention(self, bytes_max: i64, oldest: i64) -> list[str]:
        """Remove the oldest chunks but the last one; their names are their first offsets."""
        gone: list[str] = []
        while len(self.chunks) > 1 and bytes_max > 0 and self.bytes - len(self.chunks[0]) >= bytes_max:
            header = ChunkHeader(self.chunks.pop(0))
            gone.append(f"{self.number} {header.first}")
            self.first = header.behind
            self.count()
        return gone


class MemoryStorage(BatchStorage):
    """A storage whose outcomes come when a test says so, or at once (`at_once`)."""

    def __init__(self, kept: Kept, at_once: bool = True, segment_bytes: int = 4096) -> None:
        super().__init__(segment_bytes)
        self.kept = kept
        self.at_once = at_once
        self.listener = CommitListener()
        self.batch: Batch | None = None
        self.submitted: list[int] = []
        self.streams: dict[int, MemoryStream] = {}
        self.reserve_length = 1 << 20

    # ---- outcomes

    def answer(self) -> None:
        """Make the batch in flight durable."""
        batch = self.batch
        assert batch is not None, "a batch is in flight"
        self.batch = None
        self._keep(batch)
        self.listener.on_batch_durable()

    def answer_all(self) -> None:
        """Make the batch in flight durable, and those that follow it by themselves."""
        while self.batch is not None:
            self.answer()

    def run_out(self) -> None:
        """Undo the batch in flight: there is no room."""
        batch = self.batch
        assert batch is not None, "a batch is in flight"
        self.batch = None
        batch.segment.end = batch.segment.written
        for chunk in reversed(batch.chunks):
            self.streams[chunk.number].take_back()
        self.listener.on_batch_failed("no room", True)

    def lose(self, kept: bool) -> None:
        """Lose the answer for the batch in flight, which is `kept` or not."""
        batch = self.batch
        assert batch is not None, "a batch is in flight"
        self.batch = None
        if kept:
            self._keep(batch)
        self.listener.on_batch_failed("nobody answers")

    def _keep(self, batch: Batch) -> None:
        segment = batch.segment
        before = self.kept.segments.get(segment.number, b"")
        assert len(before) == batch.offset, "batches follow one another"
        self.kept.segments[segment.number] = before + batch.header + batch.payload
        segment.written = batch.end
        for chunk in batch.chunks:
            self.kept.chunks.setdefault(chunk.number, []).append(chunk.data)

    # ---- BatchStorage

    def open(self, listener: CommitListener) -> None:
        """Become the owner, in the place of another one."""
        self.listener = listener
        former = self.kept.owner
        self.kept.owner = self
        if former is not None:
            former.batch = None
            former.listener.on_deposed("a newer owner")

    def replay(self) -> StoredLog:
        """Replay the segments that the newest one lists."""
        found = StoredLog()
        segments = self.kept.segments
        found.identity = self.kept.identity
        found.report.is_new = not segments
        if not segments:
            return found
        found.highest = max(segments)
        newest = Replay(SegmentTable())
        self._replay(newest, found.highest)
        for number in sorted(segments):
            if number == found.highest or number in newest.listed_segments():
                found.last_batch = max(found.last_batch, self._replay(found.replay, number))
        return found

    def _replay(self, replay: Replay, number: i64) -> i64:
        segment = Segment(number, 0)
        replay.segments.add(segment)
        scanner = MemoryScanner(segment.name, self.kept.segments[int(number)])
        while scanner.next():
            replay.replay_batch(scanner, segment)
        segment.end = segment.written = scanner.position
        return scanner.number

    def begin(self, found: StoredLog) -> None:
        """Do nothing: all of it is durable."""

    def new_identity(self) -> int:
        """Return a number for a new log."""
        self.kept.identity = 77
        return 77

    def new_segment(self, number: i64) -> Segment:
        """Return a segment."""
        return Segment(number, self.segment_bytes)

    def submit(self, batch: Batch) -> None:
        """Take a batch."""
        assert self.batch is None, "one batch at a time"
        self.submitted.append(batch.number)
        self.batch = batch
        for chunk in batch.chunks:
            self.streams[chunk.number].append(chunk.data)
        if self.at_once:
            self.answer()

    def store(self, batch: Batch) -> None:
        """Make a batch durable."""
        for chunk in batch.chunks:
            self.streams[chunk.number].append(chunk.data)
        self._keep(batch)

    def finish(self) -> None:
        """Answer."""
        if self.batch is not None:
            self.answer()

    def abandon(self) -> None:
        """Answer nothing any more."""
        self.batch = None

    def close(self, segments: list[Segment]) -> None:
        """Give up what is owned."""
        self.batch = None
        if self.kept.owner is self:
            self.kept.owner = None

    def remove(self, segment: Segment) -> None:
        """Delete a segment."""
        del self.kept.segments[segment.number]

    def load(self, message: Message, segment: Segment) -> bytes:
        """Return a part of a segment."""
        return self.kept.segments[segment.number][message.offset : message.offset + message.length]

    def scan(self, segment: Segment, identity: int) -> MemoryScanner:
        """Return a scanner."""
        return MemoryScanner(segment.name, self.kept.segments[segment.number])

    def open_stream(self, number: int, identity: int, segment_bytes: i64) -> MemoryStream:
        """Return a stream without rows."""
        self.streams[number] = MemoryStream(number, identity + number)
        return self.streams[number]

    def recover_stream(self, number: int, first: i64, behind: i64) -> None:
        """Restore rows."""
        self.streams[number].restore(self.kept.chunks.get(number, []), first, behind)

    def remove_stream(self, number: int) -> None:
        """Delete a stream."""
        del self.streams[number]
        self.kept.chunks.pop(number, None)

    def remove_stream_parts(self, names: list[str]) -> None:
        """Delete chunks."""
        for name in names:
            number, first = map(int, name.split())
            chunks = self.kept.chunks[number]
            self.kept.chunks[number] = [chunk for chunk in chunks if ChunkHeader(chunk).first != first]

    def remove_unknown_streams(self, known: Container[int]) -> None:
        """Delete the chunks of streams that nobody has opened."""
        for number in list(self.kept.chunks):
            if number not in self.streams and number not in known:
                del self.kept.chunks[number]
