"""One stream of a log: rows wait for the batch being filled, and are read chunk by chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from broker.core.ports import StoredStream, StreamExtent, StreamPage, StreamWatcher
from broker.store.stream_page import ChunkPage, whole_content
from protocol.streams.chunk import ChunkWriter, Header, chain
from protocol.streams.rows import columns_of

if TYPE_CHECKING:
    from broker.core.message import Message
    from broker.store.batch import Batch
    from broker.store.stream_files import StreamFiles
    from broker.store.streams import Streams


@final
class Stream(StoredStream):
    """One stream. Rows before the offset `durable` are on disk, which `watcher` is told.

    `sealed` is the offset behind those that are in a chunk, on its way or on disk; `next` that of a new row.
    `waiting`: rows that have come since a batch was sealed. `checksum`: of the chunks made since then.
    """

    def __init__(self, streams: Streams, files: StreamFiles, partition: i64) -> None:
        self.streams = streams
        self.partition = partition
        self.files = files
        self.writer = ChunkWriter()
        self.watcher: StreamWatcher | None = None
        self.durable: i64 = files.next
        self.sealed: i64 = files.next
        self.waiting: i64 = 0
        self.checksum: int = 0
        self.page: ChunkPage | None = None

    # ---- what the core asks (StoredStream)

    @property
    def first(self) -> i64:
        """The oldest offset that is kept."""
        return self.files.first

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
        """Bytes of its files."""
        return self.files.bytes

    @property
    def incarnation(self) -> int:
        """What tells it from an earlier stream of its name."""
        return self.files.incarnation

    def append(self, message: Message, date: i64, filter_value: bytes) -> None:
        """Append a message (StoredStream)."""
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
        """Append a row, which becomes durable with the batch being filled; its offset.

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
        """The rows around an offset (StoredStream)."""
        page = self.page
        if page is not None and page.first <= offset < page.behind:
            return page
        if offset >= self.durable:
            return None
        chunk = self.files.chunk_with(offset)
        if chunk is None or chunk.header.first >= self.durable:  # the latter behind rows that are lost
            return None
        page = ChunkPage(chunk, self.partition)
        self.streams.remember(self, page)
        return page

    def extent(self, offset: i64, behind: i64) -> StreamExtent | None:
        """Chunks as they are stored (StoredStream)."""
        if offset >= self.durable:
            return None
        behind = min(behind, self.durable)
        place = self.files.find(offset)
        return None if place is None or place.header.first >= behind else self.files.extent(place, behind)

    def examine(self, offset: i64) -> None:
        """Find out whether rows are damaged (StoredStream)."""
        if offset < self.durable:
            self.files.chunk_with(offset)

    def reach(self, offset: i64, size: i64) -> i64:
        """How far some bytes reach (StoredStream)."""
        if offset >= self.durable:
            return offset
        return min(self.files.reach(offset, size), self.durable)

    def since(self, time: i64) -> i64:
        """The first offset from a time on (StoredStream)."""
        return min(self.files.at_time(time), self.durable)

    def watch(self, watcher: StreamWatcher | None) -> None:
        """Tell `watcher` of rows that have become durable."""
        self.watcher = watcher

    def trim(self, bytes_max: i64, oldest: i64) -> None:
        """Let go of old rows (StoredStream)."""
        self.streams.trim(self, bytes_max, oldest)

    def drop(self) -> None:
        """The queue has been deleted (StoredStream)."""
        self.streams.drop(self.files.number)

    # ---- what its log asks

    def cut(self, batch: Batch) -> None:
        """Make a chunk of what is in the writer."""
        rows: i64 = self.writer.rows
        data = self.writer.take(self.sealed, self.files.incarnation)
        batch.chunks.append((self, data))
        self.checksum = chain(self.checksum, Header(data).crc)
        self.sealed += rows

    def forget(self) -> None:
        """Nothing that has come since what is written will be on disk."""
        self.sealed = self.files.next
        self.writer.clear()
        self.waiting = 0
        self.checksum = 0
        if self.watcher is not None:
            self.watcher.rows_durable(self.durable)
