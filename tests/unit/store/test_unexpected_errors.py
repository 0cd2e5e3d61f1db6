"""Errors that no disk reports: the log continues or stops with a message, and never waits forever."""

import random
from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import capture_logs
from structlog.typing import EventDict

from broker.core.errors import StoreFailed
from broker.store.definition_text import DefinitionText
from broker.store.log import Log
from broker.store.segment_files import ABSENT
from broker.store.sync import DiskSyncer, Done, Work
from tests.simulation.sim_disk import SimDisk
from tests.support.store.bad_disk import FOLDER, log_on_bad_disk
from tests.support.store.hand_log import (
    RecordingSink,
    RecordingWaiter,
    content_of,
    files_of,
    logged_queue,
    open_log,
    publish,
    storage_of,
)

HALF_A_PAIR = "\ud83d"


@pytest.fixture(name="log_lines", autouse=True)
def logged() -> Iterator[list[EventDict]]:
    """The lines that the log writes for its operator."""
    structlog.reset_defaults()
    with capture_logs() as lines:
        yield lines


def test_any_string_is_kept_in_records_of_changes_and_in_checkpoints() -> None:
    disk = SimDisk(random.Random(1))
    changes: list[dict[str, object]] = [{"kind": "x", "text": f"{HALF_A_PAIR} é \x00 \U0001f600"}]
    log, _ = open_log(FOLDER, disk)
    log.append_definition(changes[0])
    log.commit()
    for where in ("record", "checkpoint"):
        disk.kill()
        sink = RecordingSink()
        log, _ = open_log(FOLDER, disk, sink, definitions=lambda: changes)
        assert sink.changes == changes, where
    log.release()


def refuse() -> list[list[dict[str, object]]]:
    """Raise instead of describing the topology."""
    raise RuntimeError("not now")


def fill_segment(log: Log) -> RecordingWaiter:
    """Append a batch after which the log begins another segment, which takes a checkpoint."""
    waiter = RecordingWaiter()
    publish(log, [logged_queue(1)], content_of(1, log.filling.segment.limit))
    log.wait(waiter)
    return waiter


def test_an_error_while_making_a_batch_stops_the_log_and_fails_its_waiters(
    log_lines: list[EventDict],
) -> None:
    _, log, deferred = log_on_bad_disk()
    waiter = fill_segment(log)
    log.appender.definitions = DefinitionText(refuse)
    log.commit()
    deferred.run_all()
    assert log.stopped
    assert log.failure == "RuntimeError: not now"
    assert waiter.failed == [log.failure]
    assert [(line["event"], line["log_level"]) for line in log_lines] == [("the log is broken", "error")]
    with pytest.raises(StoreFailed, match="not now"):
        log.close()


def no_thread(work: Work, done: Done) -> None:
    """A RunOffLoop that cannot."""
    raise RuntimeError("no thread")


def take_threads(log: Log) -> None:
    """Let all work off the loop fail from now on."""
    syncer = storage_of(log).syncer
    assert isinstance(syncer, DiskSyncer)
    syncer.run_off_loop = no_thread


def test_a_sync_that_cannot_be_asked_for_stops_the_log() -> None:
    _, log, _ = log_on_bad_disk()
    take_threads(log)
    waiter = RecordingWaiter()
    publish(log, [logged_queue(1)], b"lost")
    log.wait(waiter)
    log.commit()
    assert waiter.failed == [log.failure]
    assert "no thread" in log.failure
    log.release()


def test_an_error_after_a_batch_stops_the_log() -> None:
    _, log, deferred = log_on_bad_disk()
    durable, lost = RecordingWaiter(), RecordingWaiter()
    publish(log, [logged_queue(1)], b"durable")
    log.wait(durable)
    log.commit()
    publish(log, [logged_queue(1)], b"lost")
    log.wait(lost)
    files_of(log).reserve = ABSENT  # so that it asks for another one
    take_threads(log)
    deferred.run_all()
    assert (len(durable.durable), durable.failed) == (1, [])
    assert lost.failed == [log.failure] == ["RuntimeError: no thread"]
    log.release()


class Clumsy(RecordingWaiter):
    """A waiter that fails in every call."""

    def on_durable(self, batch: int) -> None:
        super().on_durable(batch)
        raise OSError(f"batch {batch}")

    def on_store_failed(self, reason: str) -> None:
        super().on_store_failed(reason)
        raise OSError(reason)


def test_an_error_of_one_waiter_does_not_affect_other_waiters(log_lines: list[EventDict]) -> None:
    disk, log, deferred = log_on_bad_disk()
    queue = logged_queue(1)
    waiters = [Clumsy(), RecordingWaiter(), Clumsy(), RecordingWaiter(), Clumsy(), RecordingWaiter()]

    def publish_for(first: int) -> None:
        publish(log, [queue], b"m")
        log.wait(waiters[first])
        log.wait(waiters[first + 1])

    publish_for(0)
    log.commit()
    publish_for(2)
    deferred.run_all()
    assert [len(waiter.durable) for waiter in waiters] == [1, 1, 1, 1, 0, 0]
    disk.failing_syncs = 1
    publish_for(4)
    log.commit()
    deferred.run_all()
    assert [waiter.failed for waiter in waiters[4:]] == [[log.failure]] * 2
    assert [line["event"] for line in log_lines] == ["a waiter of the log has failed"] * 3
    assert all(line["exc_info"] for line in log_lines)
    log.release()


def test_a_log_that_cannot_write_its_end_releases_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, log, deferred = log_on_bad_disk()

    def truncate(fd: int, length: int) -> None:
        raise RuntimeError(f"no cut of {fd} at {length}")

    waiter = fill_segment(log)
    log.commit()
    deferred.run_all()
    assert len(waiter.durable) == 1
    monkeypatch.setattr(disk, "truncate", truncate)
    with pytest.raises(StoreFailed, match="could not be closed: no cut"):
        log.close()
    assert not disk.opened
    assert not disk.locks
