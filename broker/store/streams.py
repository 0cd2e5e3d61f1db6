"""The streams of a log: their rows are in files of their own, and the log says up to where.

What is appended to a stream waits for the batch being filled. When that is sealed, the rows of each stream
are one chunk; chunks are written before the batch, and both are synced in one round. The batch says up to
which offset each of these streams goes, so rows of one batch and all else in it become durable together:
recovery takes the last batch for torn if a chunk of it is not whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.ports import NO_PARTITION
from broker.store.open_files import OpenFiles
from broker.store.stream import Stream
from broker.store.stream_files import StreamFiles
from broker.store.stream_segment import parse_stream_name

if TYPE_CHECKING:
    from broker.store.batch import Batch
    from broker.store.filling import Filling
    from broker.store.stream_page import ChunkPage

PAGES_MAX: Final = 32  # streams whose chunk that was read last stays in memory
SEGMENT_BYTES: Final[i64] = 64 * 1024 * 1024
SEGMENT_BYTES_MIN: Final[i64] = 1024 * 1024
SEGMENT_BYTES_MAX: Final[i64] = 1024 * 1024 * 1024
CHUNK_BYTES: Final[i64] = 1024 * 1024


@final
class Streams:
    """All streams of a log, by their queues' numbers.

    A chunk that has `chunk_bytes` or more ends: whoever reads a row of it has all of it in memory.
    """

    def __init__(self, log: Filling) -> None:
        self.log = log
        self.segment_bytes = SEGMENT_BYTES
        self.chunk_bytes = CHUNK_BYTES
        self.all: dict[int, Stream] = {}
        self.recovered: dict[int, tuple[int, int]] = {}  # first and next offset of those not opened yet
        self.last: dict[int, int] = {}  # the offset that the last batch of the log begins with in each
        self.open_files = OpenFiles(log.disk)
        self._paged: dict[Stream, None] = {}  # those with a page in memory, the one used last at the end

    def open(self, number: int, segment_bytes: i64 = 0, partition: i64 = NO_PARTITION) -> Stream:
        """The stream with this number, a new one unless recovery has found it.

        Raises OSError, LogDamaged.
        """
        files = self.files_of(number)
        if segment_bytes > 0:
            files.segment_bytes = min(max(segment_bytes, SEGMENT_BYTES_MIN), SEGMENT_BYTES_MAX)
        found = self.recovered.pop(number, None)
        if found is not None:
            files.recover(found[0], found[1])
        if number in self.last:
            files.write_again(self.last[number])
        stream = Stream(self, files, partition)
        self.all[number] = stream
        return stream

    def files_of(self, number: int) -> StreamFiles:
        """The files of a stream, not read yet."""
        log = self.log
        incarnation = (log.identity + number) & 0x7FFFFFFFFFFFFFFF  # no number is used twice
        return StreamFiles(log.files.directory, self.open_files, number, incarnation, self.segment_bytes)

    # ---- one batch

    def seal(self, batch: Batch) -> None:
        """Make chunks of what has been appended, and have the batch say how far the streams go with it."""
        for stream in batch.streams:
            if stream.writer.rows:
                stream.cut(batch)
            files = stream.files
            batch.add_stream(files.number, files.first, stream.sealed, stream.waiting, stream.checksum)
            stream.waiting = 0
            stream.checksum = 0
        batch.streams = []

    def write(self, batch: Batch) -> None:
        """Write the chunks of a sealed batch. Raises OSError: then none is there."""
        try:
            for stream, chunk in batch.chunks:
                batch.appended.append((stream, stream.files.append(chunk)))
        except OSError:
            self._take_back(batch)
            raise

    def _take_back(self, batch: Batch) -> None:
        for stream, appended in reversed(batch.appended):
            stream.files.take_back(appended)
        batch.appended = []

    def synced(self, batch: Batch) -> None:
        """A batch is on disk."""
        for stream, appended in batch.appended:
            appended.segment.entry_synced = True
            stream.files.synced(appended)
            stream.durable = stream.files.next
            if stream.watcher is not None:
                stream.watcher.rows_durable(stream.durable)
        for stream in batch.dead_streams:
            stream.files.close()
            batch.dead_files += stream.files.names()
        for name in batch.dead_files:
            self.log.syncer.remove(name)

    def refuse(self, batch: Batch) -> None:
        """Nothing of a batch, or of what follows it, will be on disk: its rows are gone. Raises OSError."""
        concerned = [stream for stream, _ in batch.chunks] + batch.streams
        self._take_back(batch)
        batch.chunks = []
        batch.streams = []
        for stream in concerned:
            stream.forget()

    def note(self, batch: Batch) -> None:
        """The batch begins a segment, without which older ones may go: have it say how far all streams go."""
        for stream in self.all.values():
            files = stream.files
            batch.add_stream(files.number, files.first, stream.sealed, 0, 0)
        for number, (first, behind) in self.recovered.items():
            batch.add_stream(number, first, behind, 0, 0)

    # ---- letting go

    def trim(self, stream: Stream, bytes_max: i64, oldest: i64) -> None:
        """Let go of old rows (`StreamFiles.trim`); their files go when the log says so on disk."""
        names = stream.files.trim(bytes_max, oldest)
        if names and not self.log.stopped:
            batch = self.log.filling
            if batch.is_empty():
                self.log.wants_commit()
            batch.add_stream(stream.files.number, stream.files.first, stream.sealed, 0, 0)
            batch.dead_files += names

    def drop(self, number: int) -> None:
        """The queue has been deleted, which has been appended: the files go when that is on disk."""
        stream = self.all.pop(number)
        stream.watcher = None
        self._paged.pop(stream, None)
        batch = self.log.filling
        if stream in batch.streams:
            batch.streams.remove(stream)
            batch.chunks = [written for written in batch.chunks if written[0] is not stream]
        batch.dead_streams.append(stream)

    def useless(self) -> list[str]:
        """The files that no stream has, once all streams have been opened."""
        found: list[str] = []
        for name in self.log.disk.names(self.log.files.directory):
            parsed = parse_stream_name(name)
            if parsed is None or parsed[0] in self.recovered:
                continue
            stream = self.all.get(parsed[0])
            if stream is None or name not in stream.files.names():
                found.append(name)
        return found

    def close(self) -> None:
        """Close all files."""
        self.open_files.close()

    def remember(self, stream: Stream, page: ChunkPage) -> None:
        """A chunk has been read that others may want next."""
        stream.page = page
        self._paged.pop(stream, None)
        self._paged[stream] = None
        if len(self._paged) > PAGES_MAX:
            oldest = next(iter(self._paged))
            del self._paged[oldest]
            oldest.page = None
