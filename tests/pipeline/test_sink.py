"""Spark writes to the broker: all rows of a task are confirmed, or the task fails."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.support.pipeline.broker import Broker

pytestmark = pytest.mark.spark


def write(frame: DataFrame, broker: Broker, mode: str = "append", **options: Any) -> None:
    sink_options = broker.options_of_spark | {name: str(value) for name, value in options.items()}
    frame.write.format("amqp").options(**sink_options).mode(mode).save()


def taken(broker: Broker, queue: str) -> list[tuple[Any, Any, bytes]]:
    """Return all messages of a queue: delivery, properties and bodies."""
    found = []
    with broker.channel() as channel:
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(got)
    return found


def values(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    numbers = spark.range(0, count, 1, partitions)
    return numbers.select(F.col("id").cast("string").cast("binary").alias("value"))


def test_rows_become_messages_each_with_its_place(spark: SparkSession, broker: Broker) -> None:
    broker.declare("rows")
    write(values(spark, 1000), broker, routingKey="rows", contentType="text/plain", maxInFlight=7)
    messages = taken(broker, "rows")
    assert {properties.content_type for _, properties, _ in messages} == {"text/plain"}
    assert Counter(body for _, _, body in messages) == Counter(b"%d" % each for each in range(1000))
    assert {properties.delivery_mode for _, properties, _ in messages} == {2}
    stamps = [properties.headers for _, properties, _ in messages]
    assert len({each["x-spark-query-id"] for each in stamps}) == 1
    places = {(each["x-spark-partition"], each["x-spark-row"]) for each in stamps}
    assert places == {(task, row) for task in (0, 1) for row in range(500)}
    in_order = [int(body) for _, properties, body in messages if properties.headers["x-spark-partition"] == 1]
    assert in_order == sorted(in_order)


def test_columns_set_the_destination_and_the_content_of_messages(spark: SparkSession, broker: Broker) -> None:
    broker.declare("a")
    broker.declare("b")
    with broker.channel() as channel:
        channel.queue_bind("b", "amq.direct", "key")
    sink_options = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "delivery_mode": 1,
        "priority": 3,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "60000",
        "message_id": "m",
        "timestamp": datetime(2026, 1, 2, tzinfo=UTC),
        "type": "t",
        "user_id": "guest",
        "app_id": "p",
    }
    rows = [
        ("Grüße", "", "a", sink_options, {"h": "1", "none": None}),
        ("two", "amq.direct", "key", None, None),
    ]
    names = ", ".join(f"{name} {_ddl(value)}" for name, value in sink_options.items())
    schema = (
        f"value string, exchange string, routing_key string, properties struct<{names}>, "
        "headers map<string,string>"
    )
    write(spark.createDataFrame(rows, schema), broker)
    ((_, properties, body),) = taken(broker, "a")
    assert body == "Grüße".encode()
    for name, value in sink_options.items():
        expected = 1767312000 if name == "timestamp" else value
        assert getattr(properties, name) == expected
    assert (properties.headers["h"], properties.headers["none"]) == ("1", None)
    ((delivered, properties, body),) = taken(broker, "b")
    assert (delivered.exchange, delivered.routing_key, body) == ("amq.direct", "key", b"two")
    assert (properties.delivery_mode, properties.message_id) == (2, None)


def test_options_say_where_all_go_and_how(spark: SparkSession, broker: Broker) -> None:
    broker.declare("all")
    with broker.channel() as channel:
        channel.queue_bind("all", "amq.direct", "key")
    schema = "value string, exchange string, routing_key string"
    rows = spark.createDataFrame([("one", "", "nowhere"), ("two", "amq.fanout", "nowhere")], schema)
    write(rows, broker, exchange="amq.direct", routingKey="key", deliveryMode=1, contentType="text/plain")
    found = taken(broker, "all")
    assert {body for _, _, body in found} == {b"one", b"two"}
    assert {(delivered.exchange, delivered.routing_key) for delivered, _, _ in found} == {
        ("amq.direct", "key")
    }
    assert {(properties.delivery_mode, properties.content_type) for _, properties, _ in found} == {
        (1, "text/plain")
    }


def _ddl(value: object) -> str:
    kinds = {int: "int", str: "string", datetime: "timestamp"}
    return kinds[type(value)]


def test_bodies_of_any_size_go_out(spark: SparkSession, broker: Broker) -> None:
    broker.declare("sizes")
    sizes = [0, 1, 131064, 131065, 3_000_000]
    frame = spark.createDataFrame([(bytes(size),) for size in sizes], "value binary").coalesce(1)
    write(frame, broker, routingKey="sizes")
    assert [len(body) for _, _, body in taken(broker, "sizes")] == sizes


def test_unroutable_rows_fail_the_task(spark: SparkSession, broker: Broker) -> None:
    with pytest.raises(
        PySparkException, match=r"no queue for exchange 'amq\.direct' and routing key 'nowhere'"
    ):
        write(values(spark, 10), broker, exchange="amq.direct", routingKey="nowhere")
    write(values(spark, 10), broker, exchange="amq.direct", routingKey="nowhere", mandatory="false")


def test_refused_rows_fail_the_task(spark: SparkSession, broker: Broker) -> None:
    broker.declare("full", {"x-max-length": 5, "x-overflow": "reject-publish"})
    with pytest.raises(PySparkException, match="the broker has rejected message"):
        write(values(spark, 100), broker, routingKey="full")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ("id", {"routingKey": "q"}, "column 'id' is unknown to a sink"),
        ("'x' AS exchange", {"routingKey": "q"}, "column 'value' is missing"),
        ("id AS value", {"routingKey": "q"}, "column 'value' is bigint"),
        ("'x' AS value", {}, "option 'routingKey' or a column 'routing_key'"),
        ("'x' AS value, 1 AS headers", {"routingKey": "q"}, "column 'headers' is int"),
        ("'x' AS value, struct(1 AS a) AS properties", {"routingKey": "q"}, "column 'properties' has 'a'"),
        ("'x' AS value", {"routingKey": "q", "deliveryMode": 3}, "'deliveryMode' is '3'"),
        ("'x' AS value", {"routingKey": "q", "guarantee": "hope"}, "'guarantee' is 'hope'"),
        ("'x' AS value", {"routingKey": "q", "rooutingKey": "q"}, "no option 'rooutingkey'"),
        ("'x' AS value", {"routingKey": "q", "exchange": "none"}, "no exchange 'none'"),
        ("CAST(NULL AS STRING) AS value", {"routingKey": "q"}, "has null for 'value'"),
        ("'x' AS value, CAST(NULL AS STRING) AS routing_key", {}, "has null for 'routing_key'"),
    ],
)
def test_contradicting_options_are_named(
    spark: SparkSession, broker: Broker, columns: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(PySparkException) as refused:
        write(spark.range(1).selectExpr(*columns.split(", ")), broker, **options)
    assert reason in str(refused.value)


def test_a_queue_is_not_overwritten(spark: SparkSession, broker: Broker) -> None:
    with pytest.raises(PySparkException, match="mode 'overwrite' is not possible"):
        write(values(spark, 1), broker, mode="overwrite", routingKey="q")


def test_a_streaming_query_passes_messages_on(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.declare_stream("in")
    broker.declare("out")
    bodies = [b"%d" % number for number in range(250)]
    broker.publish("in", bodies)
    options = broker.options_of_spark
    stream = (
        spark.readStream.format("amqp")
        .options(**options, subscribe="in", startingOffsets="earliest", maxMessagesPerTrigger="100")
        .load()
    )
    query = (
        stream.select("value")
        .writeStream.format("amqp")
        .options(**options, routingKey="out", checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    messages = taken(broker, "out")
    assert [body for _, _, body in messages] == bodies
    batches = Counter(properties.headers["x-spark-batch-id"] for _, properties, _ in messages)
    assert batches == {0: 100, 1: 100, 2: 50}
    assert len({properties.headers["x-spark-query-id"] for _, properties, _ in messages}) == 1
