"""The log while everything is well: batches, waiting, order, memory, space."""

import itertools
import os
import random
from pathlib import Path
from typing import final

import pytest

from broker.store.disk import RealDisk
from broker.store.log import Log
from broker.store.segmented_commit import INLINE_WRITE_MAX
from tests.simulation.sim_disk import SimDisk
from tests.storing import (
    Deferred,
    Sink,
    Waiter,
    content_of,
    logged_queue,
    new_message,
    open_log,
    publish,
)

DISK = RealDisk()


def deferred_log(folder: Path) -> tuple[Log, Deferred]:
    deferred = Deferred()
    log, _ = open_log(str(folder), DISK, deferred=deferred)
    deferred.run_all()
    return log, deferred


def test_a_batch_is_durable_when_its_sync_has_returned_and_not_before(tmp_path: Path) -> None:
    log, deferred = deferred_log(tmp_path)
    queue = logged_queue(1)
    waiter = Waiter()
    publish(log, [queue], b"one")
    batch = log.batch
    log.wait(waiter)
    log.commit()
    assert (log.in_flight, log.batch) == (batch, batch + 1)
    assert waiter.durable == []
    deferred.step()
    assert waiter.durable == [batch]
    assert log.durable == batch
    log.let_go()


def test_what_is_appended_during_a_sync_is_the_next_batch_and_follows_by_itself(tmp_path: Path) -> None:
    log, deferred = deferred_log(tmp_path)
    queue = logged_queue(1)
    waiters = [Waiter(), Waiter(), Waiter()]
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
    log.let_go()


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
    log.let_go()


def test_waiting_for_nothing_is_answered_at_once_with_a_batch_of_its_own(tmp_path: Path) -> None:
    log, _ = deferred_log(tmp_path)
    waiter = Waiter()
    batch = log.batch
    log.wait(waiter)
    assert waiter.durable == [batch]
    publish(log, [logged_queue(1)], b"later")
    assert log.batch > batch, "what comes later is not in a batch that was called durable"
    log.let_go()


def test_waiting_behind_a_sync_with_nothing_appended_is_answered_by_that_sync(tmp_path: Path) -> None:
    log, deferred = deferred_log(tmp_path)
    publish(log, [logged_queue(1)], b"one")
    log.commit()
    waiter = Waiter()
    log.wait(waiter)
    assert waiter.durable == []
    deferred.step()
    assert waiter.durable == [log.durable]
    log.let_go()


def test_a_large_batch_is_written_off_the_loop_and_then_synced(tmp_path: Path) -> None:
    log, deferred = deferred_log(tmp_path)
    queue = logged_queue(1)
    waiter = Waiter()
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
    log.let_go()


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
    log.let_go()
    sink = Sink()
    log, _ = open_log(str(tmp_path), DISK, sink)
    assert sink.held() == [(message.sequence, [1, 3])]
    assert (sink.messages[0][0].references, sink.messages[0][0].size) == (2, 1000)
    log.let_go()


def test_messages_of_queues_that_are_gone_are_dropped_at_recovery(tmp_path: Path) -> None:
    queues = [logged_queue(number) for number in (1, 2)]
    log, _ = open_log(str(tmp_path), DISK)
    both = publish(log, queues, b"both")
    publish(log, queues[:1], b"gone")
    log.commit()
    log.let_go()
    sink = Sink()
    sink.gone = {1}
    log, _ = open_log(str(tmp_path), DISK, sink)
    assert [taken for _, taken in sink.held()] == [[2], []]
    [recovered, dropped] = [message for message, _, _ in sink.messages]
    assert (recovered.sequence, recovered.references, dropped.references) == (both.sequence, 1, 0)
    log.append_settle(recovered, queues[1])
    log.commit()
    assert log.segment_count == 1, "nothing is needed of the old segment"
    log.let_go()


