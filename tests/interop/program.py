"""Programs of clients in other languages than ours."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.daemon.daemon import Daemon, Output, clean_environment

PROGRAM_SECONDS = 300


class Program:
    """A running program of a client; its folder gets the output."""

    def __init__(self, command: Sequence[str | Path], daemon: Daemon, folder: Path) -> None:
        self.process = subprocess.Popen(
            [*command, daemon.address.host, str(daemon.address.port)],
            cwd=folder,
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdin = self.process.stdin
        self.steps = Output(self.process.stdout, folder / "steps.txt")
        self.errors = Output(self.process.stderr, folder / "errors.txt")

    def output_text(self) -> str:
        """Return all output so far."""
        return f"{self.steps.text()}\nstandard error:\n{self.errors.text()}"

    def wait_for(self, step: str) -> None:
        """Wait for a step; fails with everything it said if it ends instead."""
        try:
            self.steps.wait_for(f"^{step}$", PROGRAM_SECONDS)
        except AssertionError:
            self.stdin.close()
            self.process.kill()
            self.process.wait()
            self.errors.join()
            raise AssertionError(self.output_text()) from None

    def go_on(self) -> None:
        """Let it continue."""
        self.stdin.write(b"go on\n")
        self.stdin.close()

    def expect_success(self) -> None:
        """Wait for its end; it must have found nothing wrong."""
        self.stdin.close()
        try:
            status = self.process.wait(PROGRAM_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.steps.join()
        self.errors.join()
        assert status == 0, f"exit {status}:\n{self.output_text()}"
