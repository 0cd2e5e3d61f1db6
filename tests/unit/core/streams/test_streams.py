"""Streams in the core: on a disk that is a list, and in time that passes by hand."""

import pytest

from broker.core.arguments.consumer import LAST, BrowseRange
from broker.core.entries.cursor import LOAD_COST, LOAD_SHIFT, SCAN_BUDGET
from broker.core.errors import PreconditionFailed, StoreFailed, Unsupported
from broker.core.queues.attach import detach
from broker.core.queues.queue import Queue
from broker.core.streams.list import StreamEntry
from broker.core.streams.offsets import StreamExtent, stream_extent
from broker.core.streams.progress import NAMES_MAX
from broker.core.streams.stream import QueueStream, open_stream, stream_of
from tests.support.core.stream_vhost import PAGE, ROW_BYTES, Reader, StreamBench
from tests.support.core.timed_vhost import VhostBench

DAY_MS = 86_400_000


def streams_of(queue: Queue) -> list[QueueStream]:
    """Return the stream of a queue, if any, as a list."""
    stream = stream_of(queue)
    return [] if stream is None else [stream]


def test_rows_are_read_after_their_sync() -> None:
    bench = StreamBench()
    reader = Reader(bench, bench.q)
    bench.publish(count=3)
    bench.run()
    assert reader.offsets == []
    assert bench.q.ready == 3
    bench.disk.sync()
    bench.run()
    assert reader.offsets == [0, 1, 2]
    assert (bench.q.ready, bench.q.ready_bytes) == (3, 300)


def test_persistent_or_not_messages_are_rows_and_no_records() -> None:
    bench = StreamBench()
    bench.publish(persistent=True)
    bench.publish(persistent=False)
    assert len(bench.disk.rows) == 2
    assert bench.lists.enqueued == []


def test_publishing_to_a_stream_fails_after_a_store_failure() -> None:
    bench = StreamBench()
    bench.store.failure = "the disk is full"
    with pytest.raises(StoreFailed):
        bench.publish(persistent=False)
    assert bench.disk.rows == []


def test_pages_are_read_once_and_let_go_of() -> None:
    bench = StreamBench()
    bench.append(50)
    reader = Reader(bench, bench.q)
    bench.run()
    assert reader.offsets == list(range(50))
    assert bench.disk.reads <= 2 * 5 + 1
    held = [entry for entry in reader.deliveries if isinstance(entry, StreamEntry) and entry.page is not None]
    assert held in ([], [reader.deliveries[-1]])


def test_removed_rows_are_skipped() -> None:
    bench = StreamBench()
    bench.append(25)
    reader = Reader(bench, bench.q, prefetch=5)
    bench.run()
    bench.disk.kept = 20
    reader.settle(*range(5))
    bench.run()
    reader.settle(*reader.offsets[5:])
    bench.run()
    assert reader.offsets[:10] == list(range(10))  # the rest of what was in memory
    assert reader.offsets[10:15] == list(range(20, 25))


def test_a_snapshot_ends_with_the_last_row_before_it() -> None:
    bench = StreamBench()
    bench.append(5)
    bench.publish(count=2)  # not on disk yet
    reader = Reader(bench, bench.q, BrowseRange(snapshot=True))
    bench.append(3)
    assert reader.offsets == list(range(5))
    assert reader.ended


def test_reading_from_the_last_message_of_an_empty_stream_begins_at_the_next() -> None:
    bench = StreamBench()
    reader = Reader(bench, bench.q, StreamExtent(LAST))
    bench.append(2)
    assert reader.offsets == [0, 1]


def test_the_age_limit_is_applied_every_ten_seconds() -> None:
    bench = StreamBench(max_age="2D")
    began = bench.clock.date()
    assert bench.disk.trims[-1] == (0, (began - 2 * DAY_MS) * 1000)
    count = len(bench.disk.trims)
    bench.clock.advance(29_999)
    assert len(bench.disk.trims) == count + 2
    assert bench.disk.trims[-1] == (0, (began + 20_000 - 2 * DAY_MS) * 1000)
    bench.vhost.declarations.delete_queue("q", False, False)
    assert bench.disk.dropped
    bench.clock.advance(60_000)
    assert len(bench.disk.trims) == count + 2


def test_an_age_may_be_longer_than_time() -> None:
    bench = StreamBench(max_age="99999999999999999999Y")
    bench.append(3)
    bench.clock.advance(60_000)
    assert {oldest for _, oldest in bench.disk.trims} == {0}


def test_the_size_limit_is_applied_at_each_publish() -> None:
    bench = StreamBench(max_length_bytes=1000)
    bench.append(10)
    count = len(bench.disk.trims)
    bench.append(1)
    assert bench.disk.trims[count:] == [(1000, 0)]


def test_how_far_consumers_are_is_told_the_log_once_a_second() -> None:
    bench = StreamBench()
    bench.append(10)
    reader = Reader(bench, bench.q, StreamExtent(offset=0, name="mine"), prefetch=4)
    bench.run()
    before = len(bench.lists.changes)
    reader.settle(0, 1, 3)
    bench.clock.advance(500)
    reader.settle(2)
    assert len(bench.lists.changes) == before
    bench.run()
    bench.clock.advance(501)
    assert bench.lists.changes[before:][0]["offsets"] == {"mine": [4]}
    bench.clock.advance(5_000)
    assert len(bench.lists.changes) == before + 1
    reader.settle(4)
    detach(bench.q, reader.consumer, [])
    assert bench.lists.changes[-1]["offsets"] == {"mine": [5]}


