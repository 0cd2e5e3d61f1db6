"""Queues after a retried task of Spark: all rows, and each row is identified."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.pipeline.test_sink import taken, write
from tests.support.admin.api import Api
from tests.support.daemon.daemon import PATIENCE_S
from tests.support.pipeline.broker import Broker

pytestmark = pytest.mark.spark

Place = tuple[Any, Any]


def by_place(broker: Broker, queue: str) -> dict[Place, list[bytes]]:
    """The bodies of all messages, by the task and the row that they say they are."""
    found: dict[Place, list[bytes]] = {}
    for _, properties, body in taken(broker, queue):
        place = (properties.headers["x-spark-partition"], properties.headers["x-spark-row"])
        found.setdefault(place, []).append(body)
    return found


def test_a_task_that_is_tried_again_publishes_again(spark: SparkSession, broker: Broker) -> None:
    broker.declare("retried")
    url = broker.daemon.admin + "/api/queues/%2F/retried"

    def fails_once(numbers: Iterable[int]) -> Iterator[tuple[str]]:
        """Give some rows and, unless it is tried again, fail when the broker has some of them."""
        import base64
        import json
        import urllib.request

        context = TaskContext.get()
        login = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
        for number in numbers:
            if number == 4000 and context.attemptNumber() == 0:
                found = {"messages": 0}
                while found["messages"] <= 2500:  # all of the other task, and one of this one
                    with urllib.request.urlopen(urllib.request.Request(url, headers=login)) as answer:
                        found = json.load(answer)
                raise RuntimeError("the first attempt fails")
            yield (str(number).ljust(1000),)

    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(setting)
    assert before is not None
    spark.conf.set(setting, "100")
    try:
        rows = spark.sparkContext.parallelize(range(5000), 2).mapPartitions(fails_once)
        frame = spark.createDataFrame(rows, "value string")
        write(frame, broker, routingKey="retried", maxInFlight=10)
    finally:
        spark.conf.set(setting, before)
    found = by_place(broker, "retried")
    assert found.keys() == {(task, row) for task in (0, 1) for row in range(2500)}
    assert all(len(set(bodies)) == 1 for bodies in found.values()), "who drops duplicates drops no row"
    assert {int(bodies[0]) for bodies in found.values()} == set(range(5000))
    counts = Counter(task for (task, _), bodies in found.items() if len(bodies) > 1)
    assert counts.keys() == {1}
    assert 0 < counts[1] <= 1500


@pytest.mark.nightly
def test_a_broker_that_is_killed_among_rows_has_all_of_them_in_the_end(
    spark: SparkSession, broker: Broker
) -> None:
    broker.declare("killed")
    body = F.rpad(F.col("id").cast("string"), 500, " ").alias("value")
    frame = spark.range(0, 60_000, 1, 2).select(body)
    killed_at: list[int] = []

    def kill() -> None:
        until = time.monotonic() + PATIENCE_S
        for least in (2000, 20_000, 40_000):
            with closing(Api(broker.daemon.admin)) as api:
                while (count := api.get("queues", "/", "killed")["messages"]) < least:
                    if time.monotonic() > until:
                        return
            broker.restart(kill=True)
            killed_at.append(count)

    killing = threading.Thread(target=kill)
    killing.start()
    write(frame, broker, routingKey="killed", retries=12)
    killing.join()
    assert len(killed_at) == 3, killed_at
    assert all(2000 <= count < 60_000 for count in killed_at), "it was killed in the middle"
    found = by_place(broker, "killed")
    assert {int(bodies[0]) for bodies in found.values()} == set(range(60_000))
    assert all(len(set(bodies)) == 1 for bodies in found.values())
    assert any(len(bodies) > 1 for bodies in found.values()), "a row that was stored is sent again"
