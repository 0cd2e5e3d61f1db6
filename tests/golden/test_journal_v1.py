"""Journal files of format version 1 keep being readable, raw and sealed."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broker.journal.command import app
from broker.journal.reader import JournalReader

FOLDER = Path(__file__).parent / "journal-v1"
EXPECTED = [json.loads(line) for line in (FOLDER / "rows.jsonl").read_text().splitlines()]
NEW = {"address": None, "request": None}


@pytest.mark.parametrize("sealed", [False, True], ids=["raw", "sealed"])
def test_all_events_are_read_as_they_were_when_they_were_written(tmp_path: Path, sealed: bool) -> None:
    folder = tmp_path / "journal"
    shutil.copytree(FOLDER, folder)
    if sealed:
        (folder / "live" / f"n-1-{1:020d}.ajl").unlink()

    reading = JournalReader(folder)

    assert [row._asdict() for row in reading.rows()] == [row | NEW for row in EXPECTED]
    assert reading.damages == []


def test_a_gap_does_not_say_how_many_events_may_be_missing() -> None:
    gaps = [row for row in JournalReader(FOLDER).rows() if row.op == "gap"]
    assert {row.quantity for row in gaps} == {None}


def test_version_1_is_sealed_beside_later_ones(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    shutil.copytree(FOLDER, folder)
    done = CliRunner().invoke(app, ["seal", str(folder), "--retention", "0"])
    assert done.exit_code == 0, done.output
    assert [row._asdict() for row in JournalReader(folder).rows()] == [row | NEW for row in EXPECTED]
