"""A virtual host with a stream, on a disk that is a list."""

from broker.core.arguments.consumer import BrowseRange
from broker.core.delivery.credit import Credit
from broker.core.delivery.session import Connection, PullingTarget, Session
from broker.core.entries.entry import QueueEntry
from broker.core.message import Message
from broker.core.ports import StoredStream, StreamPage, StreamWatcher
from broker.core.queues.attach import attach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import Queue
from broker.core.streams.stream import QueueStream, stream_of
from tests.support.core.timed_vhost import VhostBench
from tests.support.core.topology import RecordingStore

PAGE = 10
ROW_BYTES = 1000


class ListPage(StreamPage):
    """Ten rows of a list."""

    def __init__(self, rows: list[tuple[Message, int, bytes]], first: int, behind: int) -> None:
        self.rows = rows
        self.first = first
        self.behind = behind

    @property
    def size(self) -> int:
        return ROW_BYTES * len(self.rows[self.first : self.behind])

    def message(self, offset: int) -> Message:
        assert self.first <= offset < self.behind
        return self.rows[offset][0]

    def time(self, offset: int) -> int:
        return self.rows[offset][1]

    def filter_value(self, offset: int) -> bytes:
        return self.rows[offset][2]


class ListStream(StoredStream):
    """A stream in a list. `trims`: the requested removals."""

    def __init__(self) -> None:
        self.rows: list[tuple[Message, int, bytes]] = []
        self.kept = 0
        self.durable = 0
        self.watcher: StreamWatcher | None = None
        self.trims: list[tuple[int, int]] = []
        self.dropped = False
        self.reads = 0

    @property
    def first(self) -> int:
        return self.kept

    @property
    def behind(self) -> int:
        return self.durable

    @property
    def next(self) -> int:
        return len(self.rows)

    @property
    def disk_bytes(self) -> int:
        return 100 * (self.durable - self.kept)

    def append(self, message: Message, date: int, filter_value: bytes) -> None:
        self.rows.append((message, date * 1000, filter_value))

    def at(self, offset: int) -> StreamPage | None:
        self.reads += 1
        if offset >= self.durable:
            return None
        start = max(offset, self.kept) // PAGE * PAGE
        return ListPage(self.rows, max(start, self.kept), min(start + PAGE, self.durable))

    def since(self, time: int) -> int:
        return next((n for n in range(self.kept, self.durable) if self.rows[n][1] >= time), self.durable)

    def watch(self, watcher: StreamWatcher | None) -> None:
        self.watcher = watcher

    def apply_retention(self, bytes_max: int, oldest: int) -> None:
        self.trims.append((bytes_max, oldest))

    def drop(self) -> None:
        self.dropped = True

    def sync(self) -> None:
        """Make all appended rows durable."""
        self.durable = len(self.rows)
        if self.watcher is not None:
            self.watcher.on_rows_durable(self.durable)


class ListStore(RecordingStore):
    """Streams that are lists, by their queues' numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: dict[int, ListStream] = {}

    def open_stream(self, number: int, segment_bytes: int, partition: int) -> StoredStream:
        return self.streams.setdefault(number, ListStream())


class Reader(PullingTarget):
    """A consumer of a stream. `held`: its unsettled deliveries."""

    def __init__(
        self, bench: VhostBench, queue: Queue, extent: BrowseRange | None = None, prefetch: int = 100
    ) -> None:
        super().__init__(Session(Connection(bench.scheduler)), Credit(prefetch, 0), None)
        self.deliveries: list[QueueEntry] = []
        self.ended = False
        self.consumer = QueueConsumer(self, queue, acquires=False)
        self.consumer.extent = extent
        attach(queue, self.consumer)

    @property
    def offsets(self) -> list[int]:
        return [entry.order - 1 for entry in self.deliveries]

    def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        self.deliveries.append(entry)

    def on_snapshot_end(self, consumer: QueueConsumer) -> None:
        self.ended = True

    def settle(self, *offsets: int) -> None:
        """Settle deliveries, as adapters do."""
        progress = self.consumer.context.progress
        for entry in self.deliveries:
            if entry.order - 1 in offsets:
                if progress is not None:
                    progress.note_settled([entry])
                self.restore_credit(entry.message.size)


class StreamBench(VhostBench):
    """A bench with a stream `q`."""

    def __init__(self, **arguments: object) -> None:
        self.lists = ListStore()
        super().__init__(self.lists)
        self.q = self.queue("q", True, queue_type="stream", **arguments)
        self.disk = self.lists.streams[int(self.q.number)]

    @property
    def stream(self) -> QueueStream:
        stream = stream_of(self.q)
        assert stream is not None
        return stream

    def append(self, count: int) -> None:
        """Publish `count` messages, make them durable, and show them to readers."""
        self.publish(count=count)
        self.disk.sync()
        self.run()
