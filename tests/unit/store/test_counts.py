"""Delivery counts in the log: exact after a crash, and written late while the disk is full."""

import itertools
from pathlib import Path

from broker.store.counts import COUNT_BYTES, Counts
from broker.store.disk import RealDisk
from broker.store.log import Log
from broker.store.repair.check import check, repair
from broker.store.segment import Segment, SegmentTable
from broker.store.space import WAITING_BYTES_MAX, WAITING_MAX
from tests.support.store.bad_disk import FOLDER, BadDisk, fill_disk, log_on_bad_disk, make_durable
from tests.support.store.hand_log import (
    DeferredWork,
    RecordingSink,
    content_of,
    logged_queue,
    new_message,
    open_log,
    publish,
)
from tests.support.store.small_log import batch_ends

DISK = RealDisk()
Q1 = logged_queue(1)
Q2 = logged_queue(2)


def reopened(folder: Path) -> tuple[Log, RecordingSink]:
    sink = RecordingSink()
    log, _ = open_log(str(folder), DISK, sink, segment_bytes=4096, first_segment_bytes=4096)
    return log, sink


def small_log(folder: Path) -> Log:
    log, _ = open_log(str(folder), DISK, segment_bytes=4096, first_segment_bytes=4096)
    return log


def test_the_last_count_of_each_queue_is_restored_after_a_crash(tmp_path: Path) -> None:
    log = small_log(tmp_path)
    both = publish(log, [Q1, Q2], b"both")
    settled = publish(log, [Q1, Q2], b"settled by 1")
    publish(log, [Q1], b"never given out")
    for count in (1, 2, 3):
        log.append_count(both, Q1, count)
        log.commit()
    log.append_count(both, Q2, 1)
    log.append_count(settled, Q1, 7)
    log.append_count(settled, Q2, 8)
    log.append_settle(settled, Q1)
    log.commit()
    log.release()
    log, sink = reopened(tmp_path)
    assert sink.counts == {(1, 1): 3, (1, 2): 1, (2, 2): 8}
    log.release()


def test_a_count_that_was_not_committed_is_not_there(tmp_path: Path) -> None:
    log = small_log(tmp_path)
    message = publish(log, [Q1], b"x")
    log.append_count(message, Q1, 1)
    log.commit()
    log.append_count(message, Q1, 2)
    log.release()
    log, sink = reopened(tmp_path)
    assert sink.counts == {(1, 1): 1}
    log.release()


def test_counts_go_with_messages_that_are_copied_forward(tmp_path: Path) -> None:
    log = small_log(tmp_path)
    kept = []
    for number in range(1, 400):
        message = publish(log, [Q1, Q2], content_of(number, 300))
        log.append_count(message, Q1, number)
        if number % 20 == 0:
            kept.append(message)
            log.append_count(message, Q2, 2)
        else:
            log.append_settle(message, Q1)
            log.append_settle(message, Q2)
        log.commit()
    assert all(log.segments.get(n) is None for n in range(1, 4))
    assert any(older.segment > newer.segment for older, newer in itertools.pairwise(kept)), "some are copies"
    log.release()
    log, sink = reopened(tmp_path)
    assert sink.counts == {(n, q): n if q == 1 else 2 for n in range(20, 400, 20) for q in (1, 2)}
    log.release()


def test_counting_for_ever_takes_no_more_space_than_counting_once(tmp_path: Path) -> None:
    """Messages that stay, in a full old segment, are given out again and again."""
    log = small_log(tmp_path)
    stay = [publish(log, [Q1], content_of(number, 500)) for number in range(1, 21)]
    log.commit()
    for count in range(1, 200):
        for message in stay:
            log.append_count(message, Q1, count)
        log.commit()
    assert log.bytes_on_disk < 40_000 < 199 * 20 * COUNT_BYTES
    assert sum(segment.count_bytes for segment in log.segments.all()) == 20 * COUNT_BYTES
    log.release()
    log, sink = reopened(tmp_path)
    assert sink.counts == {(number, 1): 199 for number in range(1, 21)}
    log.release()


def test_counts_of_settled_messages_are_forgotten(tmp_path: Path) -> None:
    log = small_log(tmp_path)
    for number in range(1, 300):
        message = publish(log, [Q1, Q2], content_of(number, 100))
        log.append_count(message, Q1, 1)
        log.append_count(message, Q2, 1)
        log.append_settle(message, Q1)
        log.append_settle(message, Q2)
        log.commit()
    deleted = publish(log, [Q1], b"of a queue that is deleted")
    log.append_count(deleted, Q1, 1)
    log.forget(deleted, Q1)
    assert log.counts.first == {}
    assert sum(segment.count_bytes for segment in log.segments.all()) == 0
    assert log.segment_count <= 3
    log.release()


