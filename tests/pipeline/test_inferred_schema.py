"""An inferred schema: the first bodies are those of the column `value`, by every way of reading."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from tests.support.pipeline.broker import Broker

pytestmark = pytest.mark.spark

BODIES = [b'{"a": 1, "b": {"c": ["x"]}}', b'{"a": 2, "d": null}', b"no"]
PLAIN = {"transport": "amqp", "apiUrl": "http://127.0.0.1:9"}  # nobody is there


def inferred(spark: SparkSession, broker: Broker, queue: str, **options: str) -> list[Row]:
    source_options = broker.options_of_spark | {
        "subscribe": queue,
        "bodyFormat": "json",
        "bodySchema": "infer",
    }
    frame = spark.read.format("amqp").options(**source_options | options).load()
    found: list[Row] = frame.orderBy("offset").collect()
    return found


def value(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = row["value"].asDict(recursive=True)
    return found


@pytest.mark.parametrize("options", [{}, PLAIN], ids=["chunk", "amqp"])
def test_a_schema_is_inferred(spark: SparkSession, broker: Broker, options: dict[str, str]) -> None:
    queue = f"inferred-{options.get('transport')}"
    broker.declare_stream(queue, partitions=1)
    broker.publish(queue, BODIES)
    found = inferred(spark, broker, queue, **options)
    assert value(found[0]) == {"a": 1, "b": {"c": ["x"]}, "d": None, "_corrupt_record": None}
    assert found[2]["value"]["_corrupt_record"] == "no"


def test_schema_inference_reads_only_the_sample(spark: SparkSession, broker: Broker) -> None:
    broker.declare_stream("few")
    broker.publish("few", BODIES)
    assert set(value(inferred(spark, broker, "few", inferSampleSize="1")[0])) == {"a", "b", "_corrupt_record"}


def test_bodies_of_1_0_are_values(spark: SparkSession, broker: Broker) -> None:
    proton = pytest.importorskip("proton", reason="the extra `peers` is not installed")
    broker.declare_stream("sections")
    connection = pytest.importorskip("proton.utils").BlockingConnection(
        broker.daemon.address.url().removesuffix("/%2F"), allowed_mechs="PLAIN"
    )
    sender = connection.create_sender("/queues/sections")
    sender.send(proton.Message(body=b'{"a": 1}', inferred=True))
    sender.send(proton.Message(body={"a": 2, "b": "two"}))
    connection.close()
    found = [value(row) for row in inferred(spark, broker, "sections")]
    assert [(each["a"], each["b"]) for each in found] == [(1, None), (2, "two")]


def test_a_stream_with_partitions_is_refused_over_plain_amqp(spark: SparkSession, broker: Broker) -> None:
    """Each partition has offsets of its own, and a plain consumer gets all partitions at once."""
    broker.declare_stream("parts", partitions=3)
    broker.publish("parts", BODIES)
    options = broker.options_of_spark | PLAIN | {"subscribe": "parts"}
    with pytest.raises(PySparkException, match=r"'parts' has partitions, .* transport 'chunk' reads them"):
        spark.read.format("amqp").options(**options).load().collect()