def test_a_clean_stop_remembers_what_was_delivered_and_a_crash_does_not(tmp_path: Path) -> None:
    queues = [logged_queue(number) for number in (1, 2)]
    log, _ = open_log(str(tmp_path), DISK)
    seen = publish(log, queues, b"seen by 1")
    publish(log, queues, b"unseen")
    log.append_delivered(seen, queues[0])
    log.close()
    sink = Sink()
    log, report = open_log(str(tmp_path), DISK, sink)
    assert report.clean
    assert [(m.sequence, q, r) for m, q, r in sink.messages] == [
        (1, [1], True),
        (1, [2], False),
        (2, [1, 2], False),
    ]
    assert [m.references for m, _, _ in sink.messages] == [2, 2, 2]
    log.let_go()
    sink = Sink()
    log, report = open_log(str(tmp_path), DISK, sink)
    assert not report.clean
    assert [(m.sequence, q, r) for m, q, r in sink.messages] == [(1, [1, 2], True), (2, [1, 2], True)]
    log.let_go()


def test_sequences_and_batches_go_on_after_a_restart(tmp_path: Path) -> None:
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
    log.let_go()


def test_content_beyond_the_budget_leaves_memory_once_it_is_durable(tmp_path: Path) -> None:
    queue = logged_queue(1)
    deferred = Deferred()
    log, _ = open_log(str(tmp_path), DISK, deferred=deferred, memory_budget=1000)
    deferred.run_all()
    early = [publish(log, [queue], content_of(n, 300)) for n in range(1, 4)]
    log.commit()
    deferred.run_all()
    late = [publish(log, [queue], content_of(n, 300)) for n in range(4, 7)]
    log.commit()
    assert all(message.content is not None for message in late), "not on disk yet"
    deferred.run_all()
    assert [message.content is None for message in early + late] == [False] * 3 + [True] * 3
    assert log.content_bytes == 900
    for number, message in enumerate(late, 4):
        assert log.load(message) == content_of(number, 300)
        assert message.content is None
    for message in early + late:
        log.append_settle(message, queue)
    assert log.content_bytes == 0
    log.let_go()


@final
class CountingDisk(SimDisk):
    """Counts reads."""

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self.reads = 0

    def read(self, fd: int, length: int, offset: int) -> bytes:
        self.reads += 1
        return super().read(fd, length, offset)


def test_draining_in_order_reads_in_large_pieces() -> None:
    queue = logged_queue(1)
    disk = CountingDisk()
    log, _ = open_log("/log", disk, segment_bytes=1 << 24, first_segment_bytes=1 << 24)
    for number in range(1, 1001):
        publish(log, [queue], content_of(number, 1000))
    log.commit()
    log.let_go()
    sink = Sink()
    log, _ = open_log("/log", disk, sink, segment_bytes=1 << 24, first_segment_bytes=1 << 24)
    disk.reads = 0
    for message, _, _ in sink.messages:
        assert log.load(message) == content_of(message.sequence, 1000)
    assert disk.reads <= 6
    log.let_go()


def test_settled_segments_are_deleted(tmp_path: Path) -> None:
    queue = logged_queue(1)
    log, _ = open_log(str(tmp_path), DISK, segment_bytes=4096, first_segment_bytes=4096)
    messages = [publish(log, [queue], content_of(number, 500)) for number in range(1, 2)]
    for number in range(2, 200):
        messages.append(publish(log, [queue], content_of(number, 500)))
        log.append_settle(messages[-2], queue)
        log.commit()
    assert log.segment_count <= 3
    files = [name for name in os.listdir(tmp_path) if name.endswith(".log")]
    assert len(files) == log.segment_count
    assert log.bytes_on_disk <= 3 * 5000
    log.let_go()


def test_one_message_that_stays_does_not_keep_everything(tmp_path: Path) -> None:
    queue = logged_queue(1)
    log, _ = open_log(str(tmp_path), DISK, segment_bytes=4096, first_segment_bytes=4096)
    stays = publish(log, [queue], content_of(1, 500))
    previous = publish(log, [queue], content_of(2, 500))
    for number in range(3, 400):
        message = publish(log, [queue], content_of(number, 500))
        log.append_settle(previous, queue)
        previous = message
        log.commit()
    assert log.bytes_on_disk <= 6 * 4096
    log.let_go()
    sink = Sink()
    log, _ = open_log(str(tmp_path), DISK, sink)
    assert sink.held() == [(stays.sequence, [1]), (previous.sequence, [1])]
    for number, (message, _, _) in zip((1, 399), sink.messages, strict=True):
        assert log.load(message) == content_of(number, 500)
    log.let_go()