def test_unlogged_messages_have_no_counts(tmp_path: Path) -> None:
    log = small_log(tmp_path)
    before = log.unsynced_bytes
    log.append_count(new_message(b"transient"), Q1, 1)
    assert log.unsynced_bytes == before
    log.release()


def damage_third_batch(folder: Path) -> None:
    """Damage the checksum of the batch with the latter of two counts."""
    path = folder / "0000000001.log"
    data = bytearray(path.read_bytes())
    data[batch_ends(folder)[2] + 40] ^= 1
    path.write_bytes(data)


def test_check_says_which_counts_a_repair_loses(tmp_path: Path) -> None:
    log = small_log(tmp_path)
    first = publish(log, [Q1], b"one")
    publish(log, [Q1], b"two")
    log.append_count(first, Q1, 1)
    log.commit()
    log.append_count(first, Q1, 2)
    log.commit()
    publish(log, [Q1], b"three")
    log.commit()
    log.release()
    damage_third_batch(tmp_path)
    report = check(str(tmp_path), DISK)
    assert (report.loss.messages, report.loss.counts) == (0, 1)
    assert "messages with too low a delivery count, or without annotations: at least 1" in report.lines()
    repair(str(tmp_path), DISK)
    assert check(str(tmp_path), DISK).healthy
    log, sink = reopened(tmp_path)
    assert [message.sequence for message, _, _ in sink.messages] == [1, 2, 3]
    assert sink.counts == {(1, 1): 1}
    log.release()


def test_the_last_delivery_count_applies_even_if_it_is_less() -> None:
    table = SegmentTable()
    older, newer = Segment(1, 0), Segment(2, 0)
    table.add(older)
    table.add(newer)
    counts = Counts(table)

    def known() -> dict[int, tuple[int, bytes]]:
        return {queue: (count.value, count.annotations) for queue, count in counts.by_queue(5).items()}

    counts.note(5, 1, 3, b"", older)
    counts.note(5, 1, 2, b"", newer)
    assert known() == {1: (2, b"")}
    assert (older.count_bytes, newer.count_bytes) == (0, 25)
    counts.note(5, 1, 2, b"abc", older)
    assert (older.count_bytes, newer.count_bytes) == (32, 0)
    counts.note(5, 1, 3, b"", newer)
    assert known() == {1: (3, b"")}
    assert (older.count_bytes, newer.count_bytes) == (0, 25)
    counts.note(5, 9, 1, b"d", older)
    counts.settle(5, 1)
    counts.settle(5, 1)
    assert known() == {9: (1, b"d")}
    assert (older.count_bytes, newer.count_bytes) == (30, 0)


def test_the_last_annotations_are_recovered_and_copied_forward_with_the_count(tmp_path: Path) -> None:
    """Several records of a segment have the same count: the last record is valid."""
    log = small_log(tmp_path)
    stays = publish(log, [Q1, Q2], b"stays")
    log.commit()
    for added in (b"first", b"second", b"a longer third"):
        log.append_count(stays, Q1, 0, added)
        log.commit()
    log.append_count(stays, Q2, 4, b"of 2")
    first = stays.segment
    for number in range(1, 200):
        message = publish(log, [Q1], content_of(number, 300))
        log.append_settle(message, Q1)
        log.commit()
    assert stays.segment != first, "it has been copied"
    assert log.segments.get(first) is None
    log.release()
    log, sink = reopened(tmp_path)
    assert sink.counts == {(stays.sequence, 1): 0, (stays.sequence, 2): 4}
    assert sink.annotations == {(stays.sequence, 1): b"a longer third", (stays.sequence, 2): b"of 2"}
    log.release()


def test_check_reports_that_a_repair_loses_added_annotations(tmp_path: Path) -> None:
    log = small_log(tmp_path)
    message = publish(log, [Q1], b"one")
    log.append_count(message, Q1, 1)
    log.commit()
    log.append_count(message, Q1, 1, b"added")
    log.commit()
    publish(log, [Q1], b"two")
    log.commit()
    log.release()
    damage_third_batch(tmp_path)
    assert check(str(tmp_path), DISK).loss.counts == 1


