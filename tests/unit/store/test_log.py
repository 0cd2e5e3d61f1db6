"""The log without failures: batches, waiting, and the order of recovered messages."""

from pathlib import Path

import pytest

from broker.core.queues.queue import Queue
from broker.store.disk import RealDisk
from broker.store.file_commit import INLINE_WRITE_MAX
from broker.store.log import Log
from broker.store.repair.check import check
from broker.store.sync import DiskSyncer
from tests.support.store.hand_log import (
    DeferredWork,
    RecordingSink,
    RecordingWaiter,
    content_of,
    file_log,
    logged_queue,
    new_message,
    open_log,
    publish,
)

DISK = RealDisk()


def deferred_log(folder: Path) -> tuple[Log, DeferredWork]:
    deferred = DeferredWork()
    log, _ = open_log(str(folder), DISK, deferred=deferred)
    deferred.run_all()
    return log, deferred


def test_a_batch_is_durable_when_its_sync_has_returned_and_not_before(tmp_path: Path) -> None:
    log, deferred = deferred_log(tmp_path)
    queue = logged_queue(1)
    waiter = RecordingWaiter()
    publish(log, [queue], b"one")
    batch = log.batch
    log.wait(waiter)
    log.commit()
    assert (log.in_flight, log.batch) == (batch, batch + 1)
    assert waiter.durable == []
    deferred.step()
    assert waiter.durable == [batch]
    assert log.durable == batch
    log.release()


def test_records_appended_during_a_sync_are_the_next_batch(tmp_path: Path) -> None:
    log, deferred = deferred_log(tmp_path)
    queue = logged_queue(1)
    waiters = [RecordingWaiter(), RecordingWaiter(), RecordingWaiter()]
    publish(log, [queue], b"one")
    log.wait(waiters[0])
    log.commit()
    publish(log, [queue], b"two")
    log.wait(waiters[1])
    publish(log, [queue], b"three")
    log.wait(waiters[2])
    log.commit()
    assert len(deferred.pending) == 1, "one sync in flight"
    first = log.in_flight
    deferred.step()
    assert [waiter.durable for waiter in waiters] == [[first], [], []]
    assert log.in_flight == first + 1
    deferred.step()
    assert [waiter.durable for waiter in waiters] == [[first], [first + 1], [first + 1]]
    assert not log.in_flight
    log.release()


def test_wants_commit_is_asked_once_per_batch(tmp_path: Path) -> None:
    log, deferred = deferred_log(tmp_path)
    queue = logged_queue(1)
    asked: list[int] = []
    log.wants_commit = lambda: asked.append(log.batch)
    message = publish(log, [queue], b"one")
    log.append_settle(message, queue)
    log.append_definition({"kind": "x"})
    assert asked == [log.batch]
    log.commit()
    log.append_definition({"kind": "y"})
    assert asked == [log.batch - 1, log.batch]
    deferred.run_all()
    log.release()


def test_waiting_for_nothing_is_answered_at_once_with_a_batch_of_its_own(tmp_path: Path) -> None:
    log, _ = deferred_log(tmp_path)
    waiter = RecordingWaiter()
    batch = log.batch
    log.wait(waiter)
    assert waiter.durable == [batch]
    publish(log, [logged_queue(1)], b"later")
    assert log.batch > batch, "what comes later is not in a batch that was called durable"
    log.release()


def test_waiting_behind_a_sync_with_nothing_appended_is_answered_by_that_sync(tmp_path: Path) -> None:
    log, deferred = deferred_log(tmp_path)
    publish(log, [logged_queue(1)], b"one")
    log.commit()
    waiter = RecordingWaiter()
    log.wait(waiter)
    assert waiter.durable == []
    deferred.step()
    assert waiter.durable == [log.durable]
    log.release()


def test_a_large_batch_is_written_off_the_loop_and_then_synced(tmp_path: Path) -> None:
    log, deferred = deferred_log(tmp_path)
    queue = logged_queue(1)
    waiter = RecordingWaiter()
    message = publish(log, [queue], content_of(1, INLINE_WRITE_MAX + 1))
    path = tmp_path / log.filling.segment.name
    log.wait(waiter)
    log.commit()
    assert path.stat().st_size < message.offset + message.length, "not written yet"
    later = publish(log, [queue], content_of(2, 10))
    deferred.step()
    assert path.read_bytes()[message.offset : message.offset + message.length] == message.content
    assert waiter.durable == []
    deferred.run_all()
    assert len(waiter.durable) == 1
    message.content = later.content = None
    assert log.load(message) == content_of(1, INLINE_WRITE_MAX + 1)
    assert log.load(later) == content_of(2, 10)
    log.release()


