"""The audit finds every fault that was planted, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pipeline.digest.sources import Digest, sealed_journal_digest
from pipeline.jobs.audit import FILE, audit
from pipeline.jobs.facts import NEEDS_FULL
from pipeline.jobs.order import order
from pipeline.journal.frames import read_events
from tests.bench.audit import differences
from tests.bench.journals import Planted
from tests.pipeline.conftest import EVENTS

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def events(spark: SparkSession, planted: tuple[Path, Planted]) -> DataFrame:
    return read_events(spark, str(planted[0])).persist()


def written(spark: SparkSession, events: DataFrame, folder: Path) -> Digest:
    """Return the digest of events that are in files of Spark."""
    events.write.parquet(str(folder / "parquet"))
    return sealed_journal_digest(spark, str(folder))


@pytest.mark.nightly
def test_every_planted_fault_is_found_and_nothing_else(
    spark: SparkSession, planted: tuple[Path, Planted]
) -> None:
    report = audit(sealed_journal_digest(spark, str(planted[0])))

    assert differences(report, planted[1]) == []
    assert not report.clean
    assert report.events == planted[1].events > EVENTS
    assert report.not_judged == {}


@pytest.mark.nightly
def test_missing_and_doubled_events_are_holes_and_no_balance_hides_them(
    spark: SparkSession, events: DataFrame, tmp_path: Path
) -> None:
    last = events.agg(F.max("seq")).collect()[0][0]
    acks = events.where((F.col("op") == "ack") & (F.col("seq") > last // 3)).orderBy("seq").limit(2).collect()
    gone, doubled = acks[0]["seq"], acks[1]["seq"]
    damaged = events.where(F.col("seq") != gone).unionByName(events.where(F.col("seq") == doubled))

    report = audit(written(spark, damaged, tmp_path))

    holes = {(row["before"], row["missing"]) for row in report.rows["hole"]}
    assert holes == {(gone + 1, 1), (doubled, -1)}
    assert report.findings["imbalance"] == 2
    assert doubled in {row["last_seq"] for row in report.rows["double_settled"]}


@pytest.mark.nightly
def test_without_deliveries_an_audit_names_the_findings_that_it_cannot_make(
    spark: SparkSession, events: DataFrame, tmp_path: Path
) -> None:
    less = events.where(F.col("op") != "deliver").replace("full", "lifecycle", ["reason"])

    report = audit(written(spark, less, tmp_path))

    assert set(report.not_judged) == {FILE, *NEEDS_FULL}
    assert all("full" in report.not_judged[kind] for kind in NEEDS_FULL)
    assert report.findings["stuck_unacked"] == report.findings["undelivered"] == 0


@pytest.mark.nightly
def test_a_node_of_its_own_is_audited_on_its_own(
    spark: SparkSession, events: DataFrame, planted: tuple[Path, Planted], tmp_path: Path
) -> None:
    other = events.withColumn("node", F.lit("other"))

    report = audit(written(spark, events.unionByName(other), tmp_path))

    one = planted[1].uids
    assert report.findings["lost"] == 2 * len(one["lost"])
    assert report.findings["double_settled"] == 2 * len(one["double_settled"])
    assert report.findings["hole"] == report.findings["imbalance"] == 0


def test_reordered_deliveries_are_found(events: DataFrame, planted: tuple[Path, Planted]) -> None:
    assert {row["msg_uid"] for row in order(events).collect()} == planted[1].uids["reordered"]


def test_a_column_called_count_is_the_quantity(spark: SparkSession, tmp_path: Path) -> None:
    now = pa.array([1_790_000_000_000_000], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    columns = {"node": ["n"], "seq": [1], "ts": now, "op": ["declare"], "queue_id": [1], "count": [7]}
    pq.write_table(pa.table(columns), tmp_path / "n-1-1.parquet")

    row = read_events(spark, str(tmp_path)).collect()[0]

    assert row["quantity"] == 7
    assert row["message_id"] is None