def make_room(disk: BadDisk, log: Log, deferred: DeferredWork) -> None:
    """The disk is full no longer."""
    disk.capacity = 1 << 40
    log.tick()
    deferred.run_all()
    assert not log.failure


def restarted(disk: BadDisk, log: Log, deferred: DeferredWork) -> RecordingSink:
    """Make all records durable, restart, and return the recovered objects."""
    make_durable(log, deferred)
    disk.kill()
    sink = RecordingSink()
    open_log(FOLDER, disk, sink)
    return sink


def test_while_the_disk_is_full_counts_wait_for_room() -> None:
    disk, log, deferred = log_on_bad_disk()
    kept, settled, gone = (publish(log, [Q1, Q2], b"%d" % number) for number in range(3))
    for message in (kept, settled, gone):
        log.append_count(message, Q1, 1)
    make_durable(log, deferred)
    publish(log, [Q1], b"lost")
    fill_disk(disk, log)
    for message in (kept, settled, gone):
        log.append_count(message, Q1, 2, b"two")
    log.append_count(kept, Q1, 3, b"three")
    log.append_settle(settled, Q1)
    log.append_settle(gone, Q1)
    log.append_settle(gone, Q2)
    make_durable(log, deferred)
    assert log.full
    make_room(disk, log, deferred)
    sink = restarted(disk, log, deferred)
    assert sink.counts == {(kept.sequence, 1): 3}
    assert sink.annotations == {(kept.sequence, 1): b"three"}


def test_returned_deliveries_are_logged_though_the_disk_is_full() -> None:
    disk, log, deferred = log_on_bad_disk()
    message = publish(log, [Q1], b"x")
    log.append_count(message, Q1, 1)
    make_durable(log, deferred)
    publish(log, [Q1], b"lost")
    fill_disk(disk, log)
    before = log.unsynced_bytes
    for count in (0, 1, 0, 1, 0):
        log.append_count(message, Q1, count)
    assert log.unsynced_bytes - before <= 2 * COUNT_BYTES, "the reserve is for settles"
    sink = restarted(disk, log, deferred)
    assert sink.counts == {(message.sequence, 1): 0}


def test_only_the_last_waiting_count_is_appended() -> None:
    disk, log, deferred = log_on_bad_disk()
    messages = [publish(log, [Q1], b"%d" % number) for number in range(WAITING_MAX + 1)]
    make_durable(log, deferred)
    publish(log, [Q1], b"lost")
    fill_disk(disk, log)
    for message in messages:
        log.append_count(message, Q1, 2, b"two")
    log.append_count(messages[0], Q1, 1, b"one")
    make_durable(log, deferred)
    make_room(disk, log, deferred)
    sink = restarted(disk, log, deferred)
    assert len(sink.counts) == WAITING_MAX
    assert (sink.counts[1, 1], sink.annotations[1, 1]) == (1, b"one")


def test_annotations_do_not_use_up_the_reserve() -> None:
    """Neither annotations of the failed batch nor annotations with returned counts use the reserve."""
    disk, log, deferred = log_on_bad_disk()
    many = [publish(log, [Q1], b"%d" % number) for number in range(100)]
    for message in many:
        log.append_count(message, Q1, 1)
    make_durable(log, deferred)
    for message in many[:50]:
        log.append_count(message, Q1, 2, b"m" * 1000)
    fill_disk(disk, log)
    for message in many:
        log.append_count(message, Q1, 0, b"n" * 1000)
    log.append_settle(many[99], Q1)
    make_durable(log, deferred)
    assert log.full
    assert not log.stopped
    make_room(disk, log, deferred)
    sink = restarted(disk, log, deferred)
    assert sink.counts == {(message.sequence, 1): 0 for message in many[:99]}
    assert set(sink.annotations.values()) == {b"n" * 1000}


def test_annotations_that_wait_for_room_are_bounded() -> None:
    """All annotations are appended in a single step."""
    disk, log, deferred = log_on_bad_disk()
    many = [publish(log, [Q1], b"%d" % number) for number in range(200)]
    make_durable(log, deferred)
    publish(log, [Q1], b"lost")
    fill_disk(disk, log)
    for _ in range(2):
        for message in many:
            log.append_count(message, Q1, 0, b"m" * 8192)
    assert len(log.room.waiting) == WAITING_BYTES_MAX // 8192
    for message in many:
        log.append_count(message, Q1, 0, b"m")
    assert len(log.room.waiting) == 200
