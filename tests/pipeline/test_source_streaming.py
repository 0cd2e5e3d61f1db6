"""`format("amqp")` batch after batch: each message once, over restarts, from streams and from queues."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.support.admin.api import Api
from tests.support.pipeline.broker import Broker

pytestmark = pytest.mark.spark


class Job:
    """A streaming query whose batches are gathered; it may be run again with the same checkpoint."""

    def __init__(self, spark: SparkSession, broker: Broker, checkpoint: Path, **options: Any) -> None:
        self.spark = spark
        self.options = broker.options_of_spark | {name: str(value) for name, value in options.items()}
        self.checkpoint = checkpoint
        self.batches: dict[int, list[Any]] = {}
        self.fail_in: int | None = None

    def run(self) -> list[bytes]:
        """Take all available rows, and return the bodies."""
        before = set(self.batches)
        stream = self.spark.readStream.format("amqp").options(**self.options).load()
        writer = stream.writeStream.foreachBatch(self._take)
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        new = [rows for number, rows in sorted(self.batches.items()) if number not in before]
        return [bytes(row["value"]) for rows in new for row in rows]

    def sizes(self) -> list[int]:
        """Return the number of rows of each batch."""
        return [len(rows) for _, rows in sorted(self.batches.items())]

    def _take(self, frame: DataFrame, number: int) -> None:
        rows = frame.orderBy("queue", "partition", "offset").collect()
        if number == self.fail_in:
            self.fail_in = None
            raise RuntimeError("this batch fails")
        if number in self.batches:
            assert rows == self.batches[number], "a batch that is done again is the same"
        self.batches[number] = rows


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def test_each_run_reads_only_new_rows(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.declare_stream("runs")
    broker.publish("runs", numbers(0, 100))
    job = Job(spark, broker, tmp_path, subscribe="runs", startingOffsets="earliest")
    assert job.run() == numbers(0, 100)
    assert job.run() == []
    broker.publish("runs", numbers(100, 130))
    assert job.run() == numbers(100, 130)


def test_batches_have_no_more_than_wanted(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.declare_stream("limited", partitions=3)
    broker.publish("limited", numbers(0, 250))
    job = Job(
        spark, broker, tmp_path, subscribe="limited", startingOffsets="earliest", maxMessagesPerTrigger=100
    )
    assert Counter(job.run()) == Counter(numbers(0, 250))
    assert job.sizes() == [100, 100, 50]
    assert {row["partition"] for row in job.batches[0]} == {0, 1, 2}, "in proportion to what waits"


def test_batches_have_about_as_many_bytes_as_wanted(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.declare_stream("bytes")
    for _ in range(5):
        broker.publish("bytes", [b"x" * 1000] * 60)
    job = Job(
        spark, broker, tmp_path, subscribe="bytes", startingOffsets="earliest", maxBytesPerTrigger=110_000
    )
    assert len(job.run()) == 300
    assert all(80 <= size <= 110 for size in job.sizes()[:-1])


def test_a_batch_that_failed_is_done_again_as_it_was(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.declare_stream("failing")
    broker.publish("failing", numbers(0, 50))
    job = Job(spark, broker, tmp_path, subscribe="failing", startingOffsets="earliest")
    job.fail_in = 0
    with pytest.raises(PySparkException):
        job.run()
    broker.publish("failing", numbers(50, 80))
    assert job.run() == numbers(0, 80)
    assert job.sizes() == [50, 30], "what came since then is no part of it"


def test_a_named_read_is_complete_also_after_a_crash_before_the_first_commit(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.declare_stream("latest")
    broker.publish("latest", numbers(0, 10))
    job = Job(spark, broker, tmp_path / "a", subscribe="latest", readerName="me")
    job.fail_in = 0
    with pytest.raises(PySparkException):
        job.run()
    broker.publish("latest", numbers(10, 20))
    assert job.run() == numbers(10, 20)
    assert job.sizes() == [0, 10], "the first batch is the empty one that it was"
    again = Job(spark, broker, tmp_path / "b", subscribe="latest", readerName="me")
    broker.publish("latest", numbers(20, 25))
    assert again.run() == numbers(20, 25), "the broker knows what was committed under this name"


def test_a_redeclared_stream_is_a_data_loss(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.declare_stream("anew")
    broker.publish("anew", numbers(0, 10))
    job = Job(spark, broker, tmp_path, subscribe="anew", startingOffsets="earliest")
    assert job.run() == numbers(0, 10)
    with broker.channel() as channel:
        channel.queue_delete("anew")
    broker.declare_stream("anew")
    broker.publish("anew", numbers(50, 70))
    with pytest.raises(PySparkException, match="deleted and declared again"):
        job.run()
    job.options["failOnDataLoss"] = "false"
    assert job.run() == numbers(50, 70)


def test_an_ordinary_queue_is_read_once_and_is_empty_then(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.declare("work")
    broker.publish("work", numbers(0, 250))
    job = Job(
        spark,
        broker,
        tmp_path,
        subscribe="work",
        readerName="lake",
        startingOffsets="earliest",
        maxMessagesPerTrigger=100,
    )
    assert job.run() == numbers(0, 250)
    assert job.sizes() == [100, 100, 50]
    api = Api(broker.daemon.admin)
    state = api.get("staged", "/", "work", "lake")
    assert state["rows"] == 0, "what is committed is let go of at once, also when nothing new comes"
    assert api.get("queues", "/", "work")["messages"] == 0
    broker.publish("work", numbers(250, 260))
    assert job.run() == numbers(250, 260)


def test_a_batch_of_an_ordinary_queue_that_failed_is_done_again_as_it_was(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.declare("again")
    broker.publish("again", numbers(0, 40))
    job = Job(spark, broker, tmp_path, subscribe="again", readerName="lake")
    job.fail_in = 0
    with pytest.raises(PySparkException):
        job.run()
    broker.publish("again", numbers(40, 60))
    broker.restart(kill=True)
    assert job.run() == numbers(0, 60)
    assert job.sizes() == [40, 20]


def test_a_broker_that_is_away_for_some_seconds_ends_no_query(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.declare_stream("away")
    broker.declare("back")
    stream = spark.readStream.format("amqp").options(
        **broker.options_of_spark, subscribe="away", startingOffsets="earliest"
    )
    sink = {"guarantee": "exactly-once", "sinkName": "away", "routingKey": "back"}
    query = (
        stream.load()
        .select("value")
        .writeStream.format("amqp")
        .options(**broker.options_of_spark, **sink, checkpointLocation=str(tmp_path))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    try:
        for first, kill in ((0, True), (20, False)):
            broker.publish("away", numbers(first, first + 20))
            broker.restart(kill, away=4)  # a try takes less
        broker.publish("away", numbers(40, 60))
        query.processAllAvailable()
        assert query.isActive
    finally:
        query.stop()
    with broker.channel() as channel:
        got = [body for _, _, body in (channel.basic_get("back", auto_ack=True) for _ in range(61))]
    assert sorted(map(int, filter(None, got))) == list(range(60))


@pytest.mark.parametrize("retained", [1, 0])
def test_a_checkpoint_that_is_rolled_back_by_a_batch(
    spark: SparkSession, broker: Broker, tmp_path: Path, retained: int
) -> None:
    queue = f"rolled.{retained}"
    broker.declare(queue)
    broker.publish(queue, numbers(0, 50))
    options = {"readerName": "r", "maxMessagesPerTrigger": 30, "retainBatches": retained}
    job = Job(spark, broker, tmp_path, subscribe=queue, **options)
    assert job.run() == numbers(0, 50)
    del job.batches[1]
    for name in ("1", ".1.crc"):
        (tmp_path / "commits" / name).unlink(missing_ok=True)
    if retained == 0:
        with pytest.raises(PySparkException, match="begins with offset 50: the messages from 30 are lost"):
            job.run()
        return
    assert job.run() == numbers(30, 50)
    broker.publish(queue, numbers(50, 60))
    assert job.run() == numbers(50, 60)
    other = Job(spark, broker, tmp_path / "other", subscribe=queue, **options)
    assert other.run() == [], "what is acknowledged is not for a checkpoint that is new"


def test_streams_and_queues_together(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.declare_stream("both.stream")
    broker.declare("both.queue")
    broker.publish("both.stream", numbers(0, 30))
    broker.publish("both.queue", numbers(30, 50))
    options = {"subscribe": "both.stream,both.queue", "startingOffsets": "earliest", "readerName": "r"}
    job = Job(spark, broker, tmp_path, maxMessagesPerTrigger=20, **options)
    assert Counter(job.run()) == Counter(numbers(0, 50))
    assert max(job.sizes()) <= 20


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"subscribe": "needs.name"}, "'readerName' is missing"),
        ({"subscribe": "needs.name", "readerName": "r", "bodyFormat": "json"}, "'bodySchema' go together"),
    ],
    ids=["no name", "no schema"],
)
def test_wrong_options_are_named(
    spark: SparkSession, broker: Broker, tmp_path: Path, options: dict[str, str], reason: str
) -> None:
    broker.declare("needs.name")
    with pytest.raises(PySparkException) as refused:
        Job(spark, broker, tmp_path, **options).run()
    assert reason in str(refused.value)


def test_offsets_of_a_later_version_are_refused(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.declare_stream("versions")
    broker.publish("versions", numbers(0, 5))
    job = Job(spark, broker, tmp_path, subscribe="versions", startingOffsets="earliest")
    job.run()
    (path,) = (tmp_path / "offsets").glob("[0-9]*")
    lines = path.read_text().splitlines()
    lines[-1] = json.dumps(json.loads(lines[-1]) | {"v": 2})
    path.write_text("\n".join(lines))
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    with pytest.raises(PySparkException, match="offsets of version 2, this program reads 1"):
        job.run()
