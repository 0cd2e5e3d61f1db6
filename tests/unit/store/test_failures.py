"""Writes, syncs and reads that fail: the log stops or continues, and confirmed messages stay."""

import errno

import pytest
from structlog.testing import capture_logs

from broker.core.errors import StoreFailed
from broker.store.log import Log
from tests.support.store.bad_disk import FOLDER, BadDisk, log_on_bad_disk, reopened_sequences
from tests.support.store.hand_log import (
    RecordingWaiter,
    content_of,
    logged_queue,
    open_log,
    publish,
    storage_of,
)


def test_a_write_error_stops_the_log_and_leaves_no_partial_batch() -> None:
    disk, log, deferred = log_on_bad_disk()
    queue = logged_queue(1)
    durable = publish(log, [queue], b"durable")
    log.commit()
    deferred.run_all()
    size = log.filling.segment.written
    waiters = [RecordingWaiter(), RecordingWaiter()]
    publish(log, [queue], b"lost")
    log.wait(waiters[0])
    disk.write_errors = [errno.EIO]
    log.commit()
    assert log.stopped
    assert "write failed" in log.failure
    assert [waiter.failed for waiter in waiters] == [[log.failure], []]
    log.wait(waiters[1])
    assert waiters[1].failed == [log.failure], "who asks later is told as well"
    assert len(disk.names_now[f"{FOLDER}/0000000001.log"].cache) == size
    late = publish(log, [queue], b"ignored")
    assert late.sequence == 0
    assert log.load(durable) == b"durable" if durable.content is None else True
    log.append_settle(durable, queue)  # consumers go on; it will be redelivered
    assert durable.references == 0
    with pytest.raises(StoreFailed):
        log.close()
    log, sequences = reopened_sequences(disk)
    assert sequences == [durable.sequence]
    log.release()


def test_a_partial_write_that_cannot_be_cut_off_stops_the_log() -> None:
    disk, log, _ = log_on_bad_disk()
    publish(log, [logged_queue(1)], b"lost")
    disk.write_errors = [errno.ENOSPC]
    disk.truncate_error = errno.EIO
    log.commit()
    assert log.stopped
    assert "could not be cut off" in log.failure
    disk.truncate_error = 0
    log.release()
    log, sequences = reopened_sequences(disk)
    assert sequences == []
    log.release()


def test_a_failed_sync_stops_the_log_and_is_not_retried() -> None:
    disk, log, deferred = log_on_bad_disk()
    queue = logged_queue(1)
    waiters = [RecordingWaiter(), RecordingWaiter()]
    publish(log, [queue], b"in flight")
    log.wait(waiters[0])
    log.commit()
    publish(log, [queue], b"being filled")
    log.wait(waiters[1])
    syncs = disk.syncs
    disk.failing_syncs = 1
    deferred.run_all()
    assert log.stopped
    assert log.failure.startswith("sync failed")
    assert [waiter.failed for waiter in waiters] == [[log.failure]] * 2
    assert [waiter.durable for waiter in waiters] == [[], []]
    log.commit()
    log.tick()
    deferred.run_all()
    assert disk.syncs == syncs
    with pytest.raises(StoreFailed, match="sync failed"):
        log.close()


def test_a_syncer_that_dies_between_batches_stops_the_log() -> None:
    _, log, _ = log_on_bad_disk()
    storage_of(log).on_synced("the sync helper (pid 7) is lost: it has exited")
    assert log.stopped
    assert "pid 7" in log.failure
    log.release()


def churn(log: Log, start: int) -> None:
    """Messages that come and go, over several segments."""
    queue = logged_queue(1)
    for n in range(start, start + 30):
        message = publish(log, [queue], content_of(n, 700))
        log.commit()
        log.append_settle(message, queue)
        log.commit()


@pytest.mark.parametrize("twice", [False, True])
def test_copies_outlive_a_segment_that_does_not_read_back_to_its_end(twice: bool) -> None:
    """A message copied before the bad place must not be recovered from there once its copies are settled."""
    disk = BadDisk()
    log, _ = open_log(FOLDER, disk, segment_bytes=4096, first_segment_bytes=4096)
    queue = logged_queue(1)
    early = publish(log, [queue], content_of(1, 100))
    log.commit()
    late = publish(log, [queue], content_of(2, 4000))
    log.commit()
    churn(log, 3)
    log.space.victim = log.segments.get(1)
    disk.rotten_at = late.offset
    with capture_logs() as log_lines:
        churn(log, 50)
    assert log.damaged_segments == 1
    assert [line["reason"].split(" at ")[0] for line in log_lines] == [f"{FOLDER}/0000000001.log is damaged"]
    disk.rotten_at = -1
    assert early.segment > 1
    assert late.segment == 1
    if twice:
        copied_to = early.segment
        log.space.victim = log.segments.get(copied_to)
        churn(log, 100)
        assert early.segment > copied_to
        assert log.segments.get(copied_to) is None
    log.append_settle(early, queue)
    churn(log, 150)
    log, sequences = reopened_sequences(disk)
    assert sequences == [late.sequence]
    churn(log, 200)
    log, sequences = reopened_sequences(disk)
    assert sequences == [late.sequence]
    log.release()
