"""Journal files as they are written: ended in time, found again after a crash, and never in the way."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.journal.verification import Verification
from broker.journal.writer import FULL, LIFECYCLE, OFF, JournalWriter
from protocol.journal import records as r
from protocol.journal.rows import EventRow
from tests.support.journal.handmade_journal import NODE, EventWriter, rows_of

MIB = 2**20
PLENTY = 10 * MIB


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


class Disk:
    """A replacement of `os.write` that fails or writes a part."""

    def __init__(self) -> None:
        self.error = 0
        self.least = 1 << 30

    def write(self, fd: int, data: bytes) -> int:
        if self.error:
            os.write(fd, data[:7])
            raise OSError(self.error, os.strerror(self.error))
        return os.write(fd, data[: self.least])


Make = Callable[..., JournalWriter]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def make(tmp_path: Path, clock: Clock, disk: Disk) -> Make:
    def made(bytes_max: int = MIB, seconds_max: int = 60) -> JournalWriter:
        return JournalWriter(tmp_path, NODE, clock, bytes_max, seconds_max, MIB, disk.write)

    return made


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "live").glob("*"))


def rows(folder: Path) -> list[EventRow]:
    """Return the rows of all files, in order."""
    return [row for path in sorted((folder / "live").glob("*")) for row in rows_of(path.read_bytes())]


def events(folder: Path) -> list[tuple[int, str]]:
    return [(row.seq, row.op) for row in rows(folder)]


def name(first: int, ended: bool = True) -> str:
    return f"{NODE}-{first:020d}.ajl" + ("" if ended else ".open")


LIFE = ["enqueue", "deliver", "ack"]


def test_no_file_is_created_before_the_first_event(make: Make, tmp_path: Path) -> None:
    writer = make()
    writer.flush()
    writer.tick(PLENTY)
    writer.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_open_until_it_is_ended(make: Make, tmp_path: Path) -> None:
    writer = make()
    EventWriter(writer.encoder).life_of(1)
    writer.flush()
    assert files(tmp_path) == [name(1, ended=False)]
    assert (writer.begins, writer.behind) == (1, 4)
    assert (tmp_path / "live").stat().st_mode & 0o777 == 0o700
    writer.close()
    assert files(tmp_path) == [name(1)]
    assert writer.begins == writer.behind == 5, "the next file would begin there"
    assert events(tmp_path) == list(enumerate([*LIFE, "end"], 1))


def test_a_writer_continues_the_last_file(make: Make, tmp_path: Path) -> None:
    for uid in (1, 2):
        writer = make()
        assert not writer.crashed
        EventWriter(writer.encoder).life_of(uid)
        writer.close()
    assert files(tmp_path) == [name(1), name(5)]
    assert events(tmp_path) == list(enumerate([*LIFE, "end"] * 2, 1))


def test_a_large_file_is_ended(make: Make, tmp_path: Path) -> None:
    writer = make(bytes_max=500)
    scribe = EventWriter(writer.encoder)
    for uid in range(1, 4):
        scribe.life_of(uid)
        writer.flush()
    writer.close()
    assert files(tmp_path) == [name(1), name(7)]


def test_an_old_file_is_ended(make: Make, tmp_path: Path, clock: Clock) -> None:
    writer = make(seconds_max=60)
    EventWriter(writer.encoder).life_of(1)
    writer.flush()
    clock.now += 59_999_999
    writer.tick(PLENTY)
    assert files(tmp_path) == [name(1, ended=False)]
    clock.now += 1
    writer.tick(PLENTY)
    assert files(tmp_path) == [name(1)]


def test_a_write_in_parts(make: Make, tmp_path: Path, disk: Disk) -> None:
    disk.least = 5
    writer = make()
    EventWriter(writer.encoder).life_of(1)
    writer.close()
    assert events(tmp_path) == list(enumerate([*LIFE, "end"], 1))


@pytest.mark.parametrize("cut", [0, 1, 100, 250], ids=str)
def test_after_a_crash_there_is_a_gap(make: Make, tmp_path: Path, cut: int) -> None:
    writer = make()
    scribe = EventWriter(writer.encoder)
    for uid in (1, 2, 3):
        scribe.life_of(uid)
        writer.flush()
    path = tmp_path / "live" / name(1, ended=False)
    os.truncate(path, path.stat().st_size - cut)
    whole = [9, 6, 6, 3][[0, 1, 100, 250].index(cut)]
    again = make()
    assert again.crashed
    EventWriter(again.encoder).life_of(4)
    again.close()
    assert files(tmp_path) == [name(1), name(whole + 1)]
    expected = [*(LIFE * 3)[:whole], "gap", *LIFE, "end"]
    assert events(tmp_path) == list(enumerate(expected, 1))
    (gap,) = [row for row in rows_of((tmp_path / "live" / name(whole + 1)).read_bytes()) if row.op == "gap"]
    assert gap.text == "the broker ended without a clean stop"
    assert gap.quantity == 0, "the seqs go on without a hole"


def test_a_crash_between_two_files_is_a_crash(make: Make, tmp_path: Path, clock: Clock) -> None:
    writer = make(seconds_max=1)
    EventWriter(writer.encoder).life_of(1)
    writer.flush()
    clock.now += 2_000_000
    writer.tick(PLENTY)
    assert files(tmp_path) == [name(1)]
    assert make().crashed


def test_a_file_of_a_crash_without_an_event_is_no_file(make: Make, tmp_path: Path) -> None:
    writer = make()
    EventWriter(writer.encoder).life_of(1)
    writer.flush()
    path = tmp_path / "live" / name(1, ended=False)
    os.truncate(path, 10)
    make().close()
    assert events(tmp_path) == [(1, "gap"), (2, "end")]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_events_that_cannot_be_written_are_lost_and_reported(
    make: Make, tmp_path: Path, disk: Disk, error: int
) -> None:
    writer = make()
    scribe = EventWriter(writer.encoder)
    scribe.life_of(1)
    writer.flush()
    disk.error = error
    scribe.life_of(2)
    writer.flush()
    assert (writer.lost, writer.failure) == (3, os.strerror(error))
    writer.tick(PLENTY)  # the disk still fails
    assert writer.lost == 4
    disk.error = 0
    writer.tick(PLENTY)
    assert writer.failure == ""
    scribe.life_of(3)
    writer.close()
    expected = [*enumerate(LIFE, 1), (8, "gap"), *enumerate([*LIFE, "end"], 9)]
    assert events(tmp_path) == expected
    assert [row.text for row in rows(tmp_path) if row.text] == [
        f"the journal could not be written: {os.strerror(error)}"
    ]


@pytest.mark.parametrize(
    ("free", "later_events"),
    [(None, []), (PLENTY, []), (MIB - 1, ["level"])],
    ids=["at once", "at the tick", "with less space"],
)
@pytest.mark.parametrize("failures", [1, 3], ids=str)
def test_lost_events_have_a_gap_directly_behind_them(
    make: Make, tmp_path: Path, disk: Disk, failures: int, free: int | None, later_events: list[str]
) -> None:
    writer = make()
    scribe = EventWriter(writer.encoder)
    scribe.life_of(1)
    writer.flush()
    disk.error = errno.ENOSPC
    for uid in range(failures):
        scribe.life_of(2 + uid)
        writer.flush()
    disk.error = 0
    scribe.life_of(9)
    if free is None:
        writer.flush()
    else:
        writer.tick(free)
    writer.close()
    assert writer.failure == ""
    behind = 4 + writer.lost
    assert events(tmp_path) == [*enumerate(LIFE, 1), *enumerate(["gap", *LIFE, *later_events, "end"], behind)]
    verification = Verification()
    verification.take(rows(tmp_path))
    assert (verification.findings, verification.gaps) == ([], 1)
    assert [row.quantity for row in rows(tmp_path) if row.op == "gap"] == [writer.lost]


def test_behind_a_file_that_cannot_be_ended_there_is_a_gap(make: Make, tmp_path: Path, clock: Clock) -> None:
    writer = make(seconds_max=60)
    scribe = EventWriter(writer.encoder)
    scribe.life_of(1)
    writer.flush()
    (tmp_path / "live" / name(1, ended=False)).unlink()  # by somebody else
    clock.now += 60_000_000
    writer.tick(PLENTY)
    assert writer.failure
    scribe.life_of(2)
    writer.close()
    assert writer.failure == ""
    assert events(tmp_path) == list(enumerate(["gap", *LIFE, "end"], 4))


def test_a_folder_that_cannot_be_made_does_not_raise(make: Make, tmp_path: Path) -> None:
    (tmp_path / "live").write_text("in the way")
    writer = make()
    EventWriter(writer.encoder).life_of(1)
    writer.flush()
    assert (writer.lost, writer.failure) == (3, "File exists")
    (tmp_path / "live").unlink()
    writer.tick(PLENTY)
    writer.close()
    assert events(tmp_path) == [(4, "gap"), (5, "end")]


def test_low_disk_space_lowers_the_journal_level(make: Make, tmp_path: Path) -> None:
    writer = make()
    limits = []
    for free in (MIB, MIB - 1, MIB // 2 - 1, MIB // 2, -1):
        writer.tick(free)
        limits.append(writer.limit)
    assert limits == [FULL, LIFECYCLE, OFF, LIFECYCLE, FULL]
    writer.close()
    found = rows_of((tmp_path / "live" / name(1)).read_bytes())
    assert [(row.op, row.reason) for row in found] == [
        ("level", "lifecycle"),
        ("level", "off"),
        ("gap", None),
        ("level", "lifecycle"),
        ("level", "full"),
        ("end", None),
    ]


def test_free_space_is_found_before_the_folder_is_there(make: Make) -> None:
    assert make().free_bytes() > 0


def test_an_open_file_is_offered_for_sync(make: Make) -> None:
    writer = make()
    assert writer.to_sync() == -1
    writer.encoder.record(1, r.GAP, 0, -1, 0, None, None, None, 0, 0, 0, 0, b"")
    writer.flush()
    os.fsync(writer.to_sync())
    writer.close()
    assert writer.to_sync() == -1


def test_a_folder_that_may_not_be_searched_has_unknown_room(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    writer = make()
    monkeypatch.setattr(Path, "exists", refuse)
    assert writer.free_bytes() == -1
