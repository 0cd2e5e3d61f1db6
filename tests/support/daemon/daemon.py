"""The broker as a separate process, started by its command, observed through its output."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = float(
    os.environ.get("AMQPD_PATIENCE_S", "60")
)  # how long a slow machine may take over anything; never a measure of speed

READY = re.compile(
    r"amqp=(?P<amqp_host>\S+):(?P<amqp_port>\d+)\s.*"
    r"admin=(?:off|(?P<admin_host>\S+):(?P<admin_port>\d+))\s.*"
    r"data=(?P<data>\S+)"
)
"""The one line on standard output that says that the broker takes connections."""


class Address(NamedTuple):
    """The address of a listening broker."""

    host: str
    port: int

    def url(self, user: str = "guest", password: str = "guest", query: str = "") -> str:
        """The address as an AMQP URL of the virtual host `/`."""
        return f"amqp://{user}:{password}@{self.host}:{self.port}/%2F{query}"


class Output:
    """Lines that a process writes, gathered by a thread so that the process never waits for the test."""

    def __init__(self, stream: IO[bytes], copy: Path) -> None:
        self.lines: list[str] = []
        self._ended = False
        self._grown = threading.Condition()
        self._thread = threading.Thread(target=self._gather, args=(stream, copy), daemon=True)
        self._thread.start()

    def wait_for(self, pattern: str | re.Pattern[str], patience: float = PATIENCE_S) -> re.Match[str]:
        """The first match of `pattern` in any line, present or to come."""
        wanted = re.compile(pattern)
        seen = 0
        with self._grown:
            while True:
                for line in self.lines[seen:]:
                    if match := wanted.search(line):
                        return match
                seen = len(self.lines)
                if self._ended or not self._grown.wait(patience):
                    raise AssertionError(f"no line matches {wanted.pattern!r} in:\n{self.text()}")

    def text(self) -> str:
        """The text so far."""
        return "\n".join(self.lines)

    def join(self) -> None:
        """Wait until the process has closed its end."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "something still holds the output of a process that ended"

    def _gather(self, stream: IO[bytes], copy: Path) -> None:
        with copy.open("ab") as file, stream:
            for line in stream:
                file.write(line)
                file.flush()
                with self._grown:
                    self.lines.append(line.decode(errors="replace").rstrip())
                    self._grown.notify_all()
        with self._grown:
            self._ended = True
            self._grown.notify_all()


class Daemon:
    """A broker process. Ports are chosen by the system unless given; `folder` gets its data and output."""

    def __init__(
        self,
        folder: Path,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (),
        listen: bool = True,
        data_dir: Path | None = None,
        port: int = 0,
    ) -> None:
        """Start it. `wrapper` is a command that runs it; without `listen` the options say where to listen."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        command = [*wrapper, sys.executable, "-m", "broker", "serve"]
        if listen:
            data_dir = data_dir or folder / "data"
            command += [
                "--listen",
                f"127.0.0.1:{port}",
                "--admin",
                "127.0.0.1:0",
                "--data-dir",
                str(data_dir),
            ]
        self.process = subprocess.Popen(
            [*command, *options],
            cwd=ROOT,
            env=clean_environment() | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdout = Output(self.process.stdout, folder / "stdout.txt")
        self.log = Output(self.process.stderr, folder / "stderr.txt")
        self.ready: re.Match[str] | None = None

    def wait_until_ready(self) -> "Daemon":
        """Wait for the ready line; fails with everything the process said if it ends instead."""
        try:
            self.ready = self.stdout.wait_for(READY)
        except AssertionError:
            self.kill()
            raise AssertionError(
                f"not ready; exit {self.process.returncode}; standard error:\n{self.log.text()}"
            ) from None
        return self

    @property
    def address(self) -> Address:
        """The address of AMQP."""
        assert self.ready is not None
        return Address(self.ready["amqp_host"], int(self.ready["amqp_port"]))

    @property
    def admin(self) -> str:
        """The base URL of the admin HTTP server."""
        assert self.ready is not None
        return f"http://{self.ready['admin_host']}:{self.ready['admin_port']}"

    @property
    def admin_tls(self) -> Address:
        """The address of admin HTTP over TLS."""
        found = re.search(r"admin-tls=(\S+):(\d+)", self.stdout.text())
        assert found is not None, self.stdout.text()
        return Address(found[1], int(found[2]))

    def load_api(self) -> "Daemon":
        """Load the HTTP API: the first request does so, and waits for a second or several."""
        with suppress(HTTPError):
            urlopen(f"{self.admin}/api/", timeout=PATIENCE_S).close()
        return self

    def metric(self, sample: str) -> float:
        """Return the value of a metric; `sample` is its name, with the labels if it has any."""
        path = "/metrics/per-object" if "queue=" in sample else "/metrics"
        with urlopen(f"{self.admin}{path}", timeout=PATIENCE_S) as answer:
            lines = answer.read().decode().splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{sample} "))

    @property
    def pid(self) -> int:
        """The broker's own process id, also when a wrapper runs it."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    def terminate(self) -> None:
        """Ask it to stop, without waiting."""
        os.kill(self.pid, signal.SIGTERM)

    def stop(self) -> None:
        """SIGTERM, and everything that must be true of a clean stop."""
        if self.alive:
            self.terminate()
        self.expect_exit(0)

    def expect_exit(self, status: int) -> None:
        """Wait for the end; checks the exit status and that no exception escaped into the log."""
        try:
            actual = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running; standard error:\n{self.log.text()}") from None
        self._join()
        assert actual == status, f"exit {actual}; standard error:\n{self.log.text()}"
        assert "Traceback" not in self.log.text(), self.log.text()

    def kill(self) -> None:
        """Kill the broker with SIGKILL, as a crash would."""
        self.process.kill()
        self.process.wait()
        self._join()

    def _join(self) -> None:
        self.stdout.join()
        self.log.join()


def clean_environment() -> dict[str, str]:
    """The environment without the broker's own variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith("AMQPD_")}


DaemonStarter = Callable[..., Daemon]
