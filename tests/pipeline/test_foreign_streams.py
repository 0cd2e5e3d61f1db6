"""`transport` = `amqp`: streams of RabbitMQ, and ours, by consuming them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from pipeline.connector.source import register
from tests.support.daemon.rabbitmq import running
from tests.support.pipeline.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

BODIES = [b"%d" % number for number in range(12_000)]
PRODUCERS = ["ours", "rabbitmq"]


@pytest.fixture(scope="module", params=PRODUCERS)
def url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[str]:
    """A broker with a stream of these bodies, an empty stream, and a queue."""
    register(spark)
    folder = tmp_path_factory.mktemp("broker")
    if request.param == "ours":
        broker = Broker(folder)
        fill(broker.daemon.address.url())
        yield broker.daemon.address.url()
        broker.stop()
        return
    with running(folder) as (_, port):
        found = f"amqp://guest:guest@127.0.0.1:{port}/%2F"
        fill(found)
        yield found


def fill(url: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        for name in ("events", "nothing"):
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_declare("ordinary", durable=True)
        channel.basic_publish("", "ordinary", b"x")
        channel.queue_bind("events", "amq.topic", "event.#")
        for body in BODIES[:-1]:
            channel.basic_publish("amq.topic", "event.some", body, pika.BasicProperties(headers={"h": "1"}))
        channel.confirm_delivery()
        channel.basic_publish("amq.topic", "event.some", BODIES[-1], pika.BasicProperties(headers={"h": "1"}))


def read(spark: SparkSession, url: str, **options: Any) -> DataFrame:
    source_options = {
        "url": url,
        "transport": "amqp",
        "apiUrl": "http://127.0.0.1:9",
        "requestTimeoutMs": "20000",
    }
    source_options |= {name: str(value) for name, value in options.items()}
    return spark.read.format("amqp").options(**source_options).load()


def rows(frame: DataFrame) -> list[Row]:
    found: list[Row] = frame.orderBy("offset").collect()
    return found


def test_all_of_a_stream_is_read(spark: SparkSession, url: str) -> None:
    found = rows(read(spark, url, subscribe="events", includeHeaders="true", minPartitions=2))
    assert [bytes(row["value"]) for row in found] == BODIES
    assert [row["offset"] for row in found] == list(range(len(BODIES)))
    assert {(row["exchange"], row["routing_key"]) for row in found} == {("amq.topic", "event.some")}
    assert {tuple(row["headers"].items()) for row in found} == {(("h", "1"),)}
    assert {row["timestamp"] for row in found} == {None}


def test_a_part_of_a_stream_is_read(spark: SparkSession, url: str) -> None:
    bounds = {"startingOffsets": '{"events": {"0": 7000}}', "endingOffsets": '{"events": {"0": 7003}}'}
    found = rows(read(spark, url, subscribe="events", **bounds))
    assert [bytes(row["value"]) for row in found] == BODIES[7000:7003]


def test_an_empty_stream_has_no_rows(spark: SparkSession, url: str) -> None:
    assert rows(read(spark, url, subscribe="nothing")) == []


def test_a_batch_begins_at_the_end_of_the_batch_before(spark: SparkSession, url: str, tmp_path: Path) -> None:
    taken: dict[int, list[bytes]] = {}

    def take(frame: DataFrame, number: int) -> None:
        taken[number] = [bytes(row["value"]) for row in rows(frame)]

    options = {"url": url, "transport": "amqp", "subscribe": "events", "startingOffsets": "earliest"}
    stream = spark.readStream.format("amqp").options(**options, maxMessagesPerTrigger="5000").load()
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert [len(taken[number]) for number in sorted(taken)] == [5000, 5000, 2000]
    assert [body for number in sorted(taken) for body in taken[number]] == BODIES


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"subscribe": "ordinary"},
            "the queue is no stream|invalid arg 'x-stream-offset'",
        ),  # RabbitMQ says so
        ({"subscribe": "none"}, "404"),
        ({"subscribePattern": ".*"}, "cannot list streams"),
        ({"subscribe": "events", "maxBytesPerTrigger": 1}, "cannot tell sizes"),
        ({"assign": '{"events": [1]}'}, "has one partition"),
    ],
    ids=["a queue", "no queue", "pattern", "bytes", "partition"],
)
def test_impossible_options_are_reported(
    spark: SparkSession, url: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(PySparkException, match=reason):
        rows(read(spark, url, **options))
