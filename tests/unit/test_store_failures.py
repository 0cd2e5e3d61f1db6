"""Full disks, failing writes and syncs: what was confirmed stays, publishes are refused, settles go on."""

import errno
import random
from typing import final

import pytest

from broker.core.errors import StoreFailed
from broker.store.log import Log
from tests.simulation.sim_disk import SimDisk
from tests.storing import Deferred, Sink, Waiter, content_of, logged_queue, open_log, publish

FOLDER = "/log"


@final
class BadDisk(SimDisk):
    """A disk whose next writes, or truncates, fail with an errno."""

    def __init__(self) -> None:
        super().__init__(random.Random(7))
        self.write_errors: list[int] = []
        self.truncate_error = 0

    def write(self, fd: int, parts: list[bytes], offset: int) -> None:
        if self.write_errors:
            error = OSError(self.write_errors.pop(0), "write")
            super().write(fd, [b"".join(parts)[:30]], offset)
            raise error
        super().write(fd, parts, offset)

    def truncate(self, fd: int, length: int) -> None:
        if self.truncate_error:
            raise OSError(self.truncate_error, "truncate")
        super().truncate(fd, length)


def reopened(disk: SimDisk) -> tuple[Log, list[int]]:
    disk.kill()
    sink = Sink()
    log, _ = open_log(FOLDER, disk, sink)
    return log, [message.sequence for message, _, _ in sink.messages]


def full_log() -> tuple[BadDisk, Log, Deferred]:
    """A log with three durable messages on a disk that has just become full; the reserve is there."""
    disk = BadDisk()
    deferred = Deferred()
    log, _ = open_log(FOLDER, disk, deferred=deferred)
    deferred.run_all()
    return disk, log, deferred


def test_a_write_error_stops_the_log_and_leaves_no_partial_batch() -> None:
    disk, log, deferred = full_log()
    queue = logged_queue(1)
    durable = publish(log, [queue], b"durable")
    log.commit()
    deferred.run_all()
    size = log.filling.segment.good
    waiters = [Waiter(), Waiter()]
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
    log, sequences = reopened(disk)
    assert sequences == [durable.sequence]
    log.let_go()


def test_a_partial_write_that_cannot_be_cut_off_stops_the_log() -> None:
    disk, log, _ = full_log()
    publish(log, [logged_queue(1)], b"lost")
    disk.write_errors = [errno.ENOSPC]
    disk.truncate_error = errno.EIO
    log.commit()
    assert log.stopped
    assert "could not be cut off" in log.failure
    disk.truncate_error = 0
    log.let_go()
    log, sequences = reopened(disk)
    assert sequences == []
    log.let_go()


def test_a_failed_sync_stops_the_log_and_is_not_retried() -> None:
    disk, log, deferred = full_log()
    queue = logged_queue(1)
    waiters = [Waiter(), Waiter()]
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
    _, log, _ = full_log()
    log.completed("the sync helper (pid 7) is lost: it has exited")
    assert log.stopped
    assert "pid 7" in log.failure
    log.let_go()


def test_after_a_full_disk_settles_go_on_in_the_reserve_and_nothing_durable_is_lost() -> None:
    disk, log, deferred = full_log()
    queue = logged_queue(1)
    kept = publish(log, [queue], content_of(1, 100))
    settled_before = publish(log, [queue], content_of(2, 100))
    settled_after = publish(log, [queue], content_of(3, 100))
    log.commit()
    deferred.run_all()
    waiter = Waiter()
    lost = publish(log, [queue], content_of(4, 100))
    log.append_settle(settled_before, queue)
    log.wait(waiter)
    disk.write_errors = [errno.ENOSPC]
    disk.capacity = disk.used()
    log.commit()
    assert log.full
    assert not log.stopped
    assert "full" in log.failure
    assert waiter.failed == [log.failure]
    assert (lost.sequence, lost.references, lost.content) == (0, 0, content_of(4, 100))
    refused = publish(log, [queue], b"refused")
    assert refused.sequence == 0
    log.append_settle(lost, queue)  # not logged any more
    log.append_settle(settled_after, queue)
    late = Waiter()
    log.wait(late)
    log.commit()
    deferred.run_all()
    assert len(late.durable) == 1, "a settle in the reserve becomes durable"
    assert log.full, "there is still no room for publishes"
    disk.crash()
    log, sequences = reopened(disk)
    assert sequences == [kept.sequence]
    log.let_go()


