"""`python -m tests.bench.operators NAME`: what those who look at the broker cost it.

`list`     a page of the list of 10,000 queues: CPU of the broker, and its longest turns of the event loop
`scrape`   a scrape of a broker with 20,000 queues: the same
`watched`  20,000 messages a second, by turns alone and with the management page open in Chromium and a
           Prometheus that scrapes every 5 s: CPU of the broker for both

`watched` needs Chromium, Playwright and Prometheus. A figure over its limit makes the exit code 2.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import httpx

from broker.bench.cpu import cpu_seconds
from broker.flavour import FLAVOUR
from tests.bench.loop import Figure
from tests.support.admin.api import Api
from tests.support.admin.chromium import log_in
from tests.support.admin.prometheus import running_prometheus
from tests.support.daemon.daemon import PATIENCE_S, Daemon

TURNS: Final = (sys.executable, "-m", "tests.bench.turns")
WATCHED_RATIO: Final = 1.03
RATE: Final = 20_000
SCRAPE_SECONDS: Final = 5
LISTS: Final = {
    "by name, the first 50": "?page=1&page_size=50&sort=name",
    "by messages, the first 50": "?page=1&page_size=50&sort=messages&sort_reverse=true",
    "by rate, the last 50": "?page=200&page_size=50&sort=message_stats.publish_details.rate",
    "with a filter, by name": "?page=1&page_size=50&sort=name&name=queue.0999",
    "500 of the default order": "?page=1&page_size=500",
}
SCRAPES: Final = {
    "/metrics": "/metrics",
    "/metrics/per-object": "/metrics/per-object",
    "/metrics/detailed, one family": "/metrics/detailed?family=queue_coarse_metrics",
}


@dataclass(frozen=True, slots=True)
class Goals:
    """The most that a request may cost. `cpu`, `turn`: in ms, the CPU of it and the loop's longest turn."""

    cpu: float | None = None
    turn: float | None = None


def declare(daemon: Daemon, count: int) -> None:
    """Declare durable queues by an import of definitions."""
    queue = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    api = Api(daemon.admin)
    queues = [{"name": f"queue.{number:05}"} | queue for number in range(count)]
    api.post("definitions", status=204, body={"queues": queues})
    api.close()
    time.sleep(12)  # all samples of statistics are taken once


def read_often(daemon: Daemon, path: str, rounds: int) -> None:
    """Read an answer some times, on a single connection, as Prometheus and browsers do."""
    with httpx.Client(auth=("guest", "guest"), timeout=PATIENCE_S) as client:
        for _ in range(rounds):
            answer = client.get(f"{daemon.admin}{path}", headers={"Accept-Encoding": "gzip"})
            assert answer.status_code == 200, answer.text


def cost(daemon: Daemon, paths: dict[str, str], rounds: int) -> Iterator[tuple[str, float]]:
    """Yield each name with the broker's CPU for a request, in ms."""
    for name, path in paths.items():
        read_often(daemon, path, 3)
        before = cpu_seconds(daemon.pid)
        read_often(daemon, path, rounds)
        yield name, (cpu_seconds(daemon.pid) - before) / rounds * 1e3


def turns(daemon: Daemon, work: Callable[[], object]) -> list[float]:
    """Return the CPU in ms of the loop's longest turns while `work` is done, the longest first."""
    _printed_turns(daemon)
    work()
    return _printed_turns(daemon)


def _printed_turns(daemon: Daemon) -> list[float]:
    def printed() -> list[str]:
        return [line for line in daemon.stdout.lines if line.startswith("turns: ")]

    before = len(printed())
    daemon.process.send_signal(signal.SIGUSR2)
    deadline = time.monotonic() + PATIENCE_S
    while len(printed()) == before:
        assert time.monotonic() < deadline, "the broker did not print its turns"
        time.sleep(0.01)
    longest: list[float] = json.loads(printed()[-1].removeprefix("turns: "))
    return longest


