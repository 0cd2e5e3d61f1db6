"""Sealed days that are let go: all of a day at once, whenever the run is killed."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import PipelineError
from pipeline.journal.journals import FolderJournal
from pipeline.lake.retention import retain

DAY = 1_767_225_600_000_000  # 2026-01-01


def journal(folder: Path, listed: bool = True, hour: int = 0) -> Path:
    first = 2 * hour + 1
    name = f"n-{first:020}-{first + 1:020}.parquet"
    file = folder / "parquet" / "date=2026-01-01" / f"hour={hour:02}" / name
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"seq": [first, first + 1]}), file)
    time = DAY + hour * 3_600_000_000
    line = {"file": str(file.relative_to(folder)), "node": "n", "rows": 2, "first": first, "last": first + 1}
    line |= {"earliest": time, "latest": time, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    if listed:
        with (folder / "manifest.jsonl").open("a") as manifest:
            manifest.write(json.dumps(line) + "\n")
    return file


NOW = datetime(2026, 1, 10, tzinfo=UTC)


def test_days_that_are_old_enough_go(tmp_path: Path) -> None:
    file = journal(tmp_path)

    assert retain(tmp_path, 86_400 * 9, NOW) == {"dropped": [], "rows": 0}
    assert file.exists()
    assert retain(tmp_path, 86_400 * 8, NOW) == {"dropped": ["date=2026-01-01"], "rows": 2}
    assert not file.parents[1].exists()


def test_a_day_is_kept_if_its_files_differ_from_the_manifest(tmp_path: Path) -> None:
    file = journal(tmp_path)
    file.write_bytes(file.read_bytes() + b"x")

    with pytest.raises(PipelineError, match=r"\.parquet is not what the manifest says"):
        retain(tmp_path, 0, NOW)
    assert file.exists()


def test_a_day_stays_that_is_not_listed(tmp_path: Path) -> None:
    file = journal(tmp_path, listed=False)

    with pytest.raises(PipelineError, match="is not in the manifest"):
        retain(tmp_path, 0, NOW)
    assert file.exists()


def test_a_run_that_is_killed_has_deleted_all_of_a_day_for_readers_and_the_next_one_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [journal(tmp_path, hour=hour) for hour in range(3)]
    reader = FolderJournal(str(tmp_path))
    assert reader.extents()["n"].first == 1
    unlink = os.unlink
    deleted: list[str] = []

    def die(path: str, **where: Any) -> None:
        if deleted:
            raise KeyboardInterrupt
        deleted.append(path)
        unlink(path, **where)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", die)
        with pytest.raises(KeyboardInterrupt):
            retain(tmp_path, 0, NOW)
    assert reader.extents()["n"].first == 7, "all of it has been let go"
    assert not any(file.exists() for file in files)

    assert retain(tmp_path, 0, NOW) == {"dropped": ["date=2026-01-01"], "rows": 6}
    assert list((tmp_path / "parquet").iterdir()) == []


def test_files_left_by_a_killed_sealer_are_removed_with_their_day(tmp_path: Path) -> None:
    file = journal(tmp_path)
    file.with_name(".n-3-4.parquet").write_bytes(b"half")

    assert retain(tmp_path, 0, NOW) == {"dropped": ["date=2026-01-01"], "rows": 2}
    assert not file.parents[1].exists()


def test_a_day_with_an_unlisted_file_is_kept(tmp_path: Path) -> None:
    notes = journal(tmp_path).with_name("notes.txt")
    notes.write_text("keep this")

    with pytest.raises(PipelineError, match=r"notes\.txt is not in the manifest"):
        retain(tmp_path, 0, NOW)
    assert notes.exists()
