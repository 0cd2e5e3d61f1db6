"""The audit compares files with the manifest first: in a folder, behind a URL, and with their broker."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from broker.journal.seal import delete_sealed, seal
from pipeline.digest.sources import live_journal_digest, sealed_journal_digest
from pipeline.jobs.audit import audit
from pipeline.journal.inventory import check_sealed
from tests.support.journal.handmade_journal import EventWriter, file_of, write_file
from tests.support.pipeline.broker import Broker

pytestmark = pytest.mark.spark

FILES = 3
EVENTS = 18
Rows = list[dict[str, Any]]
Spoil = Callable[[Path, Path], None]


def journal(folder: Path) -> list[Path]:
    """A journal of three sealed files; returns these."""
    scribe = EventWriter()
    for _ in range(FILES):
        write_file(folder, file_of(scribe, 2))
    list(seal(folder))
    delete_sealed(folder, 1e12, 0)
    return sorted(folder.glob("parquet/*/*/*.parquet"))


def delete(path: Path, other: Path) -> None:
    path.unlink()


def double(path: Path, other: Path) -> None:
    shutil.copy(path, path.with_name("a copy.parquet"))


def replace(path: Path, other: Path) -> None:
    shutil.copy(other, path)


def damage(path: Path, other: Path) -> None:
    path.write_bytes(b"x" * 1000)


def faults(rows: Rows) -> list[tuple[str, str]]:
    return [(row["what"], Path(row["file"]).name) for row in rows]


CASES = [
    pytest.param(which, spoil, what, marks=() if which == place else pytest.mark.nightly)
    for which in range(FILES)
    for place, (spoil, what) in enumerate([(delete, "missing"), (double, "doubled"), (replace, "changed")])
]


@pytest.mark.parametrize(("which", "spoil", "what"), CASES)
def test_a_file_that_is_not_as_the_manifest_says(
    spark: SparkSession, tmp_path: Path, which: int, spoil: Spoil, what: str
) -> None:
    files = journal(tmp_path)
    path = files[which]
    spoil(path, files[which - 1])
    wanted = [(what, "a copy.parquet" if spoil is double else path.name)]

    for where in (str(tmp_path), str(tmp_path / "parquet"), f"file://{tmp_path}/parquet"):
        held = check_sealed(spark, where)
        assert (faults(held.faults), held.judged) == (wanted, True)


@pytest.mark.nightly
@pytest.mark.parametrize("which", range(FILES), ids=["first", "middle", "last"])
def test_the_audit_tells_of_missing_files_and_reads_no_copies(
    spark: SparkSession, tmp_path: Path, which: int
) -> None:
    files = journal(tmp_path)
    double(files[0], files[0])

    report = audit(sealed_journal_digest(spark, str(tmp_path)))
    assert faults(report.rows["file"]) == [("doubled", "a copy.parquet")]
    assert {kind: count for kind, count in report.findings.items() if count} == {"file": 1}
    assert report.events == EVENTS

    delete(files[which], files[0])
    report = audit(sealed_journal_digest(spark, str(tmp_path)))
    both = [("doubled", "a copy.parquet"), ("missing", files[which].name)]
    assert sorted(faults(report.rows["file"])) == both
    live = audit(live_journal_digest(spark, {"path": str(tmp_path)}))
    assert sorted(faults(live.rows["file"])) == both


@pytest.mark.nightly
def test_a_folder_without_a_manifest(spark: SparkSession, tmp_path: Path) -> None:
    journal(tmp_path)
    (tmp_path / "manifest.jsonl").unlink()

    report = audit(sealed_journal_digest(spark, str(tmp_path)))

    assert [(row["what"], row["file"]) for row in report.rows["file"]] == [("missing", "manifest.jsonl")]

    for path in tmp_path.glob("parquet/*/*/*.parquet"):
        path.rename(path.with_name(f"part-{path.name[4:24]}.parquet"))
    report = audit(sealed_journal_digest(spark, str(tmp_path)))
    assert report.findings["file"] == 0
    assert "no manifest" in report.not_judged["file"]


@pytest.mark.nightly
@pytest.mark.parametrize("damage", [replace, damage], ids=["another file", "no file of Parquet"])
def test_a_live_audit_reads_no_changed_files(spark: SparkSession, tmp_path: Path, damage: Spoil) -> None:
    files = journal(tmp_path)
    damage(files[1], files[0])

    report = audit(live_journal_digest(spark, {"path": str(tmp_path)}))

    assert faults(report.rows["file"]) == [("changed", files[1].name)]
    assert report.events == EVENTS - EVENTS // FILES


def test_the_broker_compares_its_files(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    (tmp_path / "broker").mkdir()
    broker = Broker(tmp_path / "broker", "--journal", "full", "--journal-dir", str(folder))
    broker.daemon.stop()
    list(seal(folder))
    delete_sealed(folder, 1e12, 0)
    (path,) = folder.glob("parquet/*/*/*.parquet")
    broker.restart()
    try:
        url = {"url": broker.daemon.admin.replace("http://", "http://guest:guest@")}
        assert audit(live_journal_digest(spark, url)).findings["file"] == 0
        path.unlink()
        report = audit(live_journal_digest(spark, url))
    finally:
        broker.stop()
    assert faults(report.rows["file"]) == [("missing", path.name)]