def read_objects(queues: int, paths: dict[str, str], rounds: int, goals: Goals) -> Iterator[Figure]:
    """Measure requests that read `queues` queues: the CPU of each, then the turns of the loop."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with running(folder / "cpu") as daemon:
            declare(daemon, queues)
            for name, milliseconds in cost(daemon, paths, rounds):
                yield Figure(f"CPU: {name}", milliseconds, "ms", goals.cpu)
        with running(folder / "turns", TURNS) as daemon:
            declare(daemon, queues)
            for name, path in paths.items():
                read_often(daemon, path, 3)
                longest = turns(daemon, partial(read_often, daemon, path, rounds))
                yield Figure(f"longest turn: {name}", longest[0], "ms", goals.turn)
                yield Figure("the tenth longest", longest[9], "ms")


@contextmanager
def running(folder: Path, wrapper: Sequence[str] = ()) -> Iterator[Daemon]:
    """Run a broker whose HTTP API is loaded."""
    daemon = Daemon(folder, wrapper=wrapper)
    try:
        yield daemon.wait_until_ready().load_api()
    finally:
        daemon.stop()


@contextmanager
def scraped(daemon: Daemon, folder: Path) -> Iterator[None]:
    """Scrape the broker with a real Prometheus."""
    host = daemon.admin.removeprefix("http://")
    (folder / "prometheus.yaml").write_text(
        f"global: {{scrape_interval: {SCRAPE_SECONDS}s}}\n"
        f"scrape_configs: [{{job_name: amqpd, static_configs: [{{targets: ['{host}']}}]}}]\n"
    )
    with running_prometheus(folder):
        yield


@contextmanager
def open_page(daemon: Daemon, view: str) -> Iterator[None]:
    """Show a view of the management page in Chromium."""
    from playwright import sync_api  # no part of an ordinary installation of the tests

    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        log_in(page, daemon.admin)
        page.wait_for_selector("nav.main")
        page.goto(f"{daemon.admin}/#/{view}")
        yield
        assert page.locator("main h1").count() == 1
        browser.close()


def block(daemon: Daemon, seconds: int) -> tuple[float, int]:
    """Load the broker; return the CPU seconds and the messages delivered."""
    url = daemon.address.url()
    command = [sys.executable, "-m", "broker", "bench", "--url", url, "--rate", str(RATE), "--json"]
    command += ["--duration", str(seconds), "--size", "256", "--confirm", "200", "--prefetch", "200"]
    command += ["--durable", "--persistent"]
    before = cpu_seconds(daemon.pid)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    spent = cpu_seconds(daemon.pid) - before
    return spent, int(json.loads(done.stdout)["received"])


def watched(minutes: float) -> Iterator[Figure]:
    """Load the broker in blocks, every second one watched; the first block of each kind is not counted."""
    pairs = max(2, round(minutes / 5) + 1)
    seconds = round(minutes * 30 / (pairs - 1))
    alone = seen = 0.0
    count = [0, 0]
    with tempfile.TemporaryDirectory() as made, running(Path(made, "broker")) as daemon:
        for number in range(pairs):
            length = seconds if number else 10
            quiet, first = block(daemon, length)
            with scraped(daemon, Path(made)), open_page(daemon, "overview"):
                observed, second = block(daemon, length)
            print(f"   {length} s: {quiet / first * 1e6:.3f} us alone, {observed / second * 1e6:.3f} watched")
            sys.stdout.flush()
            if number:
                alone, seen = alone + quiet, seen + observed
                count = [count[0] + first, count[1] + second]
    each = [alone / count[0] * 1e6, seen / count[1] * 1e6]
    yield Figure("messages a second, alone", count[0] / seconds / (pairs - 1), "1/s")
    yield Figure("messages a second, watched", count[1] / seconds / (pairs - 1), "1/s")
    yield Figure("CPU of a message, alone", each[0], "us")
    yield Figure("CPU of a message, watched", each[1], "us")
    yield Figure("ratio", each[1] / each[0], "", WATCHED_RATIO)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.operators", description=__doc__)
    parser.add_argument("name", choices=["list", "scrape", "watched"])
    parser.add_argument("--rounds", type=int, default=50, help="requests of each kind")
    parser.add_argument("--minutes", type=float, default=60, help="of `watched`, half of them alone")
    chosen = parser.parse_args()
    print(f"{FLAVOUR}, Python {platform.python_version()}, {platform.machine()}")
    measures: dict[str, Callable[[], Iterator[Figure]]] = {
        "list": lambda: read_objects(
            10_000,
            {name: f"/api/queues{query}" for name, query in LISTS.items()},
            chosen.rounds,
            Goals(cpu=50.0, turn=2.0),
        ),
        "scrape": lambda: read_objects(20_000, SCRAPES, chosen.rounds, Goals()),
        "watched": lambda: watched(chosen.minutes),
    }
    missed = 0
    for figure in measures[chosen.name]():
        print(figure.line(), flush=True)
        missed += figure.limit is not None and figure.value > figure.limit
    return 2 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
