"""A planned batch, and its rows when some messages are removed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.pipeline.test_source_streaming import Job, numbers
from tests.support.admin.api import Api
from tests.support.pipeline.broker import Broker

pytestmark = pytest.mark.spark

KILOBYTE = [b"%d" % number + bytes(1000) for number in range(1200)]


def planned(job: Job, number: int = 0) -> None:
    """Plan a batch without doing it."""
    job.fail_in = number
    with pytest.raises(PySparkException, match="this batch fails"):
        job.run()


def test_retention_has_taken_a_part_of_a_planned_batch(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.declare_stream("trimmed", max_length_bytes=1_500_000, stream_max_segment_size_bytes=1 << 20)
    broker.publish("trimmed", KILOBYTE)
    job = Job(spark, broker, tmp_path, subscribe="trimmed", startingOffsets="earliest")
    job.run()
    for _ in range(2):
        broker.publish("trimmed", KILOBYTE)
    planned(job, 1)
    broker.publish("trimmed", KILOBYTE)
    first = Api(broker.daemon.admin).get("streams", "/", "trimmed")["partitions"][0]["first"]
    assert 1200 < first < 3600
    with pytest.raises(
        PySparkException, match=f"begins with offset {first}: the messages from 1200 are lost"
    ):
        job.run()
    job.options["failOnDataLoss"] = "false"
    assert len(job.run()) == 4800 - first
    assert job.sizes() == [1200, 3600 - first, 1200], "what came since then is no part of it"


def test_a_stream_was_declared_again_that_a_planned_batch_is_of(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.declare_stream("replaced")
    broker.publish("replaced", numbers(0, 50))
    job = Job(spark, broker, tmp_path, subscribe="replaced", startingOffsets="earliest")
    planned(job)
    with broker.channel() as channel:
        channel.queue_delete("replaced")
    broker.declare_stream("replaced")
    broker.publish("replaced", numbers(100, 120))
    with pytest.raises(PySparkException, match="'replaced' was deleted and declared again"):
        job.run()
    job.options["failOnDataLoss"] = "false"
    assert job.run() == numbers(100, 120)


def test_a_planned_batch_of_a_deleted_stream_is_refused(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    for name in ("gone.1", "gone.2"):
        broker.declare_stream(name)
        broker.publish(name, numbers(0, 5))
    job = Job(spark, broker, tmp_path, subscribePattern="gone.*", startingOffsets="earliest")
    planned(job)
    with broker.channel() as channel:
        channel.queue_delete("gone.2")
    with pytest.raises(
        PySparkException, match=r"partition 0 of 'gone\.2' was deleted, with the messages up to 5"
    ):
        job.run()
    job.options["failOnDataLoss"] = "false"
    assert job.run() == numbers(0, 5)


def test_partitions_share_a_batch_by_their_waiting_rows(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.declare_stream("skewed", partitions=3)
    bodies = [b"busy"] * 900
    bodies += [b"%d" % number for number in range(100)]
    broker.publish("skewed", bodies)
    ends = [each["next"] for each in Api(broker.daemon.admin).get("streams", "/", "skewed")["partitions"]]
    assert max(ends) >= 900
    job = Job(
        spark, broker, tmp_path, subscribe="skewed", startingOffsets="earliest", maxMessagesPerTrigger=300
    )
    assert sorted(job.run()) == sorted(bodies)
    assert job.sizes() == [300, 300, 300, 100]
    for rows in (job.batches[0], job.batches[1]):
        counts = [sum(row["partition"] == number for row in rows) for number in range(3)]
        assert all(abs(count - 0.3 * end) <= 1 for count, end in zip(counts, ends, strict=True))


def test_a_replay_of_present_rows_ends_although_more_is_published(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.declare_stream("endless")
    broker.publish("endless", numbers(0, 400))
    published = [400]
    over = threading.Event()

    def publish() -> None:
        while not over.is_set():
            broker.publish("endless", numbers(published[0], published[0] + 20))
            published[0] += 20

    publisher = threading.Thread(target=publish)
    publisher.start()
    job = Job(
        spark, broker, tmp_path, subscribe="endless", startingOffsets="earliest", maxMessagesPerTrigger=150
    )
    try:
        first = job.run()
        assert publisher.is_alive()
        assert len(first) < published[0]
    finally:
        over.set()
        publisher.join()
    assert len(first) >= 400
    assert max(job.sizes()) <= 150
    assert first + job.run() == numbers(0, published[0])
