"""Benchmarks of streams, the journal and Spark work, with few messages: their figures are not looked at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.requirements import find_missing

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

ROOT = Path(__file__).resolve().parents[2]
MET, MISSED = 0, 2


@pytest.mark.skipif(bool(find_missing()), reason=f"tests of the pipeline did not run: {find_missing()}")
@pytest.mark.parametrize(
    ("words", "texts"),
    [
        ("audit --events 50000 --faults 5", ["audit"]),
        ("audit --events 50000 --faults 5 --portions", ["audit in portions, warm"]),
        ("spark --rows 40000 --times 1 --warm 1 --rate 100", ["sink", "no broker", "streaming", "p95"]),
        ("staged_sink --rows 8000 --times 1", ["rows/s"]),
        ("streams --messages 200000", ["B each", "ready"]),
        ("journal --seconds 0.3 --rounds 1", ["us"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_benchmark_works(words: str, texts: list[str]) -> None:
    name, *options = words.split()
    command = [sys.executable, "-m", f"tests.bench.{name}", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    found_all = done.returncode == MET if name == "audit" else done.returncode in (MET, MISSED)
    assert found_all, done.stdout + done.stderr
    for text in texts:
        assert text in done.stdout