def test_settles_that_a_full_old_segment_needs_outlive_their_own_segment(tmp_path: Path) -> None:
    """A segment of messages that stay must not keep every later segment, nor bring settled messages back."""
    queue = logged_queue(1)
    log, _ = open_log(str(tmp_path), DISK, segment_bytes=4096, first_segment_bytes=4096)
    old = [publish(log, [queue], content_of(number, 500)) for number in range(1, 8)]
    log.commit()
    log.append_settle(old[0], queue)
    previous = publish(log, [queue], content_of(8, 500))
    for number in range(9, 300):
        message = publish(log, [queue], content_of(number, 500))
        log.append_settle(previous, queue)
        previous = message
        log.commit()
    assert log.bytes_on_disk <= 8 * 4096
    log.let_go()
    sink = Sink()
    log, _ = open_log(str(tmp_path), DISK, sink)
    assert [message.sequence for message, _, _ in sink.messages] == [2, 3, 4, 5, 6, 7, 299]
    log.let_go()


def test_order_survives_copying(tmp_path: Path) -> None:
    queue = logged_queue(1)
    log, _ = open_log(str(tmp_path), DISK, segment_bytes=4096, first_segment_bytes=4096, memory_budget=0)
    kept = []
    for number in range(1, 400):
        message = publish(log, [queue], content_of(number, 300))
        if number % 20 == 0:
            kept.append(message)
        else:
            log.append_settle(message, queue)
        log.commit()
    pairs = itertools.pairwise(kept)
    assert any(older.segment > newer.segment for older, newer in pairs), "copies lie after newer ones"
    assert all(message.content is None for message in kept)
    assert [log.load(message) for message in kept] == [content_of(n, 300) for n in range(20, 400, 20)]
    log.let_go()
    sink = Sink()
    log, _ = open_log(str(tmp_path), DISK, sink)
    assert [message.sequence for message, _, _ in sink.messages] == list(range(20, 400, 20))
    log.let_go()


def test_the_first_segment_is_small_and_the_next_ones_grow(tmp_path: Path) -> None:
    queue = logged_queue(1)
    log, _ = open_log(str(tmp_path), DISK, segment_bytes=16384, first_segment_bytes=2048)
    for number in range(1, 80):
        publish(log, [queue], content_of(number, 500))
        log.commit()
    sizes = [segment.good for segment in log.segments.all()]
    assert 2048 <= sizes[0] < 4096 <= sizes[1] < 8192 <= sizes[2] < 16384 <= sizes[3]
    log.let_go()


def test_definitions_come_back_in_order_from_checkpoint_and_changes(tmp_path: Path) -> None:
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
    log.let_go()
    sink = Sink()
    log, _ = open_log(str(tmp_path), DISK, sink)
    known = []
    for change in sink.changes:
        if change not in known:
            known.append(change)
    assert known == topology
    log.let_go()


def test_a_definition_that_is_no_json_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    log, _ = open_log(str(tmp_path), DISK)
    with pytest.raises(TypeError):
        log.append_definition({"kind": "queue", "arguments": b"raw"})
    publish(log, [logged_queue(1)], b"one")
    log.commit()
    log.let_go()
    sink = Sink()
    log, _ = open_log(str(tmp_path), DISK, sink)
    assert (len(sink.messages), sink.changes) == (1, [])
    log.let_go()


def test_a_message_that_was_not_logged_is_none_of_the_log_s_business(tmp_path: Path) -> None:
    log, _ = open_log(str(tmp_path), DISK)
    queue = logged_queue(1)
    message = new_message(b"transient")
    log.append_settle(message, queue)
    log.append_delivered(message, queue)
    log.forget(message)
    assert log.is_empty()
    log.let_go()


def test_sync_latency_and_sizes_are_counted(tmp_path: Path) -> None:
    log, deferred = deferred_log(tmp_path)
    before = log.sync_latency.count
    publish(log, [logged_queue(1)], bytes(100))
    assert log.unsynced_bytes > 100
    log.commit()
    assert log.unsynced_bytes > 100
    deferred.run_all()
    assert log.unsynced_bytes == 0
    assert log.sync_latency.count == before + 1
    log.let_go()
