"""Progress bars: at a terminal, for work that lasts, and never elsewhere."""

import os
import pty
import subprocess
import sys
from pathlib import Path

from broker.offline import open_log
from broker.progress import ignore_progress, show_progress
from broker.store.disk import RealDisk
from broker.store.repair.check import check, repair

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from broker import progress
progress.DELAY_SECONDS = float(sys.argv[1])
with progress.show_progress("import") as advance:
    advance(1, 4)
    print("working", flush=True)
    sys.stdin.readline()
print("done", flush=True)
"""


def run(delay: str, expected: bytes) -> tuple[bytes, bytes]:
    """Run work until its terminal has shown `expected`; return its output there and elsewhere."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, delay],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
        cwd=ROOT,
        env=environment,
    ) as work:
        os.close(theirs)
        assert work.stdout is not None
        assert work.stdin is not None
        output = work.stdout.readline()
        shown = b""
        while expected not in shown:
            shown += os.read(ours, 65536)
        work.stdin.write(b"\n")
        work.stdin.flush()
        output += work.stdout.read()
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    assert work.returncode == 0
    return shown, output


def test_a_bar_is_shown_at_a_terminal_only() -> None:
    shown, output = run("0", b"25%")
    assert b"import" in shown
    assert output == b"working\ndone\n", "the output for programs is the same"


def test_short_work_shows_nothing() -> None:
    shown, _ = run("3600", b"")
    assert shown == b""


def test_a_check_and_a_repair_report_their_segments(tmp_path: Path) -> None:
    with open_log(tmp_path):
        pass
    for work in (check, repair):
        steps: list[tuple[int, int]] = []
        work(str(tmp_path), RealDisk(), lambda done, total: steps.append((done, total)))  # noqa: B023
        assert steps[0] == (1, 2)
        assert all(done <= total == 2 for done, total in steps)


def test_without_a_terminal_there_is_no_bar() -> None:
    with show_progress("import") as advance:
        assert advance is ignore_progress
