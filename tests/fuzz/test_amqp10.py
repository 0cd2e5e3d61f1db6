"""A minute of fuzzing the decoders of AMQP 1.0; findings are tried compiled too, if possible."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.amqp10.invariants import check_invariants
from tests.support.daemon.daemon import clean_environment

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60

pytestmark = pytest.mark.nightly


def test_no_bytes_are_a_surprise(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris is not installed")
    sources, found = tmp_path / "sources", tmp_path / "found"
    for name in ("broker", "config", "protocol", "tests"):  # compiled modules do not tell their coverage
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    found.mkdir()
    options = [f"-max_total_time={SECONDS}", "-seed=1", f"-artifact_prefix={tmp_path}/"]
    # Linux counts the memory of the process that forks in the peak of the program that the child becomes, and
    # libFuzzer limits this peak. So a small process forks, instead of the one that runs the tests.
    done = subprocess.run(
        ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-m", "tests.fuzz.amqp10", str(found), *options],
        cwd=sources,
        env=clean_environment() | {"PYTHONPATH": str(sources)},
        capture_output=True,
        text=True,
        check=False,
        errors="replace",
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    inputs = list(found.iterdir())
    assert len(inputs) > 100, done.stderr[-4000:]
    for path in inputs:
        check_invariants(path.read_bytes())
