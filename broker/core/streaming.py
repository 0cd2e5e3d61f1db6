"""The stream of a queue: what is published is appended on disk, and seen by everybody when it is there.

[RabbitMQ streams]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.argument_rule import age_milliseconds
from broker.core.arguments import MAX_AGE, MAX_LENGTH_BYTES, SEGMENT_BYTES, number_argument, text_argument
from broker.core.message import IN_STREAM, Message
from broker.core.notifying import notify_browsers
from broker.core.ports import StoredStream, StreamWatcher
from broker.core.schedule import Alarm
from broker.core.stream_list import StreamEntryList
from broker.core.stream_progress import StreamOffsets

if TYPE_CHECKING:
    from broker.core.queue import Queue
    from broker.core.topology import Topology

FILTER_VALUE: Final = "x-stream-filter-value"
TRIM_MS: Final[i64] = 10_000  # so often it is looked whether what is kept has become too old


@final
class QueueStream(StreamWatcher):
    """What `queue` has `stored`, and what of it is kept: `bytes_max` of files, for `age_max` ms; 0: all."""

    def __init__(self, queue: Queue, topology: Topology, stored: StoredStream) -> None:
        self.queue = queue
        self.topology = topology
        self.stored = stored
        self.bytes_max: i64 = 0
        self.age_max: i64 = 0
        self.offsets = StreamOffsets(queue, topology)
        self._retention = Retention(self)
        entries = queue.entries
        assert isinstance(entries, StreamEntryList), "a queue of this kind has such a list"
        self._entries = entries
        self.offsets.restore(entries.offsets_found)
        entries.offsets_found = None
        entries.stored = stored
        stored.watch(self)
        self.rows_durable(stored.behind)
        self.apply(queue.effective)

    def apply(self, held: dict[str, object]) -> None:
        """Have these arguments hold from now on."""
        age = text_argument(held, MAX_AGE)
        self.age_max = 0 if age is None else age_milliseconds(age)
        self.bytes_max = number_argument(held, MAX_LENGTH_BYTES, 0)
        self._retention.ring()

    def append(self, message: Message) -> None:
        """Append a message; the store accepts appends."""
        self.stored.append(message, self.topology.schedule.date(), self._filter_value)
        message.marks |= IN_STREAM

    def rows_durable(self, behind: i64) -> None:
        """Show what has become durable to those who wait for it (StreamWatcher)."""
        queue = self.queue
        stored = self.stored
        self._entries.sequence = behind
        queue.ready = stored.next - stored.first
        queue.ready_bytes = stored.disk_bytes
        if queue.manager.non_acquiring.head is not None:
            notify_browsers(queue)
        if self.bytes_max > 0 and stored.disk_bytes > self.bytes_max:
            self.trim()

    def trim(self) -> None:
        """Let go of what is not to be kept."""
        stored = self.stored
        oldest: i64 = 0
        if self.age_max > 0:
            oldest = max((self.topology.schedule.date() - self.age_max) * 1000, 0)
        stored.trim(self.bytes_max, oldest)
        self.queue.ready = stored.next - stored.first
        self.queue.ready_bytes = stored.disk_bytes

    def drop(self) -> None:
        """The queue has been deleted."""
        self.topology.schedule.cancel(self._retention)
        self.offsets.stop()
        self._entries.stored = StoredStream()
        self.stored.watch(None)
        self.stored.drop()

    def _filter_value(self, message: Message) -> bytes:
        value = self.topology.headers.value(message, FILTER_VALUE)
        if isinstance(value, str):
            return value.encode("utf-8", "surrogateescape")
        return bytes(value) if isinstance(value, (bytes, bytearray)) else b""


@final
class Retention(Alarm):
    """Looks now and then whether what a stream keeps has become too old."""

    def __init__(self, stream: QueueStream) -> None:
        super().__init__()
        self._stream = stream

    def ring(self) -> None:
        """Look, and again after a while if age matters (Alarm)."""
        stream = self._stream
        schedule = stream.topology.schedule
        if stream.age_max > 0 or stream.bytes_max > 0:
            stream.trim()
        if stream.age_max > 0:
            schedule.set(self, schedule.after(TRIM_MS))
        else:
            schedule.cancel(self)


def open_stream(queue: Queue, topology: Topology) -> None:
    """Have a queue of that kind keep its stream. Raises what `MessageStore.open_stream` raises."""
    if isinstance(queue.entries, StreamEntryList) and queue.stream is None:
        stored = topology.store.open_stream(queue.number, number_argument(queue.effective, SEGMENT_BYTES, 0))
        queue.stream = QueueStream(queue, topology, stored)
