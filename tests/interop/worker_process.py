"""A framework's worker, as a process of its own that the test starts and ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.daemon.daemon import PATIENCE_S, ROOT, Output, clean_environment


class WorkerProcess:
    """`python -m` something, ready when a line of its standard error says so."""

    def __init__(
        self, folder: Path, arguments: Sequence[str], environment: Mapping[str, str], ready: str
    ) -> None:
        """Start it and wait; `ready` is the pattern of the line. `folder` gets its output."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=ROOT,
            env=clean_environment() | dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stderr is not None
        self.log = Output(self.process.stderr, folder / "worker.txt")
        self.log.wait_for(ready)

    def stop(self) -> None:
        """A warm shutdown."""
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0, self.log.text()
        self.log.join()

    def kill(self) -> None:
        """End it and its children at once, as the end of its machine would."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.join()


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll a condition that no event reports."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "this takes too long"
        time.sleep(0.01)
