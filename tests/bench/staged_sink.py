"""`python -m tests.bench.staged_sink`: the rate at which a staged sink publishes a batch over HTTP.

A single attempt has all rows, which go to a durable queue. Rates are of the whole. The CPU time of the
broker's process for a row is printed for both halves, beside that of publishing the rows in confirm mode.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

import httpx
from pamqp.commands import Confirm, Queue

from broker.bench.cpu import cpu_seconds
from broker.flavour import FLAVOUR
from protocol.streams.chunk import BASIC, ChunkWriter
from tests.support.amqp091.frames import publish_bytes
from tests.support.amqp091.peer import Peer
from tests.support.daemon.daemon import Daemon

GOAL: Final = 50_000  # rows in a second
CHUNK: Final = 1000
AT_ONCE: Final = 8  # chunks in a request
WINDOW: Final = 1000
PERSISTENT: Final = b"\x10\x00\x02"


class Cost(NamedTuple):
    """Seconds, and seconds of the broker's CPU, of a number of rows."""

    seconds: float
    cpu: float
    rows: int

    @property
    def each(self) -> float:
        """Microseconds of the broker's CPU for a row."""
        return self.cpu / self.rows * 1e6


class Work:
    """A sequence of batches for a single broker."""

    def __init__(self, daemon: Daemon, size: int) -> None:
        self.daemon = daemon
        self.body = b"x" * size
        self.peer = Peer(daemon.address).open()
        self.channel = self.peer.channel(1)
        self.channel.call(Queue.Declare(queue="q", durable=True), Queue.DeclareOk)
        self.channel.call(Confirm.Select(), Confirm.SelectOk)
        self.api = httpx.Client(
            base_url=f"{daemon.admin}/api/staged-sinks/%2F/bench", auth=("guest", "guest"), timeout=600
        )
        self.batch = 0
        self.published = 0

    def ask(self, path: str, **fields: object) -> dict[str, int]:
        """Post JSON."""
        answer = self.api.post(path, json=fields)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert isinstance(found, dict)
        return found

    def stage(self, rows: int) -> tuple[Cost, Cost]:
        """Write an attempt, and commit it."""
        writer = ChunkWriter()
        for _ in range(CHUNK):
            writer.add(0, BASIC, b"", b"q", PERSISTENT, self.body)
        data = writer.take(0, 0) * AT_ONCE
        epoch = self.ask("")["epoch"]
        began = self._now()
        attempt = self.ask("/attempts", epoch=epoch, batch=self.batch, partition=0)["attempt"]
        there = 0
        while there < rows:
            answer = self.api.post(f"/attempts/{attempt}/rows", params={"from": there}, content=data)
            there = answer.json()["rows"]
        written = self._now()
        found = self.ask("/commit", epoch=epoch, batch=self.batch, attempts=[attempt], rows=there)
        assert found["moving_rows"] == 0
        ended = self._now()
        self.batch += 1
        self._empty(there)
        return _between(began, written, there), _between(written, ended, there)

    def publish(self, rows: int) -> Cost:
        """Publish in confirm mode, so many under way."""
        data = publish_bytes("q", self.body, persistent=True) * WINDOW
        began = self._now()
        for _ in range(rows // WINDOW):
            self.peer.send(data)
            self.published += WINDOW
            self.channel.expect_confirms(self.published)
        ended = self._now()
        self._empty(rows // WINDOW * WINDOW)
        return _between(began, ended, rows // WINDOW * WINDOW)

    def _empty(self, rows: int) -> None:
        assert self.channel.counts("q") == (rows, 0)
        self.channel.call(Queue.Purge(queue="q"), Queue.PurgeOk)

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), cpu_seconds(self.daemon.pid)


def _between(began: tuple[float, float], ended: tuple[float, float], rows: int) -> Cost:
    return Cost(ended[0] - began[0], ended[1] - began[1], rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.staged_sink", description=__doc__)
    parser.add_argument("--rows", type=int, default=104_000)
    parser.add_argument("--size", type=int, default=256, help="bytes of a body")
    parser.add_argument("--times", type=int, default=5)
    chosen = parser.parse_args()
    print(f"broker: {FLAVOUR}")
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder)).wait_until_ready()
        work = Work(daemon, chosen.size)
        rounds = [(*work.stage(chosen.rows), work.publish(chosen.rows)) for _ in range(chosen.times)]
        work.api.close()
        work.peer.close()
        daemon.stop()
    rates = [write.rows / (write.seconds + commit.seconds) for write, commit, _ in rounds]
    print(f"rows/s, written and committed: best {max(rates):,.0f}, median {statistics.median(rates):,.0f}")
    for name, costs in zip(("write", "commit", "publish"), zip(*rounds, strict=True), strict=True):
        each = statistics.median(cost.each for cost in costs)
        print(f"broker CPU per row, {name}: {each:.2f} us")
    return 0 if max(rates) >= GOAL else 2


if __name__ == "__main__":
    sys.exit(main())
