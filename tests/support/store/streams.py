"""Streams of a log: some exist, a test appends rows and reads them."""

from broker.store.disk import Disk
from broker.store.log import Log
from broker.store.recovery.sink import RecoveryReport
from broker.store.streams.page import ChunkPage
from broker.store.streams.stream import Stream
from protocol.streams.chunk import BASIC, BODY
from tests.support.store.hand_log import DeferredWork, RecordingSink, open_log


class StreamSink(RecordingSink):
    """Opens the streams of these queues, as the queues of a broker do when all definitions are there."""

    def __init__(self, *numbers: int) -> None:
        super().__init__()
        self.numbers = numbers
        self.streams: list[Stream] = []

    def on_definitions_end(self) -> None:
        """Open them."""
        assert self.log is not None
        self.streams = [self.log.streams.open(number) for number in self.numbers]


def open_streams(
    directory: str, disk: Disk, *numbers: int, deferred: DeferredWork | None = None
) -> tuple[Log, list[Stream], RecoveryReport]:
    """A log with the streams of these queues, which are defined."""

    def definitions() -> list[dict[str, object]]:
        return [{"kind": "queue", "name": f"s{n}", "vhost": "/", "number": n} for n in numbers]

    sink = StreamSink(*numbers)
    log, report = open_log(directory, disk, sink, deferred, definitions)
    if deferred is not None:
        deferred.run_all()
    return log, sink.streams, report


def add(stream: Stream, *bodies: bytes, time: int = 1000) -> None:
    """Append rows to the batch being filled."""
    for body in bodies:
        stream.add(time, BASIC, b"", b"key", b"\0\0", body)


def rows(stream: Stream) -> list[tuple[int, bytes]]:
    """Offset and body of every row that can be read, page by page."""
    found: list[tuple[int, bytes]] = []
    offset = stream.first
    page = stream.at(offset)
    while page is not None:
        assert isinstance(page, ChunkPage)
        for row in range(max(offset, page.first), page.behind):
            message = page.message(row)
            found.append((row, page.chunk.value(BODY, row - page.first)))
            assert message.size == len(found[-1][1])
        offset = page.behind
        page = stream.at(offset)
    return found