def test_when_room_comes_back_publishes_are_accepted_again() -> None:
    disk, log, deferred = full_log()
    queue = logged_queue(1)
    before = publish(log, [queue], content_of(1, 100))
    log.commit()
    deferred.run_all()
    publish(log, [queue], content_of(2, 100))
    disk.write_errors = [errno.ENOSPC]
    disk.capacity = disk.used()
    log.commit()
    deferred.run_all()
    log.tick()
    deferred.run_all()
    assert log.full
    disk.capacity = 1 << 40
    log.tick()
    deferred.run_all()
    assert (log.full, log.failure) == (False, "")
    after = publish(log, [queue], content_of(3, 100))
    waiter = Waiter()
    log.wait(waiter)
    log.commit()
    deferred.run_all()
    assert len(waiter.durable) == 1
    disk.crash()
    log, sequences = reopened(disk)
    assert sequences == [before.sequence, after.sequence]
    log.let_go()


def test_consuming_makes_room_by_itself() -> None:
    """The disk is full of messages; settling them deletes segments, and that is what publishes wait for."""
    disk = SimDisk(random.Random(3))
    deferred = Deferred()
    log, _ = open_log(
        FOLDER, disk, deferred=deferred, segment_bytes=8192, first_segment_bytes=8192, reserve_bytes=8192
    )
    deferred.run_all()
    queue = logged_queue(1)
    disk.capacity = 100_000
    messages = []
    number = 0
    while not log.failure:
        number += 1
        messages.append(publish(log, [queue], content_of(number, 500)))
        log.commit()
        deferred.run_all()
    assert len(messages) > 50
    for message in messages:
        log.append_settle(message, queue)
        log.commit()
        deferred.run_all()
        if not log.failure:
            break
    assert log.failure == ""
    log.let_go()


def test_a_second_full_disk_without_a_reserve_stops_the_log() -> None:
    disk, log, deferred = full_log()
    queue = logged_queue(1)
    messages = [publish(log, [queue], content_of(n, 100)) for n in range(2)]
    log.commit()
    deferred.run_all()
    publish(log, [queue], b"lost")
    disk.capacity = disk.used()
    disk.write_errors = [errno.ENOSPC, errno.ENOSPC]
    log.commit()
    log.append_settle(messages[0], queue)
    log.commit()
    assert log.stopped
    log.let_go()
    log, sequences = reopened(disk)
    assert sequences == [message.sequence for message in messages]
    log.let_go()


def test_a_log_starts_on_a_full_disk_if_the_reserve_is_there() -> None:
    disk, log, deferred = full_log()
    queue = logged_queue(1)
    message = publish(log, [queue], content_of(1, 100))
    log.commit()
    deferred.run_all()
    log.let_go()
    disk.kill()
    disk.unlink(f"{FOLDER}/spare")
    disk.capacity = disk.used() + 20
    sink = Sink()
    log, _ = open_log(FOLDER, disk, sink)
    assert log.full
    recovered = sink.messages[0][0]
    assert recovered.sequence == message.sequence
    log.append_settle(recovered, queue)
    log.commit()
    assert log.durable == log.batch - 1
    log, sequences = reopened(disk)
    assert sequences == []
    log.let_go()


def test_a_full_disk_at_the_start_without_a_reserve_is_an_error() -> None:
    disk = SimDisk(random.Random(1))
    disk.capacity = 20
    with pytest.raises(OSError, match="No space"):
        open_log(FOLDER, disk)
    disk.capacity = 1 << 40
    log, sequences = reopened(disk)
    assert sequences == []
    log.let_go()
