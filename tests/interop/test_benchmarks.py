"""The benchmarks that nothing else runs, on a small scale: they run, and print figures of a real broker."""

import re
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.amqpd_only("measures amqpd")]

GOALS_MISSED = 2  # the exit code of a benchmark on a slow or busy machine


@pytest.mark.parametrize(
    ("command", "figure"),
    [
        ("operators list --rounds 10", r"CPU: by name, the first 50 +([\d,.]+) ms"),
        ("operators scrape --rounds 10", r"longest turn: /metrics +([\d,.]+) ms"),
        ("operators watched --minutes 0.5", r"ratio +([\d,.]+)"),
        ("dispatch --calls 2000 --times 1", r"calls/s: best ([\d,]+)"),
    ],
)
def test_a_benchmark_prints_its_figures(command: str, figure: str) -> None:
    if "watched" in command:
        pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra `peers`")
    name, *options = command.split()
    done = subprocess.run(
        [sys.executable, "-m", f"tests.bench.{name}", *options], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, GOALS_MISSED), done.stdout + done.stderr
    found = re.search(figure, done.stdout)
    assert found is not None, done.stdout
    assert float(found[1].replace(",", "")) > 0, done.stdout
