"""A shortage of file descriptors: the log closes old segments or waits, without loss or refusal."""

from collections.abc import Callable

import pytest

from broker.core.message import Message
from broker.store.file_commit import INLINE_WRITE_MAX
from broker.store.log import Log
from broker.store.segment_files import READY
from tests.support.store.bad_disk import FOLDER, BadDisk, log_on_bad_disk, reopened_sequences
from tests.support.store.hand_log import (
    DeferredWork,
    RecordingWaiter,
    content_of,
    files_of,
    logged_queue,
    open_log,
    publish,
)

QUEUE = logged_queue(1)


def leave_segment(log: Log, deferred: DeferredWork) -> Message:
    """Append a batch that fills its segment, so that the next batch needs a new file."""
    message = publish(log, [QUEUE], content_of(2, log.filling.segment.limit))
    log.commit()
    deferred.run_all()
    return message


def log_with_spare() -> tuple[BadDisk, Log, DeferredWork]:
    """A log that has the file of its next segment."""
    disk, log, deferred = log_on_bad_disk()
    publish(log, [QUEUE], content_of(1, log.filling.segment.limit * 3 // 4))
    log.commit()
    deferred.run_all()
    assert files_of(log).spare == READY
    return disk, log, deferred


@pytest.mark.parametrize("prepared", [log_on_bad_disk, log_with_spare])
def test_a_new_segment_waits_for_a_descriptor(
    prepared: Callable[[], tuple[BadDisk, Log, DeferredWork]],
) -> None:
    disk, log, deferred = prepared()
    disk.descriptors = len(disk.opened) - 1
    large = leave_segment(log, deferred)
    waiter = RecordingWaiter()
    small = publish(log, [QUEUE], b"small")
    log.wait(waiter)
    for _ in range(3):
        log.commit()
        log.tick()
        deferred.run_all()
    assert small.segment > large.segment
    assert (waiter.durable, waiter.failed, log.failure) == ([], [], "")
    disk.descriptors += 1
    log.tick()
    deferred.run_all()
    assert len(waiter.durable) == 1
    assert len(disk.opened) == disk.descriptors
    disk.crash()
    log, sequences = reopened_sequences(disk)
    assert sequences == list(range(1, small.sequence + 1))
    log.release()


def test_old_segments_give_their_descriptors_to_new_ones() -> None:
    disk, log, deferred = log_on_bad_disk()
    disk.descriptors = len(disk.opened)
    leave_segment(log, deferred)
    waiter = RecordingWaiter()
    publish(log, [QUEUE], b"small")
    log.wait(waiter)
    log.commit()
    deferred.run_all()
    assert len(waiter.durable) == 1
    assert not files_of(log).opened
    log.release()


def test_a_large_batch_is_written_here_if_there_is_no_descriptor_for_another_thread() -> None:
    disk, log, deferred = log_on_bad_disk()
    publish(log, [QUEUE], b"first")
    log.commit()
    deferred.run_all()
    disk.descriptors = len(disk.opened)
    waiter = RecordingWaiter()
    large = publish(log, [QUEUE], content_of(2, INLINE_WRITE_MAX + 1))
    log.wait(waiter)
    log.commit()
    assert log.failure == ""
    deferred.run_all()
    assert len(waiter.durable) == 1
    disk.descriptors = 1000
    disk.crash()
    log, sequences = reopened_sequences(disk)
    assert sequences == [large.sequence - 1, large.sequence]
    log.release()


def test_a_segment_that_could_not_be_opened_is_copied_forward_later() -> None:
    disk = BadDisk()
    log, _ = open_log(FOLDER, disk, segment_bytes=4096, first_segment_bytes=4096)
    kept = publish(log, [QUEUE], content_of(1, 100))
    log.commit()

    def churn() -> None:
        for number in range(2, 32):
            message = publish(log, [QUEUE], content_of(number, 700))
            log.commit()
            log.append_settle(message, QUEUE)
            log.commit()

    home = log.segments.get(kept.segment)
    assert home is not None
    while log.filling.segment is home:
        publish(log, [QUEUE], content_of(99, 2000))
        log.append_settle(log.filling.segment.last, QUEUE)  # type: ignore[arg-type]
        log.commit()
    files_of(log).close(home)
    disk.descriptors = len(disk.opened)
    log.space.victim = home
    publish(log, [QUEUE], b"x")
    log.commit()
    assert kept.segment == home.number
    assert log.damaged_segments == 0
    disk.descriptors = 1000
    churn()
    assert kept.segment > home.number
    assert log.load(kept) == content_of(1, 100) if kept.content is None else True
    log.release()
