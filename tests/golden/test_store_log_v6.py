"""A log of format version 6, and the chunks of its streams, keep being readable."""

import shutil
from pathlib import Path

from broker.store.disk import RealDisk
from broker.store.repair.check import check
from broker.store.streams.stream import Stream
from protocol.streams.offsets import content_at
from protocol.streams.rows import columns_of
from tests.golden.make_log_v6 import BOTH, DATE, EMPTY, QUEUE, SECTIONS_ROW, TRIMMED, basic_row
from tests.support.store.hand_log import content_of, open_log
from tests.support.store.streams import StreamSink

FOLDER = Path(__file__).parent / "log-v6"

Row = tuple[str, str, bytes, int, bytes]
"""Exchange, routing key, content, time in milliseconds, filter value."""


def read(stream: Stream) -> list[Row]:
    """Every row that is kept; contents say their offsets."""
    found: list[Row] = []
    offset = stream.first
    page = stream.at(offset)
    while page is not None:
        for row in range(max(offset, page.first), page.behind):
            message = page.message(row)
            assert message.content is not None
            time = page.time(row) // 1000
            address = (message.address.exchange, message.address.routing_key)
            found.append((*address, message.content, time, page.filter_value(row)))
        offset = page.behind
        page = stream.at(offset)
    return found


def row(offset: int, made: bytes, number: int, seconds: int, filter_value: bytes = b"") -> Row:
    """The expected row of a stream."""
    content = content_at(offset, -1, *columns_of(made))
    return "logs", f"key.{number}", content, DATE + 1000 * seconds, filter_value


def test_a_log_of_version_6_reads_as_it_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(FOLDER, folder)
    sink = StreamSink(BOTH, TRIMMED, EMPTY)
    log, report = open_log(str(folder), RealDisk(), sink)
    both, trimmed, empty = sink.streams
    assert report.clean
    assert [(queues, log.load(message)) for message, queues, _ in sink.messages] == [
        ([QUEUE], content_of(1, 100))
    ]
    assert (both.first, both.next) == (0, 12)
    assert read(both) == [
        *[row(n - 1, basic_row(n), n, n, b"group %d" % (n % 3)) for n in range(1, 10)],
        row(9, SECTIONS_ROW, 20, 20),
        row(10, basic_row(10), 10, 20),
        row(11, SECTIONS_ROW, 21, 21),
    ]
    assert (trimmed.first, trimmed.next) == (6, 12)
    assert read(trimmed) == [row(n - 1, basic_row(n), n, n) for n in range(7, 13)]
    assert (empty.first, empty.next, read(empty)) == (0, 0, [])
    log.close()


def test_check_finds_it_healthy(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(FOLDER, folder)
    report = check(str(folder), RealDisk())
    assert report.healthy
    assert (report.messages, report.by_queue) == (1, {QUEUE: 1})
    rows = {number: stream.rows for number, stream in report.streams.items()}
    assert rows == {BOTH: 12, TRIMMED: 6, EMPTY: 0}
