"""Full disks: publishes are refused, and settlements use the reserve until there is room again."""

import errno
import random
from typing import final

import pytest

from broker.core.message import Message
from broker.store.definition_text import DefinitionText
from broker.store.log import Log
from broker.store.segment_files import READY
from tests.simulation.sim_disk import SimDisk
from tests.support.store.bad_disk import FOLDER, BadDisk, log_on_bad_disk, reopened_sequences
from tests.support.store.hand_log import (
    DeferredWork,
    RecordingSink,
    RecordingWaiter,
    content_of,
    files_of,
    logged_queue,
    open_log,
    publish,
)


def test_on_a_full_disk_settles_continue_in_the_reserve_and_nothing_durable_is_lost() -> None:
    disk, log, deferred = log_on_bad_disk()
    queue = logged_queue(1)
    kept = publish(log, [queue], content_of(1, 100))
    settled_before = publish(log, [queue], content_of(2, 100))
    settled_after = publish(log, [queue], content_of(3, 100))
    log.commit()
    deferred.run_all()
    waiter = RecordingWaiter()
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
    late = RecordingWaiter()
    log.wait(late)
    log.commit()
    deferred.run_all()
    assert len(late.durable) == 1, "a settle in the reserve becomes durable"
    assert log.full, "there is still no room for publishes"
    disk.crash()
    log, sequences = reopened_sequences(disk)
    assert sequences == [kept.sequence]
    log.release()


def test_publishes_are_accepted_again_when_the_disk_has_room() -> None:
    disk, log, deferred = log_on_bad_disk()
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
    waiter = RecordingWaiter()
    log.wait(waiter)
    log.commit()
    deferred.run_all()
    assert len(waiter.durable) == 1
    disk.crash()
    log, sequences = reopened_sequences(disk)
    assert sequences == [before.sequence, after.sequence]
    log.release()


def test_consuming_makes_room_by_itself() -> None:
    """The disk is full of messages; settlements delete segments, and then publishes continue."""
    disk = SimDisk(random.Random(3))
    deferred = DeferredWork()
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
    log.release()


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
    log, sequences = reopened_sequences(disk)
    assert sequences == [m.sequence for m in old[1:]] + [previous.sequence]
    log.release()


def test_a_second_full_disk_without_a_reserve_stops_the_log() -> None:
    disk, log, deferred = log_on_bad_disk()
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
    log.release()
    log, sequences = reopened_sequences(disk)
    assert sequences == [message.sequence for message in messages]
    log.release()


def test_a_log_starts_on_a_full_disk_if_the_reserve_is_there() -> None:
    disk, log, deferred = log_on_bad_disk()
    queue = logged_queue(1)
    message = publish(log, [queue], content_of(1, 100))
    log.commit()
    deferred.run_all()
    log.release()
    disk.kill()
    disk.unlink(f"{FOLDER}/spare")
    disk.capacity = disk.used() + 20
    sink = RecordingSink()
    log, _ = open_log(FOLDER, disk, sink)
    assert log.full
    recovered = sink.messages[0][0]
    assert recovered.sequence == message.sequence
    log.append_settle(recovered, queue)
    log.commit()
    assert log.durable == log.batch - 1
    log, sequences = reopened_sequences(disk)
    assert sequences == []
    log.release()


def test_a_full_disk_at_the_start_without_a_reserve_is_an_error() -> None:
    disk = SimDisk(random.Random(1))
    disk.capacity = 20
    with pytest.raises(OSError, match="No space"):
        open_log(FOLDER, disk)
    disk.capacity = 1 << 40
    log, sequences = reopened_sequences(disk)
    assert sequences == []
    log.release()


def test_a_reserve_that_could_not_be_made_is_made_when_there_is_room() -> None:
    """However little is logged: the next full disk must not stop the log."""
    disk = BadDisk()
    disk.capacity = 10_000
    deferred = DeferredWork()
    log, _ = open_log(FOLDER, disk, deferred=deferred, segment_bytes=1 << 20, first_segment_bytes=1 << 20)
    deferred.run_all()
    assert files_of(log).reserve != READY
    disk.capacity = 1 << 40
    log.tick()
    deferred.run_all()
    assert files_of(log).reserve == READY
    disk.capacity = disk.used() + 50
    publish(log, [logged_queue(1)], content_of(1, 3000))
    log.commit()
    deferred.run_all()
    assert (log.full, log.stopped) == (True, False)
    log.release()


def test_the_reserve_is_not_taken_for_the_spare_whose_place_it_takes() -> None:
    """No more than a batch is written where further room is uncertain."""
    disk = BadDisk()
    deferred = DeferredWork()
    log, _ = open_log(FOLDER, disk, deferred=deferred)
    queue = logged_queue(1)
    deferred.run_all()
    while files_of(log).spare != READY or log.filling.segment.end == 0:
        publish(log, [queue], content_of(1, 3000))
        log.commit()
        deferred.run_all()
        files_of(log).request(True)
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
    log.release()


