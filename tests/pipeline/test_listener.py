"""The backlog of a query: in Spark's progress, in the log, and in the broker."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.connector.listener import LagListener, watch
from tests.support.admin.api import Api
from tests.support.daemon.daemon import PATIENCE_S
from tests.support.pipeline.broker import Broker

pytestmark = pytest.mark.spark


class Slow:
    """A query that waits in each batch until it is let go on."""

    def __init__(self, spark: SparkSession, options: dict[str, str], at: Path, name: str) -> None:
        self.go = threading.Semaphore(0)
        stream = spark.readStream.format("amqp").options(**options, startingOffsets="earliest").load()
        writer = stream.writeStream.foreachBatch(self._take).queryName(name)
        self.query = writer.option("checkpointLocation", str(at)).start()

    def _take(self, frame: DataFrame, number: int) -> None:
        frame.count()
        assert self.go.acquire(timeout=PATIENCE_S)


@pytest.fixture
def listening(spark: SparkSession) -> Iterator[Callable[[dict[str, str]], LagListener]]:
    added: list[LagListener] = []

    def listen(options: dict[str, str]) -> LagListener:
        added.append(watch(spark, options))
        return added[-1]

    yield listen
    for each in added:
        spark.streams.removeListener(each)


def wait_for(found: Callable[[], Any]) -> Any:
    """Wait until there is something."""
    until = time.monotonic() + PATIENCE_S
    while not (value := found()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return value


def test_the_backlog_is_shown_after_each_batch(
    spark: SparkSession,
    broker: Broker,
    tmp_path: Path,
    listening: Callable[[dict[str, str]], LagListener],
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker.declare_stream("far", partitions=2)
    broker.declare("work")
    broker.publish("far", [b"%d" % number for number in range(100)])
    broker.publish("work", [b"x"] * 70)
    options = broker.options_of_spark | {"subscribe": "far,work", "maxMessagesPerTrigger": "50"}
    options |= {"readerName": "lake"}
    caplog.set_level(logging.INFO, "amqpd.pipeline")
    listening(options)
    slow = Slow(spark, options, tmp_path, "some query")
    with closing(Api(broker.daemon.admin)) as api:

        def lag() -> dict[str, int]:
            found = api.get("readers", "/")
            by_queue: dict[str, int] = {}
            for each in found[0]["partitions"] if found else []:
                by_queue[each["queue"]] = by_queue.get(each["queue"], 0) + each["lag"]
            return by_queue

        def is_lag(expected: int) -> bool:
            return sum(lag().values()) == expected

        assert api.get("readers", "/") == []
        slow.go.release()
        first = wait_for(lag)
        assert (sum(first.values()), first["work"] in (49, 50)) == (120, True), "both have their share"
        for expected in (70, 20, 0):
            slow.go.release()
            wait_for(partial(is_lag, expected))
        (reader,) = api.get("readers")
        assert (reader["name"], reader["user"], reader["lag"]) == ("lake", "guest", 0)
        (source,) = slow.query.recentProgress[0].sources
        assert sum(json.loads(source.latestOffset)["q"]["far"].values()) == 100
        slow.query.stop()
        wait_for(lambda: api.get("readers") == [])
    lines = [record.getMessage() for record in caplog.records if record.name == "amqpd.pipeline"]
    assert "reader 'lake', batch 0: 50 messages, 120 still wait" in lines


def test_an_unreachable_broker_does_not_delay_the_query(
    spark: SparkSession,
    broker: Broker,
    tmp_path: Path,
    listening: Callable[[dict[str, str]], LagListener],
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker.declare_stream("deaf")
    broker.publish("deaf", [b"1"])
    options = broker.options_of_spark | {"subscribe": "deaf"}
    listening(options | {"apiUrl": "http://127.0.0.1:9", "retries": "0"})
    slow = Slow(spark, options, tmp_path, "deaf")
    slow.go.release()
    slow.query.processAllAvailable()
    warning = "the lag of reader 'deaf' was not reported: cannot reach http://127.0.0.1:9"
    wait_for(lambda: any(warning in record.getMessage() for record in caplog.records))
    slow.query.stop()
