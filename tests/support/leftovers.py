"""A test run leaves no process and no file behind, however the run ends. Linux only.

All processes of a run carry MARK in their environment, and all temporary files lie in one folder. A keeper
process outlives the run: when pytest ends or is killed, the keeper kills the marked processes and deletes the
folder. A run that ends in order and leaves processes behind fails: a test did not stop what the test started.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MARK = "TESTS_OF_AMQPD"  # not AMQPD_...: tests start daemons without the variables that set the daemon up
GRACE_S = 3.0
OWN = "from multiprocessing.resource_tracker import main"  # Python starts one in pytest; it ends with pytest
ENDED, FAILED = "ended", "failed"


class Leftovers:
    """The run's mark, its folder, and the keeper process, as the pytest process sees them."""

    def __init__(self) -> None:
        """Start the keeper. Processes and temporary files made from now on belong to the run."""
        self.folder = Path(tempfile.mkdtemp(prefix="amqpd-tests-"))
        self._keeper = subprocess.Popen(  # without the mark, and out of reach of the terminal's signals
            [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        tempfile.tempdir = os.environ["TMPDIR"] = os.environ[MARK] = str(self.folder)

    def end(self, failed: bool) -> list[str]:
        """Return the commands of the processes that tests left behind. A failed run keeps its files."""
        tempfile.tempdir = None
        del os.environ["TMPDIR"], os.environ[MARK]
        output, _ = self._keeper.communicate(FAILED if failed else ENDED)
        return output.splitlines()


def can_keep() -> bool:
    """Whether a keeper can watch this run: the system is Linux, and no outer run has a keeper already."""
    return MARK not in os.environ and sys.platform == "linux" and hasattr(os, "pidfd_open")


def marked(folder: str) -> dict[int, str]:
    """The processes of the run whose mark is `folder`, with their commands."""
    mark = f"{MARK}={folder}".encode()
    found: dict[int, str] = {}
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and mark in (process / "environ").read_bytes().split(b"\0"):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if command and OWN not in command:  # a zombie has no command
                    found[int(process.name)] = command.strip()
        except OSError:
            continue  # another user's, or deleted meanwhile
    return found


def kill_all(folder: str) -> None:
    """Kill the processes of a run until none is left: a process may start another meanwhile."""
    for _ in range(100):
        found = marked(folder)
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)


def keep(pid: int, folder: str) -> None:
    """The keeper: wait until the pytest process `pid` says how it ends, or dies; then clean up."""
    end = ""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        pass
    else:
        # a forked child of pytest may keep the pipe open: the process itself is what counts
        select.select([pidfd, sys.stdin], [], [])
        if select.select([sys.stdin], [], [], 0)[0]:
            end = sys.stdin.read()
    deadline = time.monotonic() + (GRACE_S if end else 0)
    while (left := marked(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    kill_all(folder)
    if end != FAILED or not os.listdir(folder):
        shutil.rmtree(folder, ignore_errors=True)
    if end:
        sys.stdout.writelines(f"{command}\n" for command in left.values())


if __name__ == "__main__":
    keep(int(sys.argv[1]), sys.argv[2])
