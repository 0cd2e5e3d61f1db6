"""The streams of a log: rows wait for the batch being filled, and are read chunk by chunk.

Rows that are appended to a stream wait for the batch being filled. When that batch is sealed, the rows of
each stream become a chunk. Chunks are written before the batch, and both are synced in one round. The batch
records the offset up to which each of these streams goes. So rows and records of one batch become durable
together: recovery treats the last batch as torn if a chunk of it is not whole.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.message import Message
from broker.core.ports import NO_PARTITION, StoredStream, StreamExtent, StreamPage, StreamWatcher
from broker.store.batch import Batch, StreamChunk
from broker.store.commit import BatchStorage, StreamStorage
from broker.store.state import LogState
from broker.store.streams.page import ChunkPage, whole_content
from protocol.streams.chunk import ChunkWriter, Header, chain_checksum
from protocol.streams.rows import columns_of


@final
class Stream(StoredStream):
    """A stream. Rows before the offset `durable` are on disk, of which `watcher` is notified.

    `sealed` is the offset behind the rows that are in chunks, in flight or on disk; `next` the offset of a
    new row.
    `waiting`: the count of rows that were appended since a batch was sealed. `checksum`: the checksum of the
    chunks made since then.
    """

    def __init__(self, streams: Streams, stored: StreamStorage, partition: i64) -> None:
        self.streams = streams
        self.partition = partition
        self.stored = stored
        self.writer = ChunkWriter()
        self.watcher: StreamWatcher | None = None
        self.durable: i64 = stored.next
        self.sealed: i64 = stored.next
        self.waiting: i64 = 0
        self.checksum: int = 0
        self.page: ChunkPage | None = None

    # ---- for the core (StoredStream)

    @property
    def first(self) -> i64:
        """The oldest offset that is kept."""
        return self.stored.first

    @property
    def behind(self) -> i64:
        """The offset behind the rows that are on disk."""
        return self.durable

    @property
    def next(self) -> i64:
        """The offset of the next row."""
        return self.sealed + self.writer.rows

    @property
    def disk_bytes(self) -> i64:
        """The bytes of its chunks."""
        return self.stored.bytes

    @property
    def incarnation(self) -> int:
        """The number that distinguishes the stream from earlier streams of its name."""
        return self.stored.incarnation

    def append(self, message: Message, date: i64, filter_value: bytes) -> None:
        """Append a message."""
        kind, properties, body = columns_of(whole_content(message, self.streams.log))
        address = message.address
        exchange = address.exchange.encode()
        self.add(date * 1000, kind, exchange, address.routing_key.encode(), properties, body, filter_value)

    def add(
        self,
        time: i64,
        kind: int,
        exchange: bytes,
        routing_key: bytes,
        properties: bytes,
        body: bytes,
        filter_value: bytes = b"",
    ) -> i64:
        """Append a row, which becomes durable with the batch being filled. Return its offset.

        The caller has checked that the log accepts appends.
        """
        log = self.streams.log
        batch = log.filling
        if batch.is_empty():
            log.wants_commit()
        writer = self.writer
        if not self.waiting:
            batch.streams.append(self)
        offset = self.next
        before: i64 = writer.size
        writer.add(time, kind, exchange, routing_key, properties, body, filter_value)
        batch.stream_bytes += writer.size - before
        self.waiting += 1
        if writer.size >= self.streams.chunk_bytes:
            self.cut(batch)
        return offset

    def at(self, offset: i64) -> StreamPage | None:
        """Return the rows around an offset."""
        page = self.page
        if page is not None and page.first <= offset < page.behind:
            return page
        if offset >= self.durable:
            return None
        chunk = self.stored.chunk_with(offset)
        if chunk is None or chunk.header.first >= self.durable:  # `>=`: behind lost rows
            return None
        page = ChunkPage(chunk, self.partition)
        self.streams.remember(self, page)
        return page

    def extent(self, offset: i64, behind: i64) -> StreamExtent | None:
        """Return chunks as they are stored."""
        if offset >= self.durable:
            return None
        behind = min(behind, self.durable)
        return self.stored.extent_from(offset, behind)

    def examine(self, offset: i64) -> None:
        """Check whether rows are damaged."""
        if offset < self.durable:
            self.stored.chunk_with(offset)

    def reach(self, offset: i64, size: i64) -> i64:
        """Return how far some bytes reach."""
        if offset >= self.durable:
            return offset
        return min(self.stored.reach(offset, size), self.durable)

    def since(self, time: i64) -> i64:
        """Return the first offset from a time on."""
        return min(self.stored.at_time(time), self.durable)

    def watch(self, watcher: StreamWatcher | None) -> None:
        """Set the watcher of rows that become durable."""
        self.watcher = watcher

    def apply_retention(self, bytes_max: i64, oldest: i64) -> None:
        """Remove old rows."""
        self.streams.apply_retention(self, bytes_max, oldest)

    def drop(self) -> None:
        """Drop the stream: the queue has been deleted."""
        self.streams.drop(self.stored.number)

    # ---- for the log

    def cut(self, batch: Batch) -> None:
        """Make a chunk of the rows in the writer."""
        rows: i64 = self.writer.rows
        data = self.writer.take(self.sealed, self.stored.incarnation)
        batch.chunks.append(StreamChunk(self, self.stored.number, data))
        self.checksum = chain_checksum(self.checksum, Header(data).crc)
        self.sealed += rows

    def forget(self) -> None:
        """Forget the rows that have not been written, which will not be on disk."""
        self.sealed = self.stored.next
        self.writer.clear()
        self.waiting = 0
        self.checksum = 0
        if self.watcher is not None:
            self.watcher.on_rows_durable(self.durable)


PAGES_MAX: Final = 32  # streams whose latest read chunk stays in memory
SEGMENT_BYTES: Final[i64] = 64 * 1024 * 1024
SEGMENT_BYTES_MIN: Final[i64] = 1024 * 1024
SEGMENT_BYTES_MAX: Final[i64] = 1024 * 1024 * 1024
CHUNK_BYTES: Final[i64] = 1024 * 1024


@final
class Streams:
    """All streams of a log, by their queues' numbers.

    A chunk ends when it has `chunk_bytes` or more, because a reader of one row has the whole chunk in memory.
    """

    def __init__(self, log: LogState, storage: BatchStorage) -> None:
        self.log = log
        self.storage = storage
        self.segment_bytes = SEGMENT_BYTES
        self.chunk_bytes = CHUNK_BYTES
        self.all: dict[int, Stream] = {}
        self.recovered: dict[int, tuple[int, int]] = {}  # first and next offset of streams not opened yet
        self.last: dict[int, int] = {}  # the first offset in the last batch of the log, by stream
        self._paged: dict[Stream, None] = {}  # streams with a page in memory, the last used one at the end

    def open(self, number: int, segment_bytes: i64 = 0, partition: i64 = NO_PARTITION) -> Stream:
        """Return the stream with this number, a new one unless recovery has found it.

        Raises OSError, LogDamaged.
        """
        if segment_bytes > 0:
            segment_bytes = min(max(segment_bytes, SEGMENT_BYTES_MIN), SEGMENT_BYTES_MAX)
        else:
            segment_bytes = self.segment_bytes
        stored = self.storage.open_stream(number, self.log.identity, segment_bytes)
        known = self.recovered.pop(number, None)
        if known is not None:
            self.storage.recover_stream(number, known[0], known[1])
        if number in self.last:
            self.storage.store_again(number, self.last[number])
        stream = Stream(self, stored, partition)
        self.all[number] = stream
        return stream

    # ---- a single batch

    def seal(self, batch: Batch) -> None:
        """Make chunks of the appended rows, and record in the batch how far the streams go with it."""
        for appended in batch.streams:
            stream = _own(appended)
            if stream.writer.rows:
                stream.cut(batch)
            stored = stream.stored
            batch.add_stream(stored.number, stored.first, stream.sealed, stream.waiting, stream.checksum)
            stream.waiting = 0
            stream.checksum = 0
        batch.streams = []

    def on_durable(self, batch: Batch) -> None:
        """Note that a batch is durable."""
        for chunk in batch.chunks:
            stream = _own(chunk.stream)
            stream.durable = stream.stored.next
            if stream.watcher is not None:
                stream.watcher.on_rows_durable(stream.durable)
        if batch.dead_files:
            self.storage.remove_stream_parts(batch.dead_files)
        for number in batch.dead_streams:
            self.storage.remove_stream(number)

    def refuse(self, batch: Batch) -> None:
        """Forget the rows of an undone batch, or of the one behind it, which will not be durable."""
        concerned = [chunk.stream for chunk in batch.chunks] + batch.streams
        batch.chunks = []
        batch.streams = []
        for stored in concerned:
            _own(stored).forget()

    def record_extents(self, batch: Batch) -> None:
        """Record in a segment's first batch how far all streams go, because older segments may be removed."""
        for stream in self.all.values():
            batch.add_stream(stream.stored.number, stream.stored.first, stream.sealed, 0, 0)
        for number, (first, behind) in self.recovered.items():
            batch.add_stream(number, first, behind, 0, 0)

    # ---- removing

    def apply_retention(self, stream: Stream, bytes_max: i64, oldest: i64) -> None:
        """Remove old rows; the files of the rows are deleted when the record is durable."""
        names = stream.stored.apply_retention(bytes_max, oldest)
        if names and not self.log.stopped:
            batch = self.log.filling
            if batch.is_empty():
                self.log.wants_commit()
            batch.add_stream(stream.stored.number, stream.stored.first, stream.sealed, 0, 0)
            batch.dead_files += names

    def drop(self, number: int) -> None:
        """Drop a deleted queue's stream. The chunks are deleted when the deletion is durable."""
        stream = self.all.pop(number)
        stream.watcher = None
        self._paged.pop(stream, None)
        batch = self.log.filling
        if stream in batch.streams:
            batch.streams.remove(stream)
            batch.chunks = [chunk for chunk in batch.chunks if chunk.stream is not stream]
        batch.dead_streams.append(number)

    def remember(self, stream: Stream, page: ChunkPage) -> None:
        """Keep a chunk in memory that other consumers may read next."""
        stream.page = page
        self._paged.pop(stream, None)
        self._paged[stream] = None
        if len(self._paged) > PAGES_MAX:
            oldest = next(iter(self._paged))
            del self._paged[oldest]
            oldest.page = None


def _own(stored: StoredStream) -> Stream:
    assert isinstance(stored, Stream), "the streams of a batch are its log's"
    return stored
