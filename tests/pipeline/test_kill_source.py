"""Kill -9 of a job with all of Spark, and of the broker: each message arrives once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pyarrow.parquet as pq
import pytest
from pika.exceptions import AMQPError
from pyspark.sql import SparkSession

from tests.pipeline.killed import KILL_AT, POINTS, POINTS_OF_SINK
from tests.support.daemon.daemon import ROOT
from tests.support.pipeline.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

STREAM = "stream"
QUEUE = "queue"
SINK = "exactly-once sink"
SINK_OPTIONS = {"guarantee": "exactly-once", "sinkName": "killed", "routingKey": "copied"}
OPTIONS = {
    SINK: {"subscribe": "orders", "startingOffsets": "earliest", "maxMessagesPerTrigger": "400"},
    STREAM: {"subscribe": "orders", "startingOffsets": "earliest", "maxMessagesPerTrigger": "400"},
    QUEUE: {"subscribe": "orders", "readerName": "lake", "maxMessagesPerTrigger": "400"},
}
REST = {"maxMessagesPerTrigger": "10000"}  # a slower machine leaves more messages to read
PATIENCE_S = 180


class Traffic:
    """An endless publisher of numbers. `confirmed`: safe ones; `perhaps`: those without an answer."""

    def __init__(self, broker: Broker) -> None:
        self.confirmed: list[int] = []
        self.perhaps: list[int] = []
        self._broker = broker
        self._next = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """No more."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                with self._broker.channel() as channel:
                    self._publish(channel)
            except (AMQPError, OSError):
                time.sleep(0.1)

    def _publish(self, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        while not self._end.wait(0.001):
            number = self._next
            self._next += 1
            self.perhaps.append(number)
            properties = pika.BasicProperties(delivery_mode=2, headers={"x-partition-key": str(number % 50)})
            channel.basic_publish("", "orders", b"%d" % number, properties)
            self.confirmed.append(self.perhaps.pop())


@contextmanager
def job(
    broker: Broker, folder: Path, kind: str, point: str = "", now: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """The job as a process of its own, in a group of its own."""
    source_options = {
        "options": broker.options_of_spark | OPTIONS[kind] | (REST if now else {}),
        "folder": str(folder),
        "available_now": now,
    } | ({"sink": broker.options_of_spark | SINK_OPTIONS} if kind == SINK else {})
    environment = os.environ | {KILL_AT: point, "PYTHONPATH": str(ROOT)}
    with (folder / "job.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.killed", json.dumps(source_options)],
            env=environment,
            cwd=ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)


def batches(folder: Path) -> set[str]:
    """Return the batches in the lake; for the sink, the batches that Spark has committed."""
    if not (folder / "out").exists():
        return {path.name for path in folder.glob("at/commits/[0-9]*")}
    return {path.parent.name for path in folder.glob("out/batch=*/_SUCCESS")}


def wait_for_batches(folder: Path, more: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until so many more batches are there, or the job has ended."""
    before = len(batches(folder))
    until = time.monotonic() + PATIENCE_S
    while len(batches(folder)) < before + more and process.poll() is None:
        assert time.monotonic() < until, (folder / "job.log").read_text()[-5000:]
        time.sleep(0.05)


def stored(folder: Path) -> list[int]:
    """Return all numbers in the lake."""
    paths = [path for name in batches(folder) for path in (folder / "out" / name).glob("*.parquet")]
    return [int(value) for path in paths for value in pq.read_table(path)["value"].to_pylist()]


def copied(broker: Broker) -> list[int]:
    """Return all numbers in the queue that the sink publishes to."""
    found: list[int] = []
    with broker.channel() as channel:
        for _, _, body in channel.consume("copied", auto_ack=True, inactivity_timeout=5):
            if body is None:
                break
            found.append(int(body))
    return found


@pytest.fixture(params=[STREAM, QUEUE, SINK])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broker(tmp_path: Path, kind: str, spark: SparkSession) -> Iterator[Broker]:
    """Asks for Spark, so that this is skipped, saying so, where there is none."""
    broker = Broker(tmp_path / "broker")
    if kind == QUEUE:
        broker.declare("orders")
    else:
        broker.declare_stream("orders", partitions=3)
    broker.declare("copied")
    yield broker
    broker.stop()


def judge(broker: Broker, folder: Path, kind: str, traffic: Traffic) -> None:
    """Read the rest, and compare it with the published numbers."""
    traffic.stop()
    with job(broker, folder, kind, now=True) as process:
        assert process.wait(PATIENCE_S) == 0, (folder / "job.log").read_text()[-5000:]
    numbers = Counter(copied(broker) if kind == SINK else stored(folder))
    assert [number for number, count in numbers.items() if count > 1] == []
    assert set(traffic.confirmed) - numbers.keys() == set()
    assert numbers.keys() - set(traffic.confirmed) - set(traffic.perhaps) == set()
    assert len(traffic.confirmed) > 1000
    print(f"{len(traffic.confirmed)} confirmed, {sum(numbers.values())} stored, {len(numbers)} distinct")


def test_kill_a_job_at_each_point(tmp_path: Path, kind: str, broker: Broker) -> None:
    traffic = Traffic(broker)
    try:
        for point in POINTS_OF_SINK if kind == SINK else POINTS:
            with job(broker, tmp_path, kind, point) as process:
                assert process.wait(PATIENCE_S) == -signal.SIGKILL, (tmp_path / "job.log").read_text()[-5000:]
            with job(broker, tmp_path, kind) as process:
                wait_for_batches(tmp_path, 2, process)
    finally:
        traffic.stop()
    judge(broker, tmp_path, kind, traffic)


def test_kill_a_job_at_random(tmp_path: Path, kind: str, broker: Broker) -> None:
    chance = random.Random(6)
    traffic = Traffic(broker)
    try:
        for _ in range(10):
            with job(broker, tmp_path, kind) as process:
                wait_for_batches(tmp_path, chance.randrange(1, 4), process)
                time.sleep(chance.random())
    finally:
        traffic.stop()
    judge(broker, tmp_path, kind, traffic)


def test_kill_the_broker_under_a_job(tmp_path: Path, kind: str, broker: Broker) -> None:
    traffic = Traffic(broker)
    try:
        for _ in range(5):
            with job(broker, tmp_path, kind) as process:
                wait_for_batches(tmp_path, 1, process)
                broker.restart(kill=True)
                wait_for_batches(tmp_path, 2, process)
    finally:
        traffic.stop()
    judge(broker, tmp_path, kind, traffic)
