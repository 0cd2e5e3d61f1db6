"""`--since`: only events from a time on, in sealed journals and in live ones."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from broker.journal.seal import delete_sealed, seal
from pipeline.arguments import parser
from pipeline.digest.sources import from_time, live_journal_digest, read, sealed_journal_digest
from pipeline.journal.frames import fix_end
from pipeline.journal.journals import FolderJournal
from pipeline.journal.options import journal_options
from pipeline.journal.plan import resolve_bound
from pipeline.runs import run
from tests.pipeline.frames import table
from tests.pipeline.test_order import enqueue
from tests.support.daemon.daemon import ROOT
from tests.support.journal.handmade_journal import NODE, STARTED, EventWriter, file_of, write_file

pytestmark = pytest.mark.spark

SINCE = datetime(2026, 1, 10, 0, 0, 0, 1_001, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
HOUR_US = 3_600_000_000
BEGUN = STARTED + HOUR_US
"""When the second of three files of a journal that goes on begins."""
LATER = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=BEGUN + 4)
"""The time when the second life begins, as its fourth event and in the same millisecond as the first."""


def at(uid: int, time: datetime) -> dict[str, Any]:
    return enqueue(uid) | {"seq": uid, "ts": time}


def write(path: Path, *events: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table(list(events)), path)


def summary_since(spark: SparkSession, journal: Path, since: datetime | None, *words: str) -> dict[str, Any]:
    """Return a job's summary of the events from a time on."""
    options = parser().parse_args(["run", *words, "--journal", str(journal)])
    return run(spark, options, since, lambda text: None)[1]


def enqueued(summary: dict[str, Any]) -> int:
    return sum(int(row["enqueued"]) for row in summary["first"])


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """Days of a journal: the first cannot be read, and the file of the second goes on in the third."""
    days = tmp_path / "parquet"
    damaged = days / "date=2026-01-08" / "a-0.parquet"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"nobody opens it")
    early = [at(1, SINCE - timedelta(hours=1)), at(2, SINCE - MOMENT), at(3, SINCE)]
    write(days / "date=2026-01-09" / "a-1.parquet", *early)
    write(days / "date=2026-01-10" / "a-4.parquet", at(4, SINCE + MOMENT))
    return tmp_path


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """Three files of two lives each, an hour apart: sealed, ended, and still written."""
    scribe = EventWriter()
    write_file(tmp_path, file_of(scribe, 2))
    assert list(seal(tmp_path))
    assert delete_sealed(tmp_path, datetime.now(UTC).timestamp() + 10, 0)
    for number, ended in ((1, True), (2, False)):
        scribe.time = STARTED + number * HOUR_US
        write_file(tmp_path, file_of(scribe, 2), ended=ended)
    return tmp_path


def test_a_job_has_sealed_events_from_then_on_and_opens_no_older_days(
    spark: SparkSession, sealed: Path
) -> None:
    assert enqueued(summary_since(spark, sealed, SINCE, "traffic")) == 2
    assert enqueued(summary_since(spark, sealed, SINCE - MOMENT, "traffic")) == 3
    assert enqueued(summary_since(spark, sealed, SINCE + 2 * MOMENT, "traffic")) == 0


def test_an_audit_has_sealed_events_from_then_on_and_opens_no_older_days(
    spark: SparkSession, sealed: Path
) -> None:
    summary = summary_since(spark, sealed, SINCE, "audit")

    assert (summary["events"], summary["entries"], summary["first"]) == (2, 2, SINCE)
    looked_up = sealed_journal_digest(spark, str(sealed), since=SINCE).events.select("msg_uid").collect()
    assert {row["msg_uid"] for row in looked_up} == {3, 4}


def test_a_job_has_live_events_from_then_on(spark: SparkSession, live: Path) -> None:
    assert enqueued(summary_since(spark, live, None, "traffic", "--live")) == 6
    assert enqueued(summary_since(spark, live, LATER, "traffic", "--live")) == 3
    assert enqueued(summary_since(spark, live, LATER + MOMENT, "traffic", "--live")) == 2


def test_an_audit_has_live_events_from_then_on(spark: SparkSession, live: Path) -> None:
    summary = summary_since(spark, live, LATER, "audit", "--live")

    assert (summary["events"], summary["entries"], summary["first"]) == (9, 3, LATER)
    looked_up = live_journal_digest(spark, {"path": str(live)}, since=LATER).events.select("seq").collect()
    assert sorted(row["seq"] for row in looked_up) == list(range(10, 19))


def test_live_files_from_before_are_not_read(live: Path) -> None:
    options = journal_options(fix_end({"path": str(live)}, LATER), streaming=False)

    assert resolve_bound(options.starting, FolderJournal(str(live)), options.fetch_bytes) == {NODE: 7}
    assert options.ending.seqs == ((NODE, 19),)


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_a_digest_is_of_the_events_from_a_moment_on(unit: str) -> None:
    events = table([at(1, SINCE - MOMENT), at(3, SINCE + MOMENT), at(2, SINCE)])
    events = events.set_column(events.column_names.index("ts"), "ts", events["ts"].cast(pa.timestamp(unit)))
    file = pa.BufferOutputStream()
    pq.write_table(events, file)
    micros = round(SINCE.timestamp() * 1e6)

    assert from_time(events, micros)["seq"].to_pylist() == [3, 2]
    (portion,) = read("x", file.getvalue(), micros)
    assert portion["seq"].to_pylist() == [3, 2]


@pytest.mark.nightly
def test_since_is_a_duration_before_now(tmp_path: Path, spark: SparkSession) -> None:
    now = datetime.now(UTC)
    ages = [timedelta(hours=3), timedelta(minutes=61), timedelta(minutes=1)]
    write(tmp_path / "1.parquet", *(at(uid, now - age) for uid, age in enumerate(ages, 1)))
    words = ["traffic", "--journal", str(tmp_path), "--since", "1h", "--master", "local[1]"]

    done = subprocess.run(
        [sys.executable, "-m", "pipeline", "run", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert enqueued(json.loads(done.stdout)) == 1
