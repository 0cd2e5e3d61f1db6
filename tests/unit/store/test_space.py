"""Disk space and memory of the log: new and deleted segments, copies, content read again."""

import itertools
import os
import random
from pathlib import Path
from typing import final

from broker.store.disk import RealDisk
from tests.simulation.sim_disk import SimDisk
from tests.support.store.hand_log import (
    DeferredWork,
    RecordingSink,
    content_of,
    logged_queue,
    open_log,
    publish,
)

DISK = RealDisk()


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
    log.release()


def test_a_single_old_message_does_not_keep_all_segments(tmp_path: Path) -> None:
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
    log.release()
    sink = RecordingSink()
    log, _ = open_log(str(tmp_path), DISK, sink)
    assert sink.held() == [(stays.sequence, [1]), (previous.sequence, [1])]
    for number, (message, _, _) in zip((1, 399), sink.messages, strict=True):
        assert log.load(message) == content_of(number, 500)
    log.release()


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
    log.release()
    sink = RecordingSink()
    log, _ = open_log(str(tmp_path), DISK, sink)
    assert [message.sequence for message, _, _ in sink.messages] == [2, 3, 4, 5, 6, 7, 299]
    log.release()


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
    log.release()
    sink = RecordingSink()
    log, _ = open_log(str(tmp_path), DISK, sink)
    assert [message.sequence for message, _, _ in sink.messages] == list(range(20, 400, 20))
    log.release()


def test_the_first_segment_is_small_and_the_next_ones_grow(tmp_path: Path) -> None:
    queue = logged_queue(1)
    log, _ = open_log(str(tmp_path), DISK, segment_bytes=16384, first_segment_bytes=2048)
    for number in range(1, 80):
        publish(log, [queue], content_of(number, 500))
        log.commit()
    sizes = [segment.written for segment in log.segments.all()]
    assert 2048 <= sizes[0] < 4096 <= sizes[1] < 8192 <= sizes[2] < 16384 <= sizes[3]
    log.release()


def test_content_beyond_the_budget_leaves_memory_once_it_is_durable(tmp_path: Path) -> None:
    queue = logged_queue(1)
    deferred = DeferredWork()
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
    log.release()


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
    log.release()
    sink = RecordingSink()
    log, _ = open_log("/log", disk, sink, segment_bytes=1 << 24, first_segment_bytes=1 << 24)
    disk.reads = 0
    for message, _, _ in sink.messages:
        assert log.load(message) == content_of(message.sequence, 1000)
    assert disk.reads <= 6
    log.release()
