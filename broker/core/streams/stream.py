"""The stream of a queue: messages are appended on disk, and every consumer sees them when they are durable.

[RabbitMQ streams]
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.queue import (
    MAX_AGE,
    MAX_LENGTH_BYTES,
    PARTITIONS,
    SEGMENT_BYTES,
    number_argument,
    text_argument,
)
from broker.core.arguments.rule import age_milliseconds
from broker.core.entries.cursor import Cursor
from broker.core.hashing import hash_of
from broker.core.message import IN_STREAM, Message
from broker.core.ports import NO_PARTITION, StoredStream
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.consumers import notify_browsers
from broker.core.queues.hooks import StreamSink
from broker.core.queues.queue import Queue
from broker.core.queues.source import Source
from broker.core.queues.state import count_rows
from broker.core.queues.virtual_host import QueueHost
from broker.core.schedule import TimedTask
from broker.core.streams.list import StreamEntryList
from broker.core.streams.offsets import stream_context
from broker.core.streams.progress import StreamOffsets

FILTER_VALUE: Final = "x-stream-filter-value"
PARTITION_KEY: Final = "x-partition-key"
_FILTER_VALUE: Final = FILTER_VALUE.encode()
_PARTITION_KEY: Final = PARTITION_KEY.encode()
RETENTION_MS: Final[i64] = 10_000  # the interval of checks for rows that have become too old


@final
class QueueStream(StreamSink):
    """The rows of `queue` in `partitions`. Each keeps `bytes_max` of files, for `age_max` ms; 0: no limit.

    `first_at_open`: the first offset of each partition when the stream was opened, before retention removed
    any row.
    """

    def __init__(self, queue: Queue, host: QueueHost, partitions: list[StoredStream]) -> None:
        self.queue = queue
        self.host = host
        self.partitions = partitions
        self.first_at_open = [int(stored.first) for stored in partitions]
        self.bytes_max: i64 = 0
        self.age_max: i64 = 0
        self.offsets = StreamOffsets(queue, host)
        self._retention = RetentionTimer(self)
        entries = queue.entries
        assert isinstance(entries, StreamEntryList), "a queue with a stream has a StreamEntryList"
        self._entries = entries
        self.offsets.restore(entries.offsets_found)
        entries.offsets_found = None
        entries.partitions = partitions
        for stored in partitions:
            stored.watch(self)
            self.on_rows_durable(stored.behind)
        self.apply(queue.effective)

    def apply(self, effective: dict[str, object]) -> None:
        """Apply the arguments from now on."""
        age = text_argument(effective, MAX_AGE)
        self.age_max = 0 if age is None else age_milliseconds(age)
        self.bytes_max = number_argument(effective, MAX_LENGTH_BYTES, 0)
        self._retention.do_due_work()

    def append(self, message: Message, source: Source) -> None:
        """Append a message from `source`; the store accepts appends."""
        stored = self.partitions[self._partition(message)]
        offset = stored.next
        stored.append(message, self.host.schedule.date(), self._filter_value(message))
        message.marks |= IN_STREAM
        if self.queue.journal is not None:
            self.queue.journal.appended(message, offset, source)

    def open_cursor(self, consumer: QueueConsumer) -> Cursor:
        """Make the cursor of a consumer that is being attached."""
        return stream_context(self.queue, consumer, self.offsets)

    def on_rows_durable(self, behind: i64) -> None:
        """Notify the waiting consumers of rows that have become durable."""
        queue = self.queue
        self._entries.sequence = max(self._entries.sequence, behind)
        self._count()
        if queue.manager.non_acquiring.head is not None:
            notify_browsers(queue)
        if self.bytes_max > 0 and queue.ready_bytes > self.bytes_max:
            self.apply_retention()

    def apply_retention(self) -> None:
        """Remove rows beyond the retention limits."""
        oldest: i64 = 0
        if self.age_max > 0:
            oldest = max(self.host.schedule.date() - self.age_max, 0) * 1000
        journal = self.queue.journal
        for stored in self.partitions:
            first = stored.first
            stored.apply_retention(self.bytes_max, oldest)
            if journal is not None and stored.first > first:
                journal.trimmed(first, stored.first - 1, stored.first - first)
        self._count()

    @property
    def appended(self) -> i64:
        """The count of rows, including those that are not on disk yet."""
        rows: i64 = 0
        for stored in self.partitions:
            rows += stored.next - stored.first
        return rows

    def _count(self) -> None:
        """Update the counts of the queue."""
        rows: i64 = 0
        size: i64 = 0
        for stored in self.partitions:
            rows += stored.next - stored.first
            size += stored.disk_bytes
        count_rows(self.queue, rows, size)

    def drop(self) -> None:
        """Drop the stream: the queue has been deleted."""
        self._retention.stop()
        self.offsets.stop()
        self._entries.partitions = [StoredStream()]
        for stored in self.partitions:
            stored.watch(None)
            stored.drop()

    def _partition(self, message: Message) -> i64:
        """Return the partition of a message, by its partition key or else by its routing key."""
        count: int = len(self.partitions)  # no i64, as a hash is more than one holds
        if count == 1:
            return 0
        key = self._header(message, PARTITION_KEY, _PARTITION_KEY)
        return hash_of(_octets(message.address.routing_key if key is None else key)) % count

    def _filter_value(self, message: Message) -> bytes:
        value = self._header(message, FILTER_VALUE, _FILTER_VALUE)
        return _octets(value) if isinstance(value, (str, bytes, bytearray)) else b""

    def _header(self, message: Message, name: str, octets: bytes) -> object:
        """Return a header. The headers of most messages, which have no such header, are not decoded."""
        content = message.content
        if content is None or octets in content:
            return self.host.headers.value(message, name)
        return None


@final
class RetentionTimer(TimedTask):
    """The timed task that removes rows when they have become too old."""

    def __init__(self, stream: QueueStream) -> None:
        super().__init__()
        self._stream: QueueStream | None = stream  # None: the stream was dropped

    def stop(self) -> None:
        """Cancel the task, and forget the stream, which is dropped."""
        if self._stream is not None:
            self._stream.host.schedule.cancel(self)
            self._stream = None

    def do_due_work(self) -> None:
        """Apply the limits of retention, and again after a while if age matters."""
        stream = self._stream
        if stream is None:
            return
        schedule = stream.host.schedule
        if stream.age_max > 0 or stream.bytes_max > 0:
            stream.apply_retention()
        if stream.age_max > 0:
            schedule.set(self, schedule.after(RETENTION_MS))
        else:
            schedule.cancel(self)


def stream_of(queue: Queue) -> QueueStream | None:
    """Return the stream of a queue; None: the queue is no stream."""
    stream = queue.stream
    assert stream is None or isinstance(stream, QueueStream), "this module makes all streams"
    return stream


def open_stream(queue: Queue, host: QueueHost) -> None:
    """Open the stream of a queue of this type. Raises the errors of `MessageStore.open_stream`."""
    if isinstance(queue.entries, StreamEntryList) and queue.stream is None:
        size = number_argument(queue.effective, SEGMENT_BYTES, 0)
        count = number_argument(queue.arguments, PARTITIONS, 1)
        partitions = [
            host.store.open_stream(queue.number + n, size, n if count > 1 else NO_PARTITION)
            for n in range(count)
        ]
        queue.stream = QueueStream(queue, host, partitions)


def _octets(value: object) -> bytes:
    """Return a header's value as octets."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    return str(value).encode("utf-8", "surrogateescape")