def test_a_settle_saved_from_the_batch_behind_a_failed_segment_stays_saved() -> None:
    """The longer first batch of a segment does not fit; the settle was meant for the next segment."""
    disk = BadDisk()
    deferred = DeferredWork()
    log, _ = open_log(FOLDER, disk, deferred=deferred, reserve_bytes=256 * 1024)
    deferred.run_all()
    queue = logged_queue(1)
    settled = publish(log, [queue], content_of(1, 100))
    kept = publish(log, [queue], content_of(2, 100_000))
    log.commit()
    deferred.run_all()
    passing = publish(log, [queue], content_of(3, 70_000))
    log.commit()
    lost = publish(log, [queue], content_of(4, 1_200_000))
    while log.sealed is None or log.sealed.segment is not log.segments.get(lost.segment):
        deferred.step()
    assert log.sealed.segment.written == 0
    assert log.filling.segment.number == lost.segment + 1
    log.append_settle(settled, queue)
    log.append_settle(passing, queue)
    disk.write_errors = [errno.ENOSPC]
    while not log.full:
        deferred.step()
    reserve = log.segments.get(lost.segment)
    assert reserve is not None
    assert (reserve.needs, reserve.settles) == ({settled.segment, passing.segment}, 2)
    deferred.run_all()
    assert log.failure == "", "there was room for a new reserve at once"
    for number in range(10, 20):
        passing = publish(log, [queue], content_of(number, 60_000))
        log.commit()
        deferred.run_all()
        log.append_settle(passing, queue)
    log, sequences = reopened_sequences(disk)
    assert sequences == [kept.sequence, passing.sequence]
    log.release()


@final
class Topology:
    """Definitions that grow while the log runs."""

    def __init__(self) -> None:
        self.changes: list[dict[str, object]] = []

    def definitions(self) -> list[dict[str, object]]:
        return self.changes

    def grow(self, log: Log) -> None:
        """Append four times the settlements that the reserve of these logs has room for."""
        for _ in range(64):
            self.changes.append({"kind": "x", "pad": "a" * 1000})
            log.append_definition(self.changes[-1])


def settle_on_full_disk(disk: BadDisk, log: Log, deferred: DeferredWork, message: Message) -> None:
    """Have the disk full, and see that a settle becomes durable all the same."""
    disk.capacity = disk.used()
    disk.write_errors = [errno.ENOSPC]
    publish(log, [logged_queue(1)], content_of(2, 100))
    log.commit()
    disk.capacity = disk.used()  # another process uses the room that the failed segment returned
    assert log.full
    deferred.run_all()
    log.append_settle(message, logged_queue(1))
    waiter = RecordingWaiter()
    log.wait(waiter)
    log.commit()
    deferred.run_all()
    assert len(waiter.durable) == 1, log.failure


@pytest.mark.parametrize("restarted", [False, True])
def test_the_reserve_has_room_for_settles_behind_a_checkpoint_of_any_size(restarted: bool) -> None:
    disk = BadDisk()
    deferred = DeferredWork()
    topology = Topology()
    log, _ = open_log(FOLDER, disk, deferred=deferred, definitions=topology.definitions)
    deferred.run_all()
    message = publish(log, [logged_queue(1)], content_of(1, 100))
    topology.grow(log)
    log.commit()
    deferred.run_all()
    if restarted:
        log.close()
        disk.kill()
        sink = RecordingSink()
        log, _ = open_log(FOLDER, disk, sink, deferred, topology.definitions)
        deferred.run_all()
        [(message, _, _)] = sink.messages
    settle_on_full_disk(disk, log, deferred, message)
    disk.crash()
    log, sequences = reopened_sequences(disk)
    assert sequences == []
    log.release()


def test_the_reserve_grows_with_the_definitions() -> None:
    disk = SimDisk(random.Random(1))
    topology = Topology()
    log, _ = open_log(FOLDER, disk, definitions=topology.definitions)
    log.appender.definitions = DefinitionText(
        lambda: [[change] for change in topology.changes], changes_min=0, step=20
    )
    log.appender.definitions.text()
    topology.changes = [{"kind": "x", "pad": "a" * 1000}] * 64
    steps = 0
    while log.appender.definitions.length < 64_000:
        log.append_definition({"kind": "y"})
        log.commit()
        steps += 1
    assert steps == 4, "a batch takes a step"
    assert files_of(log).checkpoint_bytes >= log.appender.definitions.length
    log.tick()
    assert files_of(log).reserve_length >= files_of(log).checkpoint_bytes
    log.release()


def test_a_reserve_that_cannot_grow_stays_and_grows_when_there_is_room() -> None:
    disk, log, deferred = log_on_bad_disk()
    disk.capacity = disk.used() + 70_000
    topology = Topology()
    log.appender.definitions = DefinitionText(lambda: [topology.definitions()])
    topology.grow(log)
    log.commit()
    deferred.run_all()
    assert (files_of(log).reserve, files_of(log).growing) == (READY, False)
    disk.capacity = 1 << 40
    message = publish(log, [logged_queue(1)], content_of(1, 100))
    log.commit()
    deferred.run_all()
    settle_on_full_disk(disk, log, deferred, message)
    log.release()


def test_a_reserve_that_is_needed_while_it_grows_is_used_as_it_is() -> None:
    disk, log, deferred = log_on_bad_disk()
    queue = logged_queue(1)
    topology = Topology()
    log.appender.definitions = DefinitionText(lambda: [topology.definitions()])
    message = publish(log, [queue], content_of(1, 100))
    log.append_definition({"kind": "x", "pad": "a" * 9000})
    log.commit()
    while not files_of(log).growing:
        deferred.step()
    room, disk.capacity = disk.capacity, disk.used()
    disk.write_errors = [errno.ENOSPC]
    publish(log, [queue], b"lost")
    log.commit()
    assert (log.full, log.stopped) == (True, False)
    disk.capacity = room
    log.append_settle(message, queue)
    log.commit()
    log.tick()
    deferred.run_all()
    assert (log.failure, files_of(log).reserve) == ("", READY)
    disk.crash()
    log, sequences = reopened_sequences(disk)
    assert sequences == []
    log.release()
