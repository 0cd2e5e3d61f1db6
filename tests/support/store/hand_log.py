"""The outside of the log, by hand: queues with numbers, a sink that remembers, a syncer without threads."""

from collections.abc import Callable

from broker.core.counters import Counters
from broker.core.entries.list import FifoEntryList
from broker.core.message import Address, Message
from broker.core.ports import DurableWaiter, MessageStore
from broker.core.queues.queue import Queue
from broker.store.counts import Count
from broker.store.definition_text import Describe
from broker.store.disk import Disk
from broker.store.file_commit import MIB, FileStorage
from broker.store.log import Log
from broker.store.recovery.sink import RecoveryReport, RecoverySink
from broker.store.segment_files import SegmentFiles
from broker.store.streams.files import StreamFiles
from broker.store.streams.stream import Stream
from broker.store.sync import DiskSyncer, Done, Syncer, Work

ADDRESS = Address("logs", "error.disk")


def logged_queue(number: int) -> Queue:
    """A durable queue as the log sees it."""
    return Queue(f"q{number}", MessageStore(), FifoEntryList(), Counters(), True, True, number)


def content_of(number: int, length: int) -> bytes:
    """Content that tells which message it is of, at every offset."""
    mark = b"<%d>" % number
    return (mark * (length // len(mark) + 1))[: max(length, len(mark))]


def annotations_of_count(count: int) -> bytes:
    """Return annotations for a delivery count; the annotations identify the count."""
    return (b"", b"", b"<%d>" % count, content_of(count, 300))[count % 4]


def new_message(content: bytes, address: Address = ADDRESS, priority: int = 0, date: int = 0) -> Message:
    """A persistent message that has not been logged."""
    message = Message(address, content, len(content), True, priority)
    message.date = date
    return message


class RecordingSink(RecoverySink):
    """A sink that records the recovered objects."""

    def __init__(self) -> None:
        self.changes: list[dict[str, object]] = []
        self.messages: list[tuple[Message, list[int], bool]] = []
        self.counts: dict[tuple[int, int], int] = {}  # by sequence and queue
        self.annotations: dict[tuple[int, int], bytes] = {}  # the same way
        self.log: Log | None = None
        self.gone: set[int] = set()  # numbers of queues that do not exist any more

    def apply(self, change: dict[str, object]) -> None:
        """Remember a definition."""
        self.changes.append(change)

    def has(self, queue: int) -> bool:
        """Whether the queue exists."""
        return queue not in self.gone

    def message(
        self, message: Message, queues: list[int], redelivered: bool, counts: dict[int, Count]
    ) -> int:
        """Remember a message."""
        taken = [queue for queue in queues if queue not in self.gone]
        self.remember(message, {queue: counts[queue] for queue in taken if queue in counts})
        self.messages.append((message, taken, redelivered))
        return len(taken)

    def remember(self, message: Message, counts: dict[int, Count]) -> None:
        """Remember the counts of a message."""
        for queue, count in counts.items():
            self.counts[message.sequence, queue] = count.value
            self.annotations[message.sequence, queue] = count.annotations

    def held(self) -> list[tuple[int, list[int]]]:
        """Sequence and queues of every message, in order."""
        return [(message.sequence, queues) for message, queues, _ in self.messages]


class RecordingWaiter(DurableWaiter):
    """A waiter that records its calls."""

    def __init__(self) -> None:
        self.durable: list[int] = []
        self.failed: list[str] = []

    def on_durable(self, batch: int) -> None:
        """Remember."""
        self.durable.append(batch)

    def on_store_failed(self, reason: str) -> None:
        """Remember."""
        self.failed.append(reason)


class DeferredWork:
    """A RunOffLoop whose work is done when the test says so."""

    def __init__(self) -> None:
        self.pending: list[tuple[Work, Done]] = []

    def run(self, work: Work, done: Done) -> None:
        """Remember the work."""
        self.pending.append((work, done))

    def step(self, index: int = 0) -> None:
        """Do a single piece of work and report it."""
        work, done = self.pending.pop(index)
        error: OSError | None = None
        try:
            work()
        except OSError as problem:
            error = problem
        done(error)

    def run_all(self) -> None:
        """Do all pending work, and the work that results from it."""
        while self.pending:
            self.step()


def file_log(
    directory: str,
    disk: Disk,
    syncer: Syncer,
    clock: Callable[[], float],
    describe: Describe,
    segment_bytes: int = 64 * MIB,
    first_segment_bytes: int = 4 * MIB,
    reserve_bytes: int = 4 * MIB,
    memory_budget: int = 256 * MIB,
) -> Log:
    """A log in files, not recovered yet."""
    storage = FileStorage(directory, disk, syncer, clock, segment_bytes, first_segment_bytes, reserve_bytes)
    return Log(storage, describe, memory_budget)


def storage_of(log: Log) -> FileStorage:
    """The files of a log, and what writes them."""
    assert isinstance(log.storage, FileStorage)
    return log.storage


def files_of(log: Log) -> SegmentFiles:
    """The segment files of a log."""
    return storage_of(log).files


def chunks_of(stream: Stream) -> StreamFiles:
    """The files of a stream."""
    assert isinstance(stream.stored, StreamFiles)
    return stream.stored


def open_log(
    directory: str,
    disk: Disk,
    sink: RecoverySink | None = None,
    deferred: DeferredWork | None = None,
    definitions: Callable[[], list[dict[str, object]]] = list,
    segment_bytes: int = 64 * 1024,
    first_segment_bytes: int = 64 * 1024,
    reserve_bytes: int = 16 * 1024,
    memory_budget: int = 1 << 40,
    chunk_bytes: int = 1 << 20,
) -> tuple[Log, RecoveryReport]:
    """A recovered log with small segments; synchronous unless `deferred` is given."""
    syncer = DiskSyncer(disk) if deferred is None else DiskSyncer(disk, deferred.run)
    log = file_log(
        directory,
        disk,
        syncer,
        lambda: 0.0,
        lambda: [definitions()],
        segment_bytes=segment_bytes,
        first_segment_bytes=first_segment_bytes,
        reserve_bytes=reserve_bytes,
        memory_budget=memory_budget,
    )
    log.streams.segment_bytes = segment_bytes // 2
    log.streams.chunk_bytes = chunk_bytes
    if isinstance(sink, RecordingSink):
        sink.log = log
    return log, log.recover(sink or RecordingSink())


def publish(log: Log, queues: list[Queue], content: bytes) -> Message:
    """Append a single message without a commit."""
    message = new_message(content)
    log.append_message(message, queues)
    return message
