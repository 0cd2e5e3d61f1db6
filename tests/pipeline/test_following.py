"""An audit that goes on from where the last one ended finds what an audit of all finds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.command import parser
from pipeline.following import Batches, follow
from pipeline.jobs.verdicts import MEANINGS
from pipeline.journal.reading import read_events
from tests.bench.journals import Planted

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def test_two_runs_find_what_was_planted_and_a_batch_done_again_does_the_same(
    spark: SparkSession, planted: tuple[Path, Planted], tmp_path: Path
) -> None:
    files = sorted((planted[0] / "parquet").rglob("*.parquet"), key=lambda path: path.name)
    journal, out = tmp_path / "journal", tmp_path / "out"
    told: list[str] = []
    words = ["run", "audit", "--journal", str(journal), "--out", str(out), "--mode", "available-now"]
    options = parser().parse_args(words)

    def publish(some: list[Path]) -> None:
        for file in some:
            target = journal / file.relative_to(planted[0])
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)

    publish(files[:8])
    follow(spark, options, told.append)
    publish(files[8:])
    found, summary = follow(spark, options, told.append)

    assert found
    assert {kind: summary["verdicts"].get(kind, 0) for kind in MEANINGS} == {
        kind: len(planted[1].uids.get(kind, ())) for kind in MEANINGS
    }
    assert [line.split(":")[0] for line in told] == ["batch 0", "batch 1"]

    # Spark does a batch again that it has not seen the end of
    before = json.loads((out / "batch=1" / "summary.json").read_text())
    later = read_events(spark, str(journal)).where(f"seq > {int(files[7].stem.split('-')[2])}")
    Batches(spark, out, options.age, options.poison, told.append).take(later, 1)
    assert json.loads((out / "batch=1" / "summary.json").read_text()) == before
