"""A journal as the daemon looks after it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.adapters.formats.either import view_of
from broker.journal.journal import SLICE, create_journal
from broker.journal.reader import JournalReader
from config.settings import Settings
from protocol.journal.rows import EventRow
from tests.support.core.topology import add_queue, consume, new_broker, publish
from tests.support.journal.handmade_journal import NODE, EventWriter, rows_of

MINUTE = 60  # ticks
NO_SPACE = OSError(errno.ENOSPC, "No space left on device")
NO_DESCRIPTOR = OSError(errno.EMFILE, "Too many open files")

Work = tuple[Callable[[], None], Callable[[BaseException | None], None]]


class Timer:
    """A call that the loop runs when its time has come."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Keeper:
    """A broker that has just been made, and its journal. The loop turns by hand."""

    def __init__(self, folder: Path, level: str, **settings: object) -> None:
        checkpoints_found = {
            "data_dir": folder,
            "journal_dir": folder,
            "journal_free_min": 0,
            "node_name": NODE,
        }
        self.folder = folder
        self.broker = new_broker()
        self.turns: list[Callable[[], None]] = []
        self.timers: list[Timer] = []
        self.work: list[Work] = []
        self.journaling = create_journal(
            Settings.model_validate(checkpoints_found | {"journal": level} | settings),
            self.broker,
            view_of,
            soon=lambda turn: self.turns.append(turn),
            later=self.later,
            off_loop=lambda work, done: self.work.append((work, done)),
        )
        self.vhost = self.broker.declare_vhost("/")

    def later(self, _: float, call: Callable[[], None]) -> Timer:
        """Schedule a call."""
        self.timers.append(Timer(call))
        return self.timers[-1]

    def run_timers(self) -> None:
        """Run the scheduled calls that were not cancelled."""
        timers, self.timers = self.timers, []
        for timer in timers:
            if not timer.is_cancelled:
                timer.call()

    def tick(self, count: int = 1) -> None:
        """Let seconds pass."""
        for _ in range(count):
            self.journaling.tick()
            self.turn()

    def turn(self) -> None:
        """Run the waiting calls of the next turn of the loop."""
        turns, self.turns = self.turns, []
        for each in turns:
            each()

    def checkpoints(self) -> list[EventRow]:
        """Return the checkpoints so far."""
        self.journaling.writer.flush()
        return [row for row in JournalReader(self.folder).rows() if row.op == "checkpoint"]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The files that are synced, by their inodes; their descriptors are to be closed then."""
    found = []
    sync = os.fsync

    def fsync(fd: int) -> None:
        found.append(os.fstat(fd).st_ino)
        sync(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def only_file(folder: Path) -> int:
    """The inode of the only file of a journal."""
    (path,) = (folder / "live").iterdir()
    return path.stat().st_ino


def test_a_journal_that_is_off_is_recorded_when_the_disk_allows(tmp_path: Path) -> None:
    writer = Keeper(tmp_path, "full").journaling.writer
    EventWriter(writer.encoder).life_of(1)
    writer.close()
    live, aside = tmp_path / "live", tmp_path / "aside"
    off = Keeper(tmp_path, "off").journaling
    live.rename(aside)
    live.write_text("in the way")
    off.start("1")
    off.tick()
    live.unlink()
    aside.rename(live)
    for _ in range(2):
        off.tick()
    (path,) = (path for path in live.iterdir() if not path.name.endswith(f"{1:020d}.ajl"))
    assert [row.op for row in rows_of(path.read_bytes())] == ["gap", "level", "end"]


def test_checkpoints_record_the_size_of_each_queue_every_minute(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, "lifecycle")
    keeper.journaling.start("1")
    for name, level in (("own", None), ("full", "full"), ("silent", "off"), ("empty", None)):
        arguments: dict[str, object] = {} if level is None else {"x-journal": level}
        keeper.vhost.declarations.declare_queue(name, False, None, False, arguments)
    for name in ("own", "full", "full", "full", "silent"):
        publish(keeper.vhost, "", name)
    _, consumer = consume(keeper.vhost.topology.queues["full"])
    assert keeper.vhost.topology.queues["full"].deliver_single_message(consumer)

    keeper.tick(MINUTE - 1)
    assert keeper.checkpoints() == []
    keeper.tick()
    checkpoints_found = [(row.queue, row.reason, row.quantity, row.unacked) for row in keeper.checkpoints()]
    assert checkpoints_found == [
        ("own", "lifecycle", 1, 0),
        ("full", "full", 3, 1),
        ("empty", "lifecycle", 0, 0),
    ]
    publish(keeper.vhost, "", "own")
    keeper.tick(MINUTE)
    assert [(row.queue, row.quantity) for row in keeper.checkpoints()[3:]] == [
        ("own", 2),
        ("full", 3),
        ("empty", 0),
    ]


def test_many_queues_do_not_hold_the_loop_up(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, "lifecycle")
    keeper.journaling.start("1")
    names = [str(number) for number in range(SLICE + 1)]
    for name in names:
        add_queue(keeper.vhost, name)
    keeper.tick(MINUTE - 1)

    keeper.journaling.tick()
    assert [row.queue for row in keeper.checkpoints()] == names[:SLICE]
    keeper.turn()
    assert [row.queue for row in keeper.checkpoints()] == names


@pytest.mark.parametrize(("sync", "syncs"), [("second", 3), ("off", 0)])
def test_the_journal_is_synced_each_second_if_configured(
    tmp_path: Path, synced: list[int], sync: str, syncs: int
) -> None:
    keeper = Keeper(tmp_path, "full", journal_sync=sync)
    keeper.journaling.start("1")
    add_queue(keeper.vhost, "q")
    for _ in range(3):
        keeper.tick()
        for work, done in keeper.work:
            work()
            done(None)
        keeper.work.clear()
    assert synced == [only_file(tmp_path)] * syncs


def test_a_slow_sync_is_not_started_again(tmp_path: Path, synced: list[int]) -> None:
    keeper = Keeper(tmp_path, "full", journal_sync="second")
    keeper.journaling.start("1")
    add_queue(keeper.vhost, "q")
    keeper.tick(5)
    ((work, done),) = keeper.work
    before = len(os.listdir("/proc/self/fd"))
    work()
    assert len(os.listdir("/proc/self/fd")) < before
    done(None)
    assert synced == [only_file(tmp_path)]
    keeper.tick()
    assert len(keeper.work) == 2


def test_a_file_may_be_ended_while_it_is_synced(tmp_path: Path, synced: list[int]) -> None:
    keeper = Keeper(tmp_path, "full", journal_sync="second")
    keeper.journaling.start("1")
    add_queue(keeper.vhost, "q")
    keeper.tick()
    ((work, _),) = keeper.work
    keeper.journaling.stop(closed=True)
    work()
    assert synced == [only_file(tmp_path)]


def sync_lines(lines: list[MutableMapping[str, Any]]) -> list[tuple[str, str | None]]:
    """The log lines about syncs: the event and the reason."""
    return [(line["event"], line.get("reason")) for line in lines if "synced" in line["event"]]


def test_a_failed_sync_is_logged_once_and_tried_again(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, "full", journal_sync="second")
    keeper.journaling.start("1")
    add_queue(keeper.vhost, "q")
    with capture_logs() as lines:
        for error in (NO_SPACE, NO_SPACE, None, None):
            keeper.tick()
            ((_, done),) = keeper.work
            keeper.work.clear()
            done(error)
    assert sync_lines(lines) == [
        ("the journal cannot be synced", str(NO_SPACE)),
        ("the journal is synced again", None),
    ]


def test_a_sync_without_a_descriptor_is_logged_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = Keeper(tmp_path, "full", journal_sync="second")
    keeper.journaling.start("1")
    add_queue(keeper.vhost, "q")
    with capture_logs() as lines:
        with monkeypatch.context() as patched:
            patched.setattr(os, "dup", raise_no_descriptor)
            keeper.tick(2)
        assert keeper.work == []
        keeper.tick()
        ((work, done),) = keeper.work
        work()
        done(None)
    assert sync_lines(lines) == [
        ("the journal cannot be synced", str(NO_DESCRIPTOR)),
        ("the journal is synced again", None),
    ]


def raise_no_descriptor(_: int) -> int:
    raise NO_DESCRIPTOR


@pytest.mark.parametrize("closed", [True, False])
def test_nothing_is_journaled_after_the_stop(tmp_path: Path, closed: bool) -> None:
    keeper = Keeper(tmp_path, "full")
    keeper.journaling.start("1")
    for number in range(SLICE + 1):
        add_queue(keeper.vhost, str(number))
    keeper.turn()
    keeper.tick(MINUTE - 1)
    keeper.journaling.tick()  # the checkpoints of the last queue wait for the next turn
    publish(keeper.vhost, "", "0")
    keeper.journaling.stop(closed)
    assert all(timer.is_cancelled for timer in keeper.timers)

    before = {path.name: path.read_bytes() for path in (tmp_path / "live").iterdir()}
    publish(keeper.vhost, "", "0")
    keeper.turn()
    keeper.run_timers()
    assert {path.name: path.read_bytes() for path in (tmp_path / "live").iterdir()} == before
    assert not any(name.endswith(".open") for name in before)
