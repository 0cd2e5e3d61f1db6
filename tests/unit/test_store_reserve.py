"""The reserve for a full disk: it has room for settles however long the checkpoint before them is."""

import errno
import random
from typing import final

import pytest

from broker.core.message import Message
from broker.store.definition_text import DefinitionText
from broker.store.log import Log
from broker.store.segment_files import READY
from tests.bad_disk import FOLDER, BadDisk, log_on_bad_disk, reopened
from tests.simulation.sim_disk import SimDisk
from tests.storing import Deferred, Sink, Waiter, content_of, files_of, logged_queue, open_log, publish


@final
class Topology:
    """Definitions that grow while the log runs."""

    def __init__(self) -> None:
        self.changes: list[dict[str, object]] = []

    def definitions(self) -> list[dict[str, object]]:
        return self.changes

    def grow(self, log: Log) -> None:
        """Four times what the reserve of these logs has for settles."""
        for _ in range(64):
            self.changes.append({"kind": "x", "pad": "a" * 1000})
            log.append_definition(self.changes[-1])


def settle_on_full_disk(disk: BadDisk, log: Log, deferred: Deferred, message: Message) -> None:
    """Have the disk full, and see that a settle becomes durable all the same."""
    disk.capacity = disk.used()
    disk.write_errors = [errno.ENOSPC]
    publish(log, [logged_queue(1)], content_of(2, 100))
    log.commit()
    disk.capacity = disk.used()  # what the failed segment has given back is somebody else's now
    assert log.full
    deferred.run_all()
    log.append_settle(message, logged_queue(1))
    waiter = Waiter()
    log.wait(waiter)
    log.commit()
    deferred.run_all()
    assert len(waiter.durable) == 1, log.failure


@pytest.mark.parametrize("restarted", [False, True])
def test_the_reserve_has_room_for_settles_behind_a_checkpoint_of_any_size(restarted: bool) -> None:
    disk = BadDisk()
    deferred = Deferred()
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
        sink = Sink()
        log, _ = open_log(FOLDER, disk, sink, deferred, topology.definitions)
        deferred.run_all()
        [(message, _, _)] = sink.messages
    settle_on_full_disk(disk, log, deferred, message)
    disk.crash()
    log, sequences = reopened(disk)
    assert sequences == []
    log.release()


def test_the_reserve_grows_with_what_is_described_anew() -> None:
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
    log, sequences = reopened(disk)
    assert sequences == []
    log.release()
