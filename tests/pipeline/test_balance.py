"""Balance and continuity of a journal longer than a block, wherever anchors and holes stand in it."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipeline.arguments import parser
from pipeline.jobs.audit import Audit, audit
from pipeline.runs import run
from tests.pipeline.frames import digested, table

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

BLOCK = 1 << 16
LAST = 2 * BLOCK + 5000
# runs of anchors: over the end of a block, with an event between, at the ends of slices, at the very end
ANCHORS = {9, 10, 4095, 4096, 65535, 65536, 65537, 70000, 70002, 2 * BLOCK - 1, 2 * BLOCK, LAST}
WRONG = 70002
HOLES = {4097, 5000, 5001, 2 * BLOCK - 2}
NODES = ("a", "b")


def journal(node: str, damaged: bool) -> list[dict[str, Any]]:
    """Return events of two queues, each an entry that arrives in a queue, and anchors of both."""
    depths = {1: 0, 2: 0}
    rows = []
    for seq in range(1, LAST + 1):
        queue = 1 + seq % 3 % 2
        row: dict[str, Any] = {
            "node": node,
            "seq": seq,
            "queue_id": queue,
            "queue": f"q{queue}",
            "vhost": "/",
        }
        if seq in ANCHORS:
            wrong = damaged and seq == WRONG
            row |= {"op": "checkpoint", "quantity": depths[queue] + wrong, "reason": "time"}
        elif damaged and seq in HOLES:
            continue
        else:
            row |= {"op": "enqueue", "msg_uid": seq, "qpos": seq, "persistent": True}
            depths[queue] += 1
        rows.append(row)
    return rows


@pytest.fixture(
    scope="module", params=[(), (10, 5000, 65534, 65536, 70001, 70002, 70003, LAST + 4094, LAST + 70000)]
)
def found(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Audit:
    """The audit of a complete and an incomplete node, in a single file and in several."""
    events = table(journal("a", False) + journal("b", True))
    return audit(digested(spark, tmp_path_factory.mktemp("journal"), events, *request.param))


def test_only_the_queue_that_was_miscounted_does_not_add_up(found: Audit) -> None:
    assert found.events == 2 * LAST - len(HOLES)
    wrong = [(row["to_seq"], row["found"] - row["expected"]) for row in found.rows["imbalance"]]
    queue = 1 + WRONG % 3 % 2
    after = min(seq for seq in ANCHORS if seq > WRONG and 1 + seq % 3 % 2 == queue)
    assert sorted(wrong) == [(WRONG, 1), (after, -1)]


def test_holes_are_found_where_they_are(found: Audit) -> None:
    results = {(row["node"], row["after"], row["before"], row["missing"]) for row in found.rows["hole"]}
    end = 2 * BLOCK - 1
    assert results == {("b", 4096, 4098, 1), ("b", 4999, 5002, 2), ("b", end - 2, end, 1)}


def test_a_gap_at_the_beginning_of_a_block_explains_the_hole_before_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    row = {"node": "a", "queue_id": 1, "queue": "q", "vhost": "/"}
    before = [row | {"seq": seq, "op": "deliver", "msg_uid": 1} for seq in range(BLOCK - 9, BLOCK - 2)]
    behind = [row | {"seq": seq, "op": "deliver", "msg_uid": 1} for seq in range(BLOCK + 1, BLOCK + 4)]
    gap = {"node": "a", "seq": BLOCK, "op": "gap"}

    explained = digested(spark, tmp_path / "explained", table([*before, gap, *behind]))
    assert audit(explained).findings["hole"] == 0
    assert audit(digested(spark, tmp_path / "not", table([*before, *behind]))).findings["hole"] == 1


def test_a_list_with_a_gap_in_it_is_not_compared(spark: SparkSession, tmp_path: Path) -> None:
    row = {"node": "a", "queue_id": 1, "queue": "q", "vhost": "/", "op": "recover"}
    one, gap, total = row | {"msg_uid": 1}, {"node": "a", "op": "gap"}, row | {"quantity": 3}
    seqs = count(1)

    def results(*rows: dict[str, Any]) -> list[dict[str, Any]]:
        return [each | {"seq": next(seqs)} for each in rows]

    killed = results(one, one, gap, one, one, one, total)
    hidden = results(gap, one, one, total)  # the numbers that a failed write has taken
    wrong = results(one, total)

    found = audit(digested(spark, tmp_path, table([*killed, *hidden, *wrong]))).rows["imbalance"]

    assert [(row["to_seq"], row["expected"], row["found"]) for row in found] == [(wrong[1]["seq"], 1, 3)]


def test_a_balance_is_unknown_where_files_have_events_across_one_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    row: dict[str, Any] = {"node": "a", "queue_id": 1, "queue": "q", "vhost": "/"}
    events = [row | {"seq": seq, "op": "enqueue", "msg_uid": seq, "qpos": seq} for seq in range(1, 9)]
    for seq, quantity in ((1, 0), (4, 2), (8, 5)):
        events[seq - 1] = row | {"seq": seq, "op": "checkpoint", "quantity": quantity}
    even, odd = (table([each for each in events if each["seq"] % 2 == rest]) for rest in (0, 1))

    report = audit(digested(spark, tmp_path, pa.concat_tables([even, odd]), even.num_rows))

    results = [(row["from_seq"], row["to_seq"], row["expected"]) for row in report.rows["imbalance"]]
    assert results == [(1, 4, None), (4, 8, None)]
    assert report.findings["hole"] == 0

    out = tmp_path / "out"
    words = ["run", "audit", "--journal", str(tmp_path), "--out", str(out)]
    assert run(spark, parser().parse_args(words), None, print)[0]
    assert spark.read.parquet(str(out / "imbalance")).where("expected is null").count() == 2
