"""Debian's Prometheus, which scrapes a broker of a test or of a benchmark."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.admin.api import fetch
from tests.support.daemon.daemon import PATIENCE_S
from tests.support.daemon.rabbitmq import free_port


def tool(name: str) -> str:
    """Return the path of a program of Debian's package `prometheus`."""
    found = shutil.which(name)
    if found is None:
        assert os.environ.get("CI") != "true", f"{name} is not installed"
        pytest.skip(f"needs {name}, of Debian's package prometheus")
    return found


class Prometheus:
    """A Prometheus that runs. `url`: of its HTTP API."""

    def __init__(self, url: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.url = url
        self._process = process
        self._log = log

    def log(self) -> str:
        """Return what it has printed."""
        return self._log.read_text()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an expression."""
        answer = fetch(f"{self.url}/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", (expression, answer)
        result = answer["data"]["result"]
        assert isinstance(result, list)
        return result

    def scrapes(self) -> int:
        """Return how often the target that was scraped least has been scraped in five minutes."""
        assert self._process.poll() is None, self.log()
        try:
            if fetch(f"{self.url}/-/ready").status_code != 200:
                return 0
        except httpx.TransportError:
            return 0
        found = self.query("min(count_over_time(up[5m]))")
        return int(found[0]["value"][1]) if found else 0


@contextmanager
def running_prometheus(folder: Path) -> Iterator[Prometheus]:
    """Run Prometheus with the file `prometheus.yaml` of a folder, which also takes its data."""
    at = f"127.0.0.1:{free_port()}"
    command = [tool("prometheus"), "--config.file=prometheus.yaml", "--storage.tsdb.path=data"]
    log = folder / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, f"--web.listen-address={at}"], cwd=folder, stdout=output, stderr=output
        )
    try:
        yield Prometheus(f"http://{at}", process, log)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
