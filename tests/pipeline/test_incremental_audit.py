"""An audit that continues from the last one has the same findings as an audit of all events."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from pipeline.arguments import parser
from pipeline.incremental_audit import Batches, follow
from pipeline.jobs.verdicts import MEANINGS
from pipeline.journal.frames import read_events
from protocol.journal import records as r
from tests.bench.journals import Planted
from tests.support.daemon.daemon import PATIENCE_S, ROOT, Output
from tests.support.journal.handmade_journal import EventWriter, file_of, write_file

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def files_of(planted: tuple[Path, Planted]) -> list[Path]:
    """The files of a journal, in order."""
    return sorted((planted[0] / "parquet").rglob("*.parquet"), key=lambda path: path.name)


def publish(files: list[Path], folder: Path, journal: Path) -> None:
    """Have `journal` get files that are in `folder`, each whole at once."""
    for file in files:
        target = journal / file.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = target.with_name(f".{target.name}")
        shutil.copy(file, hidden)
        hidden.rename(target)


def counts(summary: dict[str, Any]) -> dict[str, int]:
    return {kind: summary["verdicts"].get(kind, 0) for kind in MEANINGS}


def wanted(planted: tuple[Path, Planted]) -> dict[str, int]:
    return {kind: len(planted[1].uids.get(kind, ())) for kind in MEANINGS}


class Running(NamedTuple):
    """A process that runs a job, its printed summary, and its standard error."""

    process: subprocess.Popen[bytes]
    errors: Output
    output: Output


@contextmanager
def continuous(folder: Path, journal: Path, *more: str) -> Iterator[Running]:
    """An audit that goes on for ever."""
    words = ["audit", "--journal", str(journal), "--out", str(folder / "out"), "--mode", "continuous", *more]
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline", "run", *words, "--master", "local[2]"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        yield Running(
            process,
            Output(process.stdout, folder / "stdout.txt"),
            Output(process.stderr, folder / "stderr.txt"),
        )
    finally:
        process.kill()
        process.wait()


def ended(running: Running, number: signal.Signals) -> dict[str, Any]:
    """End a job by a signal. Returns its summary; the job has found that something is amiss (status 2)."""
    os.kill(running.process.pid, number)
    assert running.process.wait(PATIENCE_S) == 2, running.output.text()
    running.errors.join()
    running.output.join()
    assert "Traceback" not in running.output.text()
    summary: dict[str, Any] = json.loads(running.errors.text())
    return summary


def test_two_runs_find_the_planted_faults_and_a_repeated_batch_finds_the_same(
    spark: SparkSession, planted: tuple[Path, Planted], tmp_path: Path
) -> None:
    files = files_of(planted)
    journal, out = tmp_path / "journal", tmp_path / "out"
    output: list[str] = []
    words = ["run", "audit", "--journal", str(journal), "--out", str(out), "--mode", "available-now"]
    options = parser().parse_args(words)

    publish(files[:8], planted[0], journal)
    follow(spark, options, output.append)
    publish(files[8:], planted[0], journal)
    found, summary = follow(spark, options, output.append)

    assert found
    assert counts(summary) == wanted(planted)
    assert [line.split(":")[0] for line in output] == ["batch 0", "batch 1"]

    # Spark does a batch again that it has not seen the end of
    before = json.loads((out / "batch=1" / "summary.json").read_text())
    later = read_events(spark, str(journal)).where(f"seq > {int(files[7].stem.split('-')[2])}")
    Batches(spark, out, options.age, options.poison, output.append).take(later, 1)
    assert json.loads((out / "batch=1" / "summary.json").read_text()) == before


def test_the_audit_follows_new_files_until_it_is_stopped(
    planted: tuple[Path, Planted], tmp_path: Path
) -> None:
    files, journal = files_of(planted), tmp_path / "journal"
    publish(files[:8], planted[0], journal)
    total = sum(wanted(planted).values())

    with continuous(tmp_path, journal) as running:
        first = int(running.output.wait_for(r"batch 0: (\d+) findings", 4 * PATIENCE_S)[1])
        publish(files[8:], planted[0], journal)
        running.output.wait_for(rf"batch [1-9]\d*: {total} findings", 4 * PATIENCE_S)
        summary = ended(running, signal.SIGTERM)

    assert first < total
    assert counts(summary) == wanted(planted)


def test_the_audit_follows_live_events_until_it_is_stopped(tmp_path: Path) -> None:
    scribe, journal = EventWriter(), tmp_path / "journal"
    write_file(journal, file_of(scribe, 2))

    with continuous(tmp_path, journal, "--live") as running:
        running.output.wait_for("batch 0: 0 findings; {'ok': 2}", 4 * PATIENCE_S)
        more = file_of(scribe, 3)
        scribe.tell(r.ACK, 7, 7)  # an event of the third life, which is over
        write_file(journal, more + scribe.encoder.take())
        running.output.wait_for(r"batch [1-9]\d*: 1 findings", 4 * PATIENCE_S)
        summary = ended(running, signal.SIGINT)

    assert summary["verdicts"] == {"ok": 4, "double_settled": 1}
