"""Delivery counts, and what was added to messages, while the disk is full: most of it waits for room."""

from broker.store.counts import COUNT_BYTES
from broker.store.log import Log
from broker.store.space import WAITING_BYTES_MAX, WAITING_MAX
from tests.bad_disk import FOLDER, BadDisk, durable, fill_disk, log_on_bad_disk
from tests.storing import Deferred, Sink, logged_queue, open_log, publish

Q1 = logged_queue(1)
Q2 = logged_queue(2)


def make_room(disk: BadDisk, log: Log, deferred: Deferred) -> None:
    """The disk is full no longer."""
    disk.capacity = 1 << 40
    log.tick()
    deferred.run_all()
    assert not log.failure


def restarted(disk: BadDisk, log: Log, deferred: Deferred) -> Sink:
    """What is there after a restart, once all has been synced."""
    durable(log, deferred)
    disk.kill()
    sink = Sink()
    open_log(FOLDER, disk, sink)
    return sink


def test_while_the_disk_is_full_counts_wait_for_room() -> None:
    disk, log, deferred = log_on_bad_disk()
    kept, settled, gone = (publish(log, [Q1, Q2], b"%d" % number) for number in range(3))
    for message in (kept, settled, gone):
        log.append_count(message, Q1, 1)
    durable(log, deferred)
    publish(log, [Q1], b"lost")
    fill_disk(disk, log)
    for message in (kept, settled, gone):
        log.append_count(message, Q1, 2, b"two")
    log.append_count(kept, Q1, 3, b"three")
    log.append_settle(settled, Q1)
    log.append_settle(gone, Q1)
    log.append_settle(gone, Q2)
    durable(log, deferred)
    assert log.full
    make_room(disk, log, deferred)
    sink = restarted(disk, log, deferred)
    assert sink.counts == {(kept.sequence, 1): 3}
    assert sink.annotations == {(kept.sequence, 1): b"three"}


def test_what_is_taken_back_is_in_the_log_though_the_disk_is_full() -> None:
    disk, log, deferred = log_on_bad_disk()
    message = publish(log, [Q1], b"x")
    log.append_count(message, Q1, 1)
    durable(log, deferred)
    publish(log, [Q1], b"lost")
    fill_disk(disk, log)
    before = log.unsynced_bytes
    for count in (0, 1, 0, 1, 0):
        log.append_count(message, Q1, count)
    assert log.unsynced_bytes - before <= 2 * COUNT_BYTES, "the reserve is for settles"
    sink = restarted(disk, log, deferred)
    assert sink.counts == {(message.sequence, 1): 0}


def test_of_counts_that_wait_the_last_one_is_appended_however_many_wait() -> None:
    disk, log, deferred = log_on_bad_disk()
    messages = [publish(log, [Q1], b"%d" % number) for number in range(WAITING_MAX + 1)]
    durable(log, deferred)
    publish(log, [Q1], b"lost")
    fill_disk(disk, log)
    for message in messages:
        log.append_count(message, Q1, 2, b"two")
    log.append_count(messages[0], Q1, 1, b"one")
    durable(log, deferred)
    make_room(disk, log, deferred)
    sink = restarted(disk, log, deferred)
    assert len(sink.counts) == WAITING_MAX
    assert (sink.counts[1, 1], sink.annotations[1, 1]) == (1, b"one")


def test_annotations_do_not_use_up_the_reserve() -> None:
    """Neither those of the batch that did not fit, nor those that come with counts that are taken back."""
    disk, log, deferred = log_on_bad_disk()
    many = [publish(log, [Q1], b"%d" % number) for number in range(100)]
    for message in many:
        log.append_count(message, Q1, 1)
    durable(log, deferred)
    for message in many[:50]:
        log.append_count(message, Q1, 2, b"m" * 1000)
    fill_disk(disk, log)
    for message in many:
        log.append_count(message, Q1, 0, b"n" * 1000)
    log.append_settle(many[99], Q1)
    durable(log, deferred)
    assert log.full
    assert not log.stopped
    make_room(disk, log, deferred)
    sink = restarted(disk, log, deferred)
    assert sink.counts == {(message.sequence, 1): 0 for message in many[:99]}
    assert set(sink.annotations.values()) == {b"n" * 1000}


def test_only_so_many_annotations_wait_for_room() -> None:
    """They are all appended in one step."""
    disk, log, deferred = log_on_bad_disk()
    many = [publish(log, [Q1], b"%d" % number) for number in range(200)]
    durable(log, deferred)
    publish(log, [Q1], b"lost")
    fill_disk(disk, log)
    for _ in range(2):
        for message in many:
            log.append_count(message, Q1, 0, b"m" * 8192)
    assert len(log.room.waiting) == WAITING_BYTES_MAX // 8192
    for message in many:
        log.append_count(message, Q1, 0, b"m")
    assert len(log.room.waiting) == 200
