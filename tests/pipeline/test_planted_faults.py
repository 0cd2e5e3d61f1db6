"""The audit finds each fault of a program that knows nothing of it, before a crash and behind it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from broker.journal.seal import seal
from pipeline.digest.sources import sealed_journal_digest
from pipeline.jobs.audit import Audit, audit
from pipeline.jobs.portions import fold_portion, join_portions, verdicts_of
from pipeline.jobs.verdicts import MEANINGS, Rules
from pipeline.journal.frames import read_events
from tests.support.journal.faults import CRASH_AFTER, FAULTS, MESSAGES, written

pytestmark = pytest.mark.spark

VERDICTS = {
    "to two consumers": "delivered_to_two",
    "to two consumers and back": "delivered_to_two",
    "acked by another consumer": "settled_by_another",
    "acked by another channel": "settled_by_another",
    "acked by another connection": "settled_by_another",
    "acked without a delivery": "settled_undelivered",
    "acked after it came back": "settled_undelivered",
    "acked in another queue": "settled_undelivered",
    "never enqueued": "orphan",
}
LONG_AGO = 100  # seconds


def audited(spark: SparkSession, folder: Path) -> Audit:
    list(seal(folder))
    return audit(sealed_journal_digest(spark, str(folder)))


def findings_by_message(found: Audit) -> set[tuple[int, str]]:
    return {(row["msg_uid"], kind) for kind in MEANINGS for row in found.rows.get(kind, [])}


def others(found: Audit) -> dict[str, int]:
    return {kind: count for kind, count in found.findings.items() if count and kind not in MEANINGS}


def planted() -> dict[int, str]:
    """Return each fault twice: early, and behind the crash."""
    spread = {3 + 5 * number: name for number, name in enumerate(FAULTS)}
    return spread | {CRASH_AFTER + uid: name for uid, name in spread.items()}


def test_each_fault_is_found_before_and_behind_a_crash(spark: SparkSession, tmp_path: Path) -> None:
    faults = planted()
    written(tmp_path, faults)

    report = audited(spark, tmp_path)

    assert findings_by_message(report) == {(uid, VERDICTS[name]) for uid, name in faults.items()}
    assert report.entries == MESSAGES + sum(name == "acked in another queue" for name in faults.values())
    assert set(others(report)) == {"imbalance"}  # messages never enqueued, or that left another queue


def test_a_journal_without_faults_is_clean(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path, {})
    report = audited(spark, tmp_path)
    assert report.clean, report.rows
    assert report.entries == MESSAGES
    assert report.others["ok"] == MESSAGES


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("missing", "excused", "holes"), [(5, 5, []), (5, 2, [3]), (5, 0, [5])], ids=["all", "some", "none"]
)
def test_a_gap_excuses_only_its_number_of_events(
    spark: SparkSession, tmp_path: Path, missing: int, excused: int, holes: list[int]
) -> None:
    written(tmp_path, {}, missing, excused)
    report = audited(spark, tmp_path)
    assert [row["missing"] for row in report.rows.get("hole", [])] == holes


@pytest.mark.nightly
def test_portions_find_the_same(spark: SparkSession, tmp_path: Path) -> None:
    faults = planted()
    written(tmp_path, faults)
    list(seal(tmp_path))
    events = read_events(spark, str(tmp_path))
    cut = 3 * CRASH_AFTER
    carried = join_portions(
        fold_portion(events.where(f"seq <= {cut}")), fold_portion(events.where(f"seq > {cut}"))
    )

    rows = verdicts_of(carried, Rules(now=0)).where("verdict != 'ok'").collect()

    found = {(row["msg_uid"], row["verdict"]) for row in rows if row["verdict"] in MEANINGS}
    assert found == {(uid, VERDICTS[name]) for uid, name in faults.items()}


@pytest.mark.nightly
@pytest.mark.parametrize("fault", ["to two consumers", "to two consumers and back"])
def test_two_deliveries_in_two_portions(spark: SparkSession, tmp_path: Path, fault: str) -> None:
    uid = MESSAGES // 4
    written(tmp_path, {uid: fault})
    list(seal(tmp_path))
    events = read_events(spark, str(tmp_path))
    second = events.where(f"msg_uid = {uid} AND op = 'deliver'").agg(F.max("seq")).collect()[0][0]
    parts = fold_portion(events.where(f"seq < {second}")), fold_portion(events.where(f"seq >= {second}"))

    for carried in (join_portions(*parts), join_portions(*reversed(parts))):
        rows = verdicts_of(carried, Rules(now=0)).where("verdict != 'ok'").collect()
        found = [(row["msg_uid"], row["verdict"]) for row in rows if row["verdict"] in MEANINGS]
        assert found == [(uid, "delivered_to_two")]


@pytest.mark.nightly
def test_the_state_of_an_earlier_version_is_accepted(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path, {})
    list(seal(tmp_path))
    events = read_events(spark, str(tmp_path))
    before, after = (fold_portion(events.where(f"seq {part} {CRASH_AFTER}")) for part in ("<=", ">"))
    new = ("first", "takes", "holder", "acked", "acker", "doubled_from", "doubled_to", "step", "taker")

    carried = join_portions(before._replace(entries=before.entries.drop(*new)), after)

    verdicts = {row["verdict"] for row in verdicts_of(carried, Rules(now=0)).collect()}
    assert verdicts == {"ok"}
