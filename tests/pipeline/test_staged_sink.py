"""`guarantee` = `exactly-once`: each batch is published once, however often Spark does it."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.admin.api import Api
from tests.support.pipeline.broker import Broker

pytestmark = pytest.mark.spark


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


class Copy:
    """A query that copies a stream into a queue; it can be run again."""

    def __init__(self, spark: SparkSession, broker: Broker, at: Path, name: str, **options: Any) -> None:
        self.spark = spark
        self.broker = broker
        self.at = at
        self.name = name
        self.options = {"guarantee": "exactly-once", "sinkName": name, "routingKey": name + ".out"}
        self.options |= {key: str(value) for key, value in options.items()}

    def declare(self) -> Copy:
        """Make the stream and the queue."""
        self.broker.declare_stream(self.name, partitions=2)
        self.broker.declare(self.name + ".out")
        return self

    def run(self, each: int = 100) -> None:
        """Copy all available rows, `each` messages in a batch."""
        options = self.broker.options_of_spark
        source = {"subscribe": self.name, "startingOffsets": "earliest", "maxMessagesPerTrigger": str(each)}
        stream = self.spark.readStream.format("amqp").options(**options, **source).load().select("value")
        writer = stream.writeStream.format("amqp").options(**options, **self.options)
        query = writer.option("checkpointLocation", str(self.at)).trigger(availableNow=True).start()
        query.awaitTermination()

    def forget(self, batch: int) -> None:
        """Have Spark not know that it has committed a batch: it does it again."""
        for name in (str(batch), f".{batch}.crc"):
            (self.at / "commits" / name).unlink(missing_ok=True)

    def taken(self) -> list[bytes]:
        """Return the received bodies, in order."""
        found = []
        with self.broker.channel() as channel:
            while (got := channel.basic_get(self.name + ".out", auto_ack=True))[0] is not None:
                found.append(got[2])
        return found

    def state(self) -> Any:
        """The sink, as the broker shows it."""
        with closing(Api(self.broker.daemon.admin)) as api:
            return api.get("staged-sinks", "/", self.name)


def test_batches_are_published(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    copy = Copy(spark, broker, tmp_path, "copy").declare()
    broker.publish("copy", numbers(0, 250))
    copy.run()
    assert sorted(copy.taken(), key=int) == numbers(0, 250)
    state = copy.state()
    assert (state["last_batch"], state["moving_rows"], state["attempts"]) == (2, 0, [])


def test_a_batch_that_spark_does_again_is_not_published_again(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    copy = Copy(spark, broker, tmp_path, "again").declare()
    broker.publish("again", numbers(0, 150))
    copy.run()
    copy.forget(1)
    broker.publish("again", numbers(150, 160))
    copy.run()
    assert sorted(copy.taken(), key=int) == numbers(0, 160)


@pytest.mark.nightly
def test_large_rows_and_many_of_them(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    copy = Copy(spark, broker, tmp_path, "large").declare()
    sizes = [0, 1, 300_000, 2_000_000, *([100] * 5000)]
    broker.publish("large", [bytes(size) for size in sizes])
    copy.run(each=10_000)
    assert sorted(len(body) for body in copy.taken()) == sorted(sizes)


@pytest.mark.nightly
def test_a_batch_with_unroutable_rows_is_not_published(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    copy = Copy(spark, broker, tmp_path, "nowhere")
    broker.declare_stream("nowhere", partitions=2)
    broker.publish("nowhere", numbers(0, 20))
    with pytest.raises(PySparkException, match=r"nowhere\.out"):
        copy.run()
    broker.declare("nowhere.out")
    copy.run()
    assert sorted(copy.taken(), key=int) == numbers(0, 20)


def test_rows_that_are_not_mandatory_may_be_unroutable(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.declare_stream("optional", partitions=2)
    broker.publish("optional", numbers(0, 20))
    with pytest.raises(PySparkException, match=r"optional\.out"):
        Copy(spark, broker, tmp_path, "optional").run()
    copy = Copy(spark, broker, tmp_path, "optional", mandatory="false")
    copy.run()
    assert copy.state()["last_batch"] == 0
    broker.declare("optional.out")
    broker.publish("optional", numbers(20, 30))
    copy.run()
    assert sorted(copy.taken(), key=int) == numbers(20, 30)


@pytest.mark.parametrize("count", [100, 250], ids=["at its only batch", "after its first batch"])
def test_another_checkpoint_wants_another_name(
    spark: SparkSession, broker: Broker, tmp_path: Path, count: int
) -> None:
    name = f"name.{count}"
    copy = Copy(spark, broker, tmp_path / "a", name).declare()
    broker.publish(name, numbers(0, count))
    copy.run()
    checkpoint = copy.state()["checkpoint"]
    other = Copy(spark, broker, tmp_path / "b", name)
    with pytest.raises(
        PySparkException, match=f"409 .*of checkpoint '{checkpoint}'.*use another name, or delete"
    ):
        other.run()
    assert len(copy.taken()) == count
    broker.publish(name, numbers(count, count + 10))
    copy.run()
    assert sorted(copy.taken(), key=int) == numbers(count, count + 10), "the first query goes on"
    with closing(Api(broker.daemon.admin)) as api:
        api.delete("staged-sinks", "/", name)
    other.run()
    assert sorted(copy.taken(), key=int) == numbers(0, count + 10)


@pytest.mark.nightly
def test_an_older_copy_of_a_checkpoint_is_refused(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    copy = Copy(spark, broker, tmp_path / "now", "older").declare()
    broker.publish("older", numbers(0, 100))
    copy.run()
    shutil.copytree(tmp_path / "now", tmp_path / "before")
    broker.publish("older", numbers(100, 400))
    copy.run()
    with pytest.raises(
        PySparkException, match="its checkpoint is new or older, and needs another 'sinkName'"
    ):
        Copy(spark, broker, tmp_path / "before", "older").run()
    assert sorted(copy.taken(), key=int) == numbers(0, 400)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"guarantee": "exactly-once"}, "exactly-once and 'sinkName' go together"),
        ({"sinkName": "s"}, "exactly-once and 'sinkName' go together"),
    ],
    ids=["no name", "no guarantee"],
)
def test_wrong_options_are_named(
    spark: SparkSession, broker: Broker, tmp_path: Path, options: dict[str, str], reason: str
) -> None:
    copy = Copy(spark, broker, tmp_path, "wrong").declare()
    broker.publish("wrong", numbers(0, 1))
    copy.options = {"routingKey": "wrong.out"} | options
    with pytest.raises(PySparkException) as refused:
        copy.run()
    assert reason in str(refused.value)