def test_fan_out_is_one_record_and_each_queue_settles_for_itself(tmp_path: Path) -> None:
    queues = [logged_queue(number) for number in (1, 2, 3)]
    log, _ = open_log(str(tmp_path), DISK)
    message = publish(log, queues, content_of(1, 1000))
    other = publish(log, queues[:2], content_of(2, 10))
    log.append_settle(message, queues[1])
    log.append_settle(other, queues[0])
    log.append_settle(other, queues[1])
    log.commit()
    assert log.bytes_on_disk < 2000
    log.release()
    sink = RecordingSink()
    log, _ = open_log(str(tmp_path), DISK, sink)
    assert sink.held() == [(message.sequence, [1, 3])]
    assert (sink.messages[0][0].references, sink.messages[0][0].size) == (2, 1000)
    log.release()


def test_messages_of_deleted_queues_are_dropped_at_recovery(tmp_path: Path) -> None:
    queues = [logged_queue(number) for number in (1, 2)]
    log, _ = open_log(str(tmp_path), DISK)
    both = publish(log, queues, b"both")
    publish(log, queues[:1], b"gone")
    log.commit()
    log.release()
    sink = RecordingSink()
    sink.gone = {1}
    log, _ = open_log(str(tmp_path), DISK, sink)
    assert [taken for _, taken in sink.held()] == [[2], []]
    [recovered, dropped] = [message for message, _, _ in sink.messages]
    assert (recovered.sequence, recovered.references, dropped.references) == (both.sequence, 1, 0)
    log.append_settle(recovered, queues[1])
    log.commit()
    assert log.segment_count == 1, "nothing is needed of the old segment"
    log.release()


def test_a_clean_stop_keeps_delivery_counts_and_a_crash_does_not(tmp_path: Path) -> None:
    queues = [logged_queue(number) for number in (1, 2)]
    log, _ = open_log(str(tmp_path), DISK)
    seen = publish(log, queues, b"seen by 1")
    publish(log, queues, b"unseen")
    log.append_delivered(seen, queues[0])
    log.close()
    sink = RecordingSink()
    log, report = open_log(str(tmp_path), DISK, sink)
    assert report.clean
    assert [(m.sequence, q, r) for m, q, r in sink.messages] == [
        (1, [1], True),
        (1, [2], False),
        (2, [1, 2], False),
    ]
    assert [m.references for m, _, _ in sink.messages] == [2, 2, 2]
    log.release()
    sink = RecordingSink()
    log, report = open_log(str(tmp_path), DISK, sink)
    assert not report.clean
    assert [(m.sequence, q, r) for m, q, r in sink.messages] == [(1, [1, 2], True), (2, [1, 2], True)]
    log.release()


def test_sequences_and_batches_continue_after_a_restart(tmp_path: Path) -> None:
    queue = logged_queue(1)
    log, _ = open_log(str(tmp_path), DISK)
    first = publish(log, [queue], b"one")
    log.append_settle(first, queue)
    log.commit()
    durable = log.durable
    log.close()
    log, _ = open_log(str(tmp_path), DISK)
    assert log.durable > durable
    assert publish(log, [queue], b"two").sequence > first.sequence
    log.release()


def test_definitions_are_restored_in_order_from_checkpoint_and_changes(tmp_path: Path) -> None:
    topology: list[dict[str, object]] = []
    log, _ = open_log(
        str(tmp_path), DISK, definitions=topology.copy, segment_bytes=1000, first_segment_bytes=1000
    )
    for number in range(50):
        change: dict[str, object] = {"kind": "queue", "name": f"größe{number}", "arguments": {"x": [1, None]}}
        topology.append(change)
        log.append_definition(change)
        log.commit()
    assert log.segment_count < 10, "segments with nothing but definitions go"
    log.release()
    sink = RecordingSink()
    log, _ = open_log(str(tmp_path), DISK, sink)
    known = []
    for change in sink.changes:
        if change not in known:
            known.append(change)
    assert known == topology
    log.release()


