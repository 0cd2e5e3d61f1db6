"""Full disks, failing writes and syncs: what was confirmed stays, publishes are refused, settles go on."""

import errno
import random
from typing import final

import pytest

from broker.core.errors import StoreFailed
from broker.store.files import READY
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
        self.rotten_at = -1

    def write(self, fd: int, parts: list[bytes], offset: int) -> None:
        if self.write_errors:
            error = OSError(self.write_errors.pop(0), "write")
            super().write(fd, [b"".join(parts)[:30]], offset)
            raise error
        super().write(fd, parts, offset)

    def read(self, fd: int, length: int, offset: int) -> bytes:
        data = bytearray(super().read(fd, length, offset))
        if 0 <= self.rotten_at - offset < len(data):
            data[self.rotten_at - offset] ^= 1
        return bytes(data)

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


def test_settles_saved_from_a_failed_batch_outlive_the_segment_that_they_are_in() -> None:
    disk = BadDisk()
    log, _ = open_log(FOLDER, disk, segment_bytes=4096, first_segment_bytes=4096, reserve_bytes=1024)
    queue = logged_queue(1)
    old = [publish(log, [queue], content_of(n, 700)) for n in range(1, 5)]
    log.commit()
    log.append_settle(old[0], queue)
    disk.write_errors = [errno.ENOSPC]
    log.commit()
    assert log.failure == "", "the simulated disk has room, so a new reserve was there at once"
    saved_in = log.filling.segment.number
    previous = publish(log, [queue], content_of(5, 700))
    for n in range(6, 30):
        message = publish(log, [queue], content_of(n, 700))
        log.append_settle(previous, queue)
        previous = message
        log.commit()
    assert log.filling.segment.number > saved_in + 2
    log, sequences = reopened(disk)
    assert sequences == [m.sequence for m in old[1:]] + [previous.sequence]
    log.let_go()


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
    """What was copied before the bad place must not come back from there when the copies are settled."""
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
    churn(log, 50)
    assert log.space.damage
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
    log, sequences = reopened(disk)
    assert sequences == [late.sequence]
    churn(log, 200)
    log, sequences = reopened(disk)
    assert sequences == [late.sequence]
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


def test_a_reserve_that_could_not_be_made_is_made_when_there_is_room() -> None:
    """However little is logged: the next full disk must not stop the log."""
    disk = BadDisk()
    disk.capacity = 10_000
    deferred = Deferred()
    log, _ = open_log(FOLDER, disk, deferred=deferred, segment_bytes=1 << 20, first_segment_bytes=1 << 20)
    deferred.run_all()
    assert log.files.reserve != READY
    disk.capacity = 1 << 40
    log.tick()
    deferred.run_all()
    assert log.files.reserve == READY
    disk.capacity = disk.used() + 50
    publish(log, [logged_queue(1)], content_of(1, 3000))
    log.commit()
    deferred.run_all()
    assert (log.full, log.stopped) == (True, False)
    log.let_go()


def test_the_reserve_is_not_taken_for_the_spare_whose_place_it_takes() -> None:
    """Nothing more than a batch is written where the room for more may not be there."""
    disk = BadDisk()
    deferred = Deferred()
    log, _ = open_log(FOLDER, disk, deferred=deferred)
    queue = logged_queue(1)
    deferred.run_all()
    while log.files.spare != READY or log.filling.segment.end == 0:
        publish(log, [queue], content_of(1, 3000))
        log.commit()
        deferred.run_all()
        log.files.ask(True)
        deferred.run_all()
    number = log.filling.segment.number
    while log.filling.segment.number == number:
        publish(log, [queue], content_of(1, 3000))
        log.commit()
        if log.filling.segment.number == number:
            deferred.run_all()
    disk.capacity = disk.used()
    publish(log, [queue], content_of(2, 200_000))  # the first batch of a segment that is made of the spare
    deferred.run_all()
    assert (log.full, log.stopped) == (True, False)
    assert log.filling.segment.number == number + 1
    assert log.filling.segment.room == 0
    log.let_go()