def test_the_later_of_two_consumers_with_the_same_name_counts() -> None:
    bench = StreamBench()
    bench.append(10)
    first = Reader(bench, bench.q, StreamExtent(offset=0, name="mine"))
    second = Reader(bench, bench.q, StreamExtent(offset=0, name="mine"))
    bench.run()
    first.settle(*range(10))
    second.settle(0)
    detach(bench.q, first.consumer, [])
    detach(bench.q, second.consumer, [])
    assert bench.stream.offsets.kept == {"mine": [1]}


def test_a_consumer_back_before_its_old_detach_gets_no_settled_row_again() -> None:
    bench = StreamBench()
    bench.append(10)
    lost = Reader(bench, bench.q, StreamExtent(offset=0, name="mine"), prefetch=5)
    bench.run()
    lost.settle(0, 1, 2)
    back = Reader(bench, bench.q, StreamExtent(offset=0, name="mine"), prefetch=3)
    detach(bench.q, lost.consumer, [])
    bench.run()
    assert back.offsets == [3, 4, 5]


def test_consumer_offsets_are_logged_after_the_log_recovers() -> None:
    bench = StreamBench()
    bench.append(10)
    reader = Reader(bench, bench.q, StreamExtent(offset=0, name="mine"))
    bench.run()
    reader.settle(0, 1)
    bench.store.failure = "the disk is full"
    detach(bench.q, reader.consumer, [])
    before = len(bench.lists.changes)
    bench.clock.advance(5_000)
    bench.store.failure = ""
    bench.clock.advance(1_001)
    (change,) = bench.lists.changes[before:]
    assert change["offsets"] == {"mine": [2]}


def test_a_consumer_offset_may_be_forgotten_before_it_is_logged() -> None:
    bench = StreamBench()
    bench.append(10)
    reader = Reader(bench, bench.q, StreamExtent(offset=0, name="mine"))
    bench.run()
    reader.settle(*range(10))
    assert bench.stream.offsets.forget("mine")
    assert not bench.stream.offsets.forget("mine")
    bench.clock.advance(1_001)
    detach(bench.q, reader.consumer, [])
    assert bench.stream.offsets.kept == {}


def test_pages_read_from_disk_count_against_the_budget_of_a_turn() -> None:
    bench = StreamBench()
    bench.append(2_000)
    context = Reader(bench, bench.q, StreamExtent(offset=0, values=(b"none",))).consumer.context
    assert context.get_next_available_entry() is None
    assert context.more
    page_cost = LOAD_COST + (PAGE * ROW_BYTES >> LOAD_SHIFT)
    assert context.last.order <= (SCAN_BUDGET // page_cost + 1) * PAGE
    plain = Reader(bench, bench.q, StreamExtent(offset=0), prefetch=2_000)
    while not plain.deliveries:
        assert bench.scheduler.step(10_000)
    assert len(plain.deliveries) <= (SCAN_BUDGET // page_cost + 1) * PAGE


def test_a_stream_keeps_a_thousand_names() -> None:
    bench = StreamBench()
    bench.stream.offsets.restore({f"c{number}": [0] for number in range(NAMES_MAX)})
    Reader(bench, bench.q, StreamExtent(name="c7"))
    with pytest.raises(PreconditionFailed, match="keeps the offsets of 1000 consumers, and none of 'new'"):
        Reader(bench, bench.q, StreamExtent(name="new"))


def test_malformed_offsets_are_damage() -> None:
    bench = StreamBench()
    wrong: tuple[object, ...] = ([], {"mine": 5}, {"mine": ["5"]})
    for found in wrong:
        with pytest.raises(ValueError, match="no table of lists"):
            bench.stream.offsets.restore(found)


def test_definitions_bring_back_the_stream_and_the_names() -> None:
    bench = StreamBench()
    bench.append(3)
    bench.stream.offsets.kept = {"mine": [2]}
    bench.vhost.note_queue(bench.q)
    again = VhostBench(bench.lists)
    for change in bench.lists.changes:
        again.broker.apply(dict(change))
    queue = again.vhost.topology.queues["q"]
    assert streams_of(queue) == []  # the valid definition is not known yet
    again.broker.open_streams()
    (stream,) = streams_of(queue)
    assert stream.partitions == [bench.disk]
    assert stream.offsets.kept == {"mine": [2]}
    assert queue.ready == 3
    open_stream(queue, again.vhost)
    assert streams_of(queue) == [stream]


def test_purges_are_refused() -> None:
    bench = StreamBench()
    with pytest.raises(Unsupported, match="queue 'q' in vhost '/' is a stream and cannot be purged"):
        bench.vhost.declarations.purge_queue("q")


@pytest.mark.parametrize(("offset", "since"), [("1s", 999_000), ("2m", 880_000), ("1Y", 0)])
def test_an_interval_counts_back_from_now(offset: str, since: int) -> None:
    extent = stream_extent({"x-stream-offset": offset}, "queue 'q'", 1_000_000)
    assert extent.since == since


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("x-stream-filter", [1]),
        ("x-stream-filter", ""),
        ("x-stream-match-unfiltered", "yes"),
        ("x-stream-consumer-name", 5),
        ("x-stream-offset", 2**63),
        ("x-stream-offset", -1),
        ("x-stream-offset", 1.5),
    ],
)
def test_arguments_that_make_no_sense_are_named(argument: str, value: object) -> None:
    with pytest.raises(PreconditionFailed, match=f"invalid arg '{argument}' for queue 'q'"):
        stream_extent({argument: value}, "queue 'q'", 0)
