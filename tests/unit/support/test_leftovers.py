"""A run of tests that ends or is killed leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.daemon.daemon import PATIENCE_S, ROOT
from tests.support.leftovers import MARK, can_keep, marked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the keeper reads /proc")

STARTS_A_DAEMON = """
import os, tempfile, time
from tests.support.daemon.daemon import Daemon

def test_one(tmp_path):
    daemon = Daemon(tmp_path).wait_until_ready()
    print(tempfile.gettempdir(), flush=True)
    {then}
"""


# a shell without job control has its background commands, so perhaps this run too, ignore SIGINT
PYTEST = """
import signal, sys, pytest
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(pytest.main(sys.argv[1:]))
"""


def run(folder: Path, then: str) -> subprocess.Popen[str]:
    """Start a test run in which a test starts a daemon and does `then`."""
    return run_source(folder, STARTS_A_DAEMON.format(then=then))


def run_source(folder: Path, source: str) -> subprocess.Popen[str]:
    """Start a test run of a single file."""
    (folder / "test_one.py").write_text(source)
    environment = {name: value for name, value in os.environ.items() if name not in (MARK, "TMPDIR")}
    command = [
        sys.executable,
        "-c",
        PYTEST,
        "-q",
        "-s",
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(ROOT),
    ]
    command += ["-p", "no:cacheprovider", "-p", "tests.conftest", str(folder / "test_one.py")]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment | {"TMPDIR": str(folder)}, stdout=subprocess.PIPE, text=True
    )


def test_this_run_is_kept() -> None:
    assert not can_keep()  # a keeper has it already
    assert os.environ["TMPDIR"] == os.environ[MARK]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_leaves_no_process_and_no_file(tmp_path: Path, number: signal.Signals) -> None:
    with run(tmp_path, "time.sleep(600)") as pytest_process:
        assert pytest_process.stdout is not None
        kept = Path(next(line for line in pytest_process.stdout if line.startswith("/")).strip())
        assert any("broker serve" in command for command in marked(str(kept)).values())
        pytest_process.send_signal(number)
        try:
            pytest_process.wait(PATIENCE_S)
        finally:
            pytest_process.kill()
    deadline = time.monotonic() + PATIENCE_S
    while (marked(str(kept)) or kept.exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert marked(str(kept)) == {}
    assert not kept.exists()


def test_a_test_that_does_not_stop_its_daemon_fails_the_run(tmp_path: Path) -> None:
    with run(tmp_path, "globals()['daemon'] = daemon") as pytest_process:
        output, _ = pytest_process.communicate()
    assert pytest_process.returncode == 1
    assert "1 passed" in output
    assert "processes that tests left behind, now killed: ['" in output


def test_a_run_with_failed_tests_keeps_their_files_and_says_where(tmp_path: Path) -> None:
    with run(tmp_path, "daemon.stop(); assert False") as pytest_process:
        output, _ = pytest_process.communicate()
    assert pytest_process.returncode == 1
    kept = Path(output.partition("files of the failed tests: ")[2].split()[0])
    assert any(path.is_file() for path in kept.rglob("*"))


def test_a_failed_run_without_files_leaves_no_folder(tmp_path: Path) -> None:
    with run_source(tmp_path, "def test_one():\n    assert False\n") as pytest_process:
        output, _ = pytest_process.communicate()
    assert pytest_process.returncode == 1
    assert "1 failed" in output
    assert "files of the failed tests" not in output
    assert list(tmp_path.glob("amqpd-tests-*")) == []
