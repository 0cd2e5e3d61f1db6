"""`format("amqp")` as a batch: the read rows are the published messages."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.test_sink import taken
from tests.support.pipeline.broker import Broker

pytestmark = pytest.mark.spark

BODIES = [b"%d" % number for number in range(500)]


@pytest.fixture(scope="module", autouse=True)
def streams(broker: Broker) -> None:
    """Declare a stream in several chunks, and a stream with partitions."""
    broker.declare_stream("one")
    for start in range(0, 500, 100):
        broker.publish("one", BODIES[start : start + 100])
    broker.declare_stream("three", partitions=3)
    broker.publish("three", BODIES)


def read(spark: SparkSession, broker: Broker, **options: Any) -> DataFrame:
    source_options = broker.options_of_spark | {name: str(value) for name, value in options.items()}
    return spark.read.format("amqp").options(**source_options).load()


def values(frame: DataFrame) -> list[bytes]:
    """Bodies, in the order of their offsets."""
    return [bytes(row["value"]) for row in frame.orderBy("partition", "offset").collect()]


def test_all_of_a_stream_is_read(spark: SparkSession, broker: Broker) -> None:
    rows = read(spark, broker, subscribe="one").orderBy("offset").collect()
    assert [bytes(row["value"]) for row in rows] == BODIES
    assert [row["offset"] for row in rows] == list(range(500))
    assert {(row["queue"], row["partition"], row["routing_key"]) for row in rows} == {("one", 0, "one")}
    assert {(row["exchange"], row["redelivered"]) for row in rows} == {("", False)}
    times = [row["timestamp"] for row in rows]
    assert times == sorted(times)


def test_partitions_are_read_and_keep_their_order(spark: SparkSession, broker: Broker) -> None:
    frame = read(spark, broker, subscribe="three")
    rows = frame.orderBy("partition", "offset").collect()
    assert Counter(bytes(row["value"]) for row in rows) == Counter(BODIES)
    for number in range(3):
        mine = [int(row["value"]) for row in rows if row["partition"] == number]
        assert mine == sorted(mine)
        assert [row["offset"] for row in rows if row["partition"] == number] == list(range(len(mine)))
    assert frame.rdd.getNumPartitions() == 3


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "earliest"}, range(500)),
        ({"startingOffsets": "latest"}, range(0)),
        ({"startingOffsets": '{"one": {"0": 490}}'}, range(490, 500)),
        ({"startingOffsets": '{"one": {"0": -2}}', "endingOffsets": '{"one": {"0": 7}}'}, range(7)),
        ({"startingOffsets": '{"one": {"0": 33}}', "endingOffsets": '{"one": {"0": 34}}'}, range(33, 34)),
        ({"startingTimestamp": "0"}, range(500)),
        ({"startingOffsetsByTimestamp": '{"one": {"0": 0}}', "endingTimestamp": "4000000000000"}, range(500)),
    ],
    ids=["earliest", "latest", "offset", "ending", "one message", "time", "times"],
)
def test_starting_and_ending_offsets_limit_the_rows(
    spark: SparkSession, broker: Broker, options: dict[str, str], expected: range
) -> None:
    assert values(read(spark, broker, subscribe="one", **options)) == [b"%d" % each for each in expected]


def test_a_time_separates_earlier_and_later_rows(spark: SparkSession, broker: Broker) -> None:
    rows = read(spark, broker, subscribe="one").orderBy("offset").collect()
    at = rows[300]["timestamp"]
    first = next(row["offset"] for row in rows if row["timestamp"] >= at)
    from datetime import UTC

    milliseconds = int(at.replace(tzinfo=UTC).timestamp() * 1000)
    assert values(read(spark, broker, subscribe="one", startingTimestamp=milliseconds)) == BODIES[first:]
    assert values(read(spark, broker, subscribe="one", endingTimestamp=milliseconds)) == BODIES[:first]


@pytest.mark.parametrize(
    ("options", "count"),
    [({"minPartitions": 4}, 4), ({"maxMessagesPerPartition": 100}, 5), ({}, 1)],
    ids=["at least", "at most", "nothing said"],
)
def test_a_partition_is_read_by_several_tasks(
    spark: SparkSession, broker: Broker, options: dict[str, int], count: int
) -> None:
    frame = read(spark, broker, subscribe="one", **options)
    assert frame.rdd.getNumPartitions() == count
    assert values(frame) == BODIES


def test_streams_by_pattern_and_partitions_by_number(spark: SparkSession, broker: Broker) -> None:
    assert read(spark, broker, subscribePattern="o.e|three").count() == 1000
    assert read(spark, broker, subscribePattern="on").count() == 0
    some = read(spark, broker, assign=json.dumps({"three": [0, 2]}))
    assert {row["partition"] for row in some.collect()} == {0, 2}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "'subscribe', 'subscribePattern' and 'assign'"),
        ({"subscribe": "one", "assign": "{}"}, "'subscribe', 'subscribePattern' and 'assign'"),
        ({"subscribe": "nothing"}, "no queue 'nothing' in vhost '/'"),
        ({"assign": '{"one": [3]}'}, "stream 'one' has no partition 3"),
        ({"subscribe": "one", "startingOffsets": "soon"}, "'startingOffsets' is 'soon'"),
        ({"subscribe": "one", "startingOffsets": '{"two": {"0": 1}}'}, "partition 0 of 'two', which is not"),
        (
            {"subscribe": "three", "startingOffsets": '{"three": {"0": 1}}'},
            "no offset is given for partition 1",
        ),
        ({"subscribe": "one", "startingOffsets": '{"one": {"0": 501}}'}, "501"),
        ({"subscribe": "one", "startingTimestamp": "4000000000000"}, "no message from 4000000000000 ms"),
        ({"subscribe": "one", "maxMessagesPerTriger": "1"}, "no option 'maxmessagespertriger'"),
        ({"subscribe": "one", "minPartitions": "0"}, "'minPartitions' is '0'"),
        ({"subscribe": "one", "password": "wrong"}, "401"),
        (
            {"subscribe": "one", "apiUrl": "http://127.0.0.1:9", "retries": "0"},
            "cannot reach http://127.0.0.1:9",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else " ".join(each),
)
def test_wrong_options_are_named(
    spark: SparkSession, broker: Broker, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(PySparkException) as refused:
        read(spark, broker, **options).collect()
    assert reason in str(refused.value)


def test_a_queue_is_not_for_batches(spark: SparkSession, broker: Broker) -> None:
    broker.declare("ordinary")
    with pytest.raises(PySparkException, match="'ordinary' is an ordinary queue"):
        read(spark, broker, subscribe="ordinary", readerName="me").collect()


def test_sql_reads_a_view(spark: SparkSession, broker: Broker) -> None:
    source_options = broker.options_of_spark | {"subscribe": "one"}
    options = ", ".join(f"{name} '{value}'" for name, value in source_options.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW one USING amqp OPTIONS ({options})")
    (row,) = spark.sql("SELECT count(*) AS rows, max(offset) AS last FROM one").collect()
    assert (row["rows"], row["last"]) == (500, 499)


def create(spark: SparkSession, broker: Broker, table: str, format_: str = "amqp", **options: str) -> None:
    """Make a table; the password is in the environment."""
    source_options = (
        broker.options_of_spark | {"url": f"amqp://127.0.0.1:{broker.daemon.address.port}"} | options
    )
    words = ", ".join(f"{name} '{value}'" for name, value in source_options.items())
    spark.sql(f"DROP TABLE IF EXISTS {table}")
    spark.sql(f"CREATE TABLE {table} USING `{format_}` OPTIONS ({words})")


def test_sql_reads_and_writes_tables(spark: SparkSession, broker: Broker) -> None:
    broker.declare("table.out")
    create(spark, broker, "of_stream", subscribe="one", username="guest")
    (row,) = spark.sql("SELECT count(*) AS rows, max(offset) AS last FROM of_stream").collect()
    assert (row["rows"], row["last"]) == (500, 499)
    create(spark, broker, "of_queue", routingKey="table.out")
    assert spark.table("of_queue").columns == ["value"]
    spark.sql("INSERT INTO of_queue SELECT value FROM of_stream WHERE offset < 3")
    create(spark, broker, "of_default_exchange")
    spark.sql("INSERT INTO of_default_exchange VALUES (CAST('x' AS BINARY), '', 'table.out')")
    assert len(taken(broker, "table.out")) == 4
    (row,) = spark.sql(
        'SELECT count(*) AS rows FROM of_stream WITH (startingOffsets = \'{"one": {"0": 490}}\')'
    ).collect()
    assert row["rows"] == 10
    for table in ("of_stream", "of_queue", "of_default_exchange"):
        spark.sql(f"DROP TABLE {table}")


@pytest.mark.parametrize(
    "options",
    [
        {"password": "SECRET"},
        {"url": "amqp://guest:SECRET@127.0.0.1"},
        {"apiUrl": "http://g:SECRET@127.0.0.1"},
    ],
    ids=lambda each: "".join(each),
)
def test_a_table_with_a_password_is_refused(
    spark: SparkSession, broker: Broker, options: dict[str, str]
) -> None:
    with pytest.raises(PySparkException, match="use option 'passwordFile' or 'passwordEnv'") as refused:
        create(spark, broker, "secret", subscribe="one", **options)
    assert "SECRET" not in str(refused.value)


def test_a_table_with_columns_of_its_own_says_why_it_cannot_be_used(
    spark: SparkSession, broker: Broker
) -> None:
    spark.sql("CREATE TABLE columns_named (value string) USING amqp OPTIONS (url 'amqp://h', subscribe 's')")
    with pytest.raises(PySparkException, match="only if its CREATE TABLE names no columns"):
        spark.sql("SELECT * FROM columns_named").collect()
    spark.sql("DROP TABLE columns_named")


@pytest.mark.nightly
def test_removed_rows_are_an_error_unless_losses_are_allowed(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.declare_stream("short", max_length_bytes=100_000, stream_max_segment_size_bytes=1 << 20)
    for _ in range(3):
        broker.publish("short", [b"x" * 1000] * 1200)
    first = next(
        row["offset"] for row in read(spark, broker, subscribe="short").orderBy("offset").limit(1).collect()
    )
    assert first > 0
    beginning = '{"short": {"0": 0}}'
    with pytest.raises(PySparkException, match=f"begins with offset {first}"):
        read(spark, broker, subscribe="short", startingOffsets=beginning).collect()
    frame = read(spark, broker, subscribe="short", startingOffsets=beginning, failOnDataLoss="false")
    assert frame.count() == 3600 - first