def test_a_definition_that_is_no_json_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    log, _ = open_log(str(tmp_path), DISK)
    with pytest.raises(TypeError):
        log.append_definition({"kind": "queue", "arguments": b"raw"})
    publish(log, [logged_queue(1)], b"one")
    log.commit()
    log.release()
    sink = RecordingSink()
    log, _ = open_log(str(tmp_path), DISK, sink)
    assert (len(sink.messages), sink.changes) == (1, [])
    log.release()


def test_the_log_ignores_operations_on_messages_it_never_logged(tmp_path: Path) -> None:
    log, _ = open_log(str(tmp_path), DISK)
    queue = logged_queue(1)
    message = new_message(b"transient")
    log.append_settle(message, queue)
    log.append_delivered(message, queue)
    log.forget(message, queue)
    assert log.filling.is_empty()
    log.release()


def test_the_latency_of_the_first_sync_is_not_the_time_since_the_machine_was_started(tmp_path: Path) -> None:
    now = 1_000_000.0
    log = file_log(str(tmp_path), DISK, DiskSyncer(DISK), lambda: now, list)
    log.recover(RecordingSink())
    assert (sum(log.sync_latency.counts), log.sync_latency.sum) == (1, 0.0)
    publish(log, [logged_queue(1)], bytes(100))
    log.commit()
    log.close()
    assert (sum(log.sync_latency.counts), log.sync_latency.sum) == (3, 0.0)


def test_sync_latency_and_sizes_are_counted(tmp_path: Path) -> None:
    log, deferred = deferred_log(tmp_path)
    before = sum(log.sync_latency.counts)
    publish(log, [logged_queue(1)], bytes(100))
    assert log.unsynced_bytes > 100
    log.commit()
    assert log.unsynced_bytes > 100
    deferred.run_all()
    assert log.unsynced_bytes == 0
    assert sum(log.sync_latency.counts) == before + 1
    log.release()


@pytest.fixture(name="queues", scope="module")
def many_queues() -> list[Queue]:
    """More than fit."""
    return [logged_queue(number) for number in range(1, 65_538)]


def opened(folder: Path, sink: RecordingSink | None = None) -> Log:
    """A log with segments of a few such records."""
    return open_log(str(folder), DISK, sink, segment_bytes=1 << 20, first_segment_bytes=1 << 20)[0]


@pytest.mark.parametrize("count", [65_534, 65_535, 65_536, 65_537])
def test_a_message_may_be_in_any_number_of_queues(tmp_path: Path, queues: list[Queue], count: int) -> None:
    log = opened(tmp_path)
    plain = publish(log, queues[:count], b"plain")
    dated = new_message(b"dated", date=1_700_000_000_000)
    log.append_message(dated, queues[:count])
    log.append_settle(dated, queues[count - 1])
    log.commit()
    log.release()
    assert check(str(tmp_path), DISK).healthy
    sink = RecordingSink()
    log = opened(tmp_path, sink)
    numbers = [queue.number for queue in queues[:count]]
    assert sink.held() == [(plain.sequence, numbers), (dated.sequence, numbers[:-1])]
    assert [log.load(message) for message, _, _ in sink.messages] == [b"plain", b"dated"]
    log.release()


def test_a_message_in_very_many_queues_is_copied_forward_with_them(
    tmp_path: Path, queues: list[Queue]
) -> None:
    log = opened(tmp_path)
    kept = publish(log, queues, b"kept")
    log.append_settle(kept, queues[0])
    log.commit()
    home = log.segments.get(kept.segment)
    for number in range(8):
        passing = publish(log, [queues[0]], content_of(number, 600_000))
        log.commit()
        log.append_settle(passing, queues[0])
        if log.filling.segment is not home:
            log.space.victim = home
    log.commit()
    assert home is not None
    assert kept.segment > home.number
    log.release()
    sink = RecordingSink()
    log = opened(tmp_path, sink)
    assert sink.held() == [(kept.sequence, [queue.number for queue in queues[1:]])]
    log.release()
    log.release()


def test_a_log_of_tiny_segments_is_closed_with_its_last_batch(tmp_path: Path) -> None:
    """Each batch begins a segment, whose predecessor may go: the record of that is no batch of its own."""
    deferred = DeferredWork()
    log, _ = open_log(str(tmp_path), DISK, deferred=deferred, segment_bytes=1, first_segment_bytes=1)
    deferred.run_all()
    for number in range(3):
        publish(log, [logged_queue(1)], content_of(number, 300))
        log.commit()
    before = log.batch
    log.close()
    assert log.batch == before + 1
