"""Days that `retain` has dropped, when the journal is sealed and read: removed, and not missing."""

from __future__ import annotations

import fcntl
import json
import shutil
import time
from datetime import UTC, datetime
from hashlib import file_digest
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from broker.journal.command import app
from broker.journal.files import NextFile, find_next_file
from broker.journal.reader import JournalError, JournalReader
from broker.journal.seal import delete_sealed, seal
from pipeline.errors import PipelineError
from pipeline.lake import retention
from pipeline.lake.retention import list_dropped, retain
from protocol.journal.encoder import Encoder
from protocol.journal.files import DAY, LOCK, MANIFEST
from tests.support.journal.handmade_journal import (
    EVENTS_OF_LIFE,
    NODE,
    STARTED,
    EventWriter,
    file_of,
    write_file,
)

FIRST = "date=2026-11-24"
SECOND = "date=2026-11-25"
LATER = STARTED / 1e6 + 1e8
NOW = datetime(2026, 11, 26, tzinfo=UTC)  # both days are over
KEEP_ONE = 86_400 - 1  # the second one


def put_days(folder: Path, days: int = 2, node: str = NODE) -> list[Path]:
    """Ended raw files, the life of a message each day."""
    scribe = EventWriter(Encoder(node, 1))
    paths = []
    for day in range(days):
        scribe.time = STARTED + day * DAY
        paths.append(write_file(folder, file_of(scribe, 1)))
    return paths


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A journal of two days, which is sealed; no raw files are left."""
    put_days(tmp_path)
    list(seal(tmp_path))
    delete_sealed(tmp_path, LATER, 0)
    return tmp_path


def run(*arguments: object, status: int = 0) -> str:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == status, done.output
    return done.output


def seqs(folder: Path) -> list[int]:
    reading = JournalReader(folder)
    found = [row.seq for row in reading.rows()]
    assert reading.damages == []
    return found


def day_of(folder: Path, day: str) -> Path:
    return folder / "parquet" / day


def test_the_journal_begins_behind_the_dropped_files(sealed: Path) -> None:
    assert retain(sealed, KEEP_ONE, NOW) == {"dropped": [FIRST], "rows": EVENTS_OF_LIFE}

    assert run("verify", sealed) == "3 events, 1 queues, 0 balances, 0 gaps: 0 findings\n"
    assert [line.split()[1] for line in run("cat", sealed).splitlines()] == ["4", "5", "6"]
    assert len(run("show", sealed, "--msg-uid", 4).splitlines()) == EVENTS_OF_LIFE
    document = json.loads(run("status", sealed, "--json"))
    assert (document["sealed_only_files"], document["sealed_only_events"]) == (1, EVENTS_OF_LIFE)


def test_a_journal_of_which_all_was_dropped_is_empty_and_goes_on_where_it_was(sealed: Path) -> None:
    retain(sealed, 0, NOW)

    assert run("verify", sealed) == "0 events, 0 queues, 0 balances, 0 gaps: 0 findings\n"
    assert find_next_file(sealed, NODE) == NextFile(2 * EVENTS_OF_LIFE + 1, True)
    assert list(seal(sealed)) == []


def test_files_missing_without_retention_are_reported(sealed: Path) -> None:
    retain(sealed, KEEP_ONE, NOW)
    (file,) = day_of(sealed, SECOND).rglob("*.parquet")
    file.unlink()

    missing = f"{file}: it is listed in the manifest, but missing"
    assert run("verify", sealed, status=2).splitlines()[0] == missing
    assert run("cat", sealed, status=2) == missing + "\n"
    assert missing in run("show", sealed, "--msg-uid", 4, status=2)


def test_a_day_that_is_dropped_while_it_is_read_is_not_missing(sealed: Path) -> None:
    reading = JournalReader(sealed)
    retain(sealed, KEEP_ONE, NOW)

    assert [row.seq for row in reading.rows()] == [4, 5, 6]
    assert reading.damages == []


def test_raw_files_of_a_dropped_day_are_read_and_not_sealed_again_and_go(tmp_path: Path) -> None:
    paths = put_days(tmp_path)
    list(seal(tmp_path))
    retain(tmp_path, KEEP_ONE, NOW)

    assert list(seal(tmp_path)) == []
    assert seqs(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert delete_sealed(tmp_path, LATER, 0) == paths
    assert seqs(tmp_path) == [4, 5, 6]


def test_raw_files_stay_when_what_was_sealed_is_lost_behind_a_day_that_was_dropped(tmp_path: Path) -> None:
    paths = put_days(tmp_path)
    list(seal(tmp_path))
    retain(tmp_path, KEEP_ONE, NOW)
    next(day_of(tmp_path, SECOND).rglob("*.parquet")).unlink()

    with pytest.raises(JournalError, match="raw files are kept"):
        delete_sealed(tmp_path, LATER, 0)
    assert paths[1].exists()


def test_a_late_sealed_file_of_a_dropped_day_is_removed_with_the_next_run(sealed: Path) -> None:
    retain(sealed, KEEP_ONE, NOW)
    put_days(sealed, days=1, node="other")
    (late,) = seal(sealed)
    assert late.sealed.file.startswith(f"parquet/{FIRST}/")
    delete_sealed(sealed, LATER, 0)

    assert seqs(sealed) == [4, 5, 6, 1, 2, 3]
    assert retain(sealed, KEEP_ONE, NOW) == {"dropped": [FIRST], "rows": EVENTS_OF_LIFE}
    assert seqs(sealed) == [4, 5, 6]
    assert retain(sealed, KEEP_ONE, NOW) == {"dropped": [], "rows": 0}


def test_a_day_stays_of_which_a_file_is_missing_that_was_sealed_late(sealed: Path) -> None:
    retain(sealed, KEEP_ONE, NOW)
    put_days(sealed, days=1, node="other")
    (late,) = seal(sealed)
    (sealed / late.sealed.file).unlink()

    with pytest.raises(PipelineError, match=r"other-\d+-\d+\.parquet is listed in the manifest, but missing"):
        retain(sealed, KEEP_ONE, NOW)


def test_a_run_that_is_killed_at_a_day_is_ended_though_more_was_sealed_into_it(
    sealed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", _die)
        with pytest.raises(KeyboardInterrupt):
            retain(sealed, KEEP_ONE, NOW)
    put_days(sealed, days=1, node="other")
    list(seal(sealed))

    assert retain(sealed, KEEP_ONE, NOW) == {"dropped": [FIRST], "rows": 2 * EVENTS_OF_LIFE}
    assert [path.name for path in (sealed / "parquet").iterdir()] == [SECOND]


def test_a_run_that_is_killed_before_a_day_is_hidden_has_taken_nothing(
    sealed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", _die)
        with pytest.raises(KeyboardInterrupt):
            retain(sealed, KEEP_ONE, NOW)
    assert [drop.day for drop in list_dropped(sealed)] == [FIRST]
    assert seqs(sealed) == [1, 2, 3, 4, 5, 6]

    assert retain(sealed, KEEP_ONE, NOW) == {"dropped": [FIRST], "rows": EVENTS_OF_LIFE}
    assert seqs(sealed) == [4, 5, 6]


def test_a_line_that_a_crash_has_cut_does_not_take_the_next_one_with_it(sealed: Path) -> None:
    with (sealed / MANIFEST).open("ab") as manifest:
        manifest.write(b'{"file": "parquet/da')

    retain(sealed, KEEP_ONE, NOW)
    assert [(drop.day, drop.rows, len(drop.files)) for drop in list_dropped(sealed)] == [(FIRST, 3, 1)]
    assert seqs(sealed) == [4, 5, 6]


def test_no_day_is_dropped_during_sealing(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PATIENCE_S", 0.0)
    put_days(sealed, node="other")
    sealing = seal(sealed)
    next(sealing)

    with pytest.raises(PipelineError, match="is being sealed by another process"):
        retain(sealed, 0, NOW)
    assert len(list(sealed.rglob("*.parquet"))) == 3
    sealing.close()
    assert retain(sealed, KEEP_ONE, NOW)["dropped"] == [FIRST]


def test_retention_waits_for_a_sealer_that_ends(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (sealed / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        monkeypatch.setattr(time, "sleep", lambda _: fcntl.flock(lock, fcntl.LOCK_UN))
        assert retain(sealed, KEEP_ONE, NOW)["dropped"] == [FIRST]


def test_sealing_is_refused_while_days_are_checked(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_days(sealed, days=1, node="other")
    outputs: list[str] = []

    def look(*arguments: Any) -> Any:
        outputs.append(run("seal", sealed, status=1))
        return file_digest(*arguments)

    monkeypatch.setattr(retention, "file_digest", look)
    retain(sealed, KEEP_ONE, NOW)
    (line,) = outputs
    assert line.startswith(f"amqpd journal: {sealed} is being sealed by another process, or old days")
    assert "3 events" in run("seal", sealed)


def test_a_permanent_sealer_continues_after_days_were_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_days(tmp_path)
    turns: list[float] = []
    with (tmp_path / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def pause(seconds: float) -> None:
            turns.append(seconds)
            fcntl.flock(lock, fcntl.LOCK_UN)
            if len(turns) == 2:
                raise KeyboardInterrupt

        monkeypatch.setattr(time, "sleep", pause)
        CliRunner().invoke(app, ["seal", str(tmp_path), "--follow"])
    assert len(turns) == 2
    assert len(list(tmp_path.rglob("*.parquet"))) == 2


def _die(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
