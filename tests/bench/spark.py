"""`python -m tests.bench.spark`: rates of Spark's reads from a broker and writes to it, on this machine.

The sink fills two streams, which are read then. `no broker` are batches with the same columns that come from
nowhere: what of a read is Spark's own, on the machine as it is just then. Figures of repeated steps are the
best and the median; CPU is that of all of them, user and system, and says more where others are at work.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from broker.flavour import FLAVOUR
from pipeline.connector.choices import Choices
from pipeline.connector.columns import Columns
from pipeline.connector.messages import Details
from pipeline.connector.offsets import Place
from pipeline.connector.publisher import Publisher
from pipeline.connector.rows import OutgoingMessage
from pipeline.connector.schema import source_schema
from pipeline.connector.server import make_server
from pipeline.connector.source import register
from pipeline.session import build_session
from protocol.streams.chunk import BASIC, Chunk, ChunkWriter
from tests.bench.cpu import spent
from tests.support.pipeline.broker import Broker

STREAMS = ("bench-0", "bench-1")
GOALS = {"sink": 50_000.0, "batch": 1_000_000.0, "streaming": 150_000.0}


class Made(DataSource):
    """A source of as many rows as requested, with the columns of messages, in batches of the usual length."""

    @classmethod
    def name(cls) -> str:
        return "made"

    def schema(self) -> StructType:
        return source_schema(None, False, False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return MadeReader(schema, int(self.options["rows"]), int(self.options["size"]))


class MadeReader(DataSourceReader):
    def __init__(self, schema: StructType, rows: int, size: int) -> None:
        self._schema = schema
        self._rows = rows
        self._size = size

    def partitions(self) -> list[InputPartition]:
        half = self._rows // 2
        return [InputPartition(half), InputPartition(self._rows - half)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left: int = partition.value
        some = min(max(2**20 // self._size, 1), left)
        writer = ChunkWriter()
        for number in range(some):
            writer.add(number, BASIC, b"", b"bench-0", b"\0\0", bytes(self._size))
        schema = to_arrow_schema(self._schema, timezone="UTC")
        columns = Columns(schema, Place("bench-0", 0), None, Details(False, False))
        batch = columns.batch(Chunk(writer.take(0, 1)), 0, some)
        while left:
            yield batch.slice(0, left)
            left -= min(some, left)


def measured(broker: Broker, name: str, rows: int, times: int, work: Callable[[int], float]) -> bool:
    """Repeat `work` and print rates; return whether the best reaches the required one.

    `work` returns how many seconds it took.
    """
    seconds: list[float] = []
    cpu = spent(broker.daemon.pid, lambda: seconds.extend(work(number) for number in range(times)))
    best, median = rows / min(seconds), rows / statistics.median(seconds)
    goal = GOALS.get(name.partition(",")[0], 0.0)
    wanted = f" (goal {goal:,.0f})" if goal else ""
    print(f"{name}: best {best:,.0f} rows/s, median {median:,.0f} of {len(seconds)}{wanted}", flush=True)
    print(f"{name}: {cpu.row_text(rows * times)}", flush=True)
    return best >= goal


def timed(work: Any) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def fill(spark: SparkSession, broker: Broker, rows: int, size: int) -> float:
    """Have the sink write so many rows, half of them into each stream."""
    numbers = spark.range(0, rows, 1, 2)
    body = F.rpad(F.col("id").cast("string"), size, "x").cast("binary").alias("value")
    key = F.when(F.col("id") < rows // 2, STREAMS[0]).otherwise(STREAMS[1]).alias("routing_key")
    writer = numbers.select(body, key).write.format("amqp").options(**broker.options_of_spark)
    return timed(lambda: writer.mode("append").save())


def read(spark: SparkSession, broker: Broker) -> DataFrame:
    options = broker.options_of_spark | {"subscribe": ",".join(STREAMS)}
    return spark.read.format("amqp").options(**options).load()


def batch(spark: SparkSession, broker: Broker) -> float:
    """Read all at once: how long that took."""
    return timed(lambda: read(spark, broker).write.format("noop").mode("overwrite").save())


def made(spark: SparkSession, rows: int, size: int) -> float:
    """Read as many rows of as many bytes that come from nowhere: how long that took."""
    frame = spark.read.format("made").options(rows=str(rows), size=str(size)).load()
    return timed(lambda: frame.write.format("noop").mode("overwrite").save())


def stream(spark: SparkSession, broker: Broker, folder: str, rows: int) -> tuple[float, list[int]]:
    """Read all in batches of `rows`: how long that took, and how long each batch did, in ms."""
    options = broker.options_of_spark | {"subscribe": ",".join(STREAMS), "startingOffsets": "earliest"}
    frame = spark.readStream.format("amqp").options(**options, maxMessagesPerTrigger=str(rows)).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", folder).trigger(availableNow=True)
    started = time.perf_counter()
    query = writer.start()
    query.awaitTermination()
    took = time.perf_counter() - started
    return took, [
        each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]
    ]


def latency(spark: SparkSession, broker: Broker, folder: str, seconds: float, rate: int) -> list[float]:
    """Seconds from each publish to when it is in a Parquet file."""
    broker.declare_stream("live")
    options = broker.options_of_spark | {"subscribe": "live", "startingOffsets": "earliest"}
    frame = spark.readStream.format("amqp").options(**options, bodyFormat="string").load()
    delays: list[float] = []

    def store(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{folder}/out/batch={number}")
        now = time.time()
        written = spark.read.parquet(f"{folder}/out/batch={number}").select("value").collect()
        delays.extend(now - float(row["value"]) for row in written)

    query = frame.writeStream.foreachBatch(store).option("checkpointLocation", f"{folder}/at").start()
    server = make_server(Choices(broker.options_of_spark))

    def publish() -> None:
        publisher = Publisher(server, True, 1000, 30)
        until = time.time() + seconds
        while time.time() < until:
            for _ in range(max(rate // 100, 1)):
                body = repr(time.time()).encode()
                publisher.publish(OutgoingMessage("", "live", b"\x10\x00\x02", body))
            publisher.flush()
            time.sleep(0.01)
        publisher.finish()

    time.sleep(5)  # the query has begun
    thread = threading.Thread(target=publish)
    thread.start()
    thread.join()
    query.processAllAvailable()
    query.stop()
    return sorted(delays)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=256, help="bytes of a body")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument(
        "--warm", type=int, default=15, help="batches until the JVM has compiled what they run"
    )
    parser.add_argument("--rate", type=int, default=1000, help="messages per second, for how late they are")
    chosen = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder, "broker"))
        spark = build_session("local[2]", {})
        register(spark)
        spark.dataSource.register(Made)
        print(f"broker: {FLAVOUR}; Spark {spark.version} on {spark.sparkContext.master}", flush=True)
        for name in STREAMS:
            broker.declare_stream(name)
        fill(spark, broker, 1000, chosen.size)
        part = chosen.rows // 4
        good &= measured(broker, "sink", part, 4, lambda _: fill(spark, broker, part, chosen.size))
        rows = 4 * part + 1000
        measured(broker, "batch, new session", rows, chosen.times, lambda _: batch(spark, broker))
        for _ in range(chosen.warm):
            batch(spark, broker)
        good &= measured(broker, "batch", rows, chosen.times, lambda _: batch(spark, broker))
        made(spark, rows, chosen.size)
        measured(broker, "no broker", rows, chosen.times, lambda _: made(spark, rows, chosen.size))
        medians: list[float] = []

        def streamed(number: int) -> float:
            took, batches = stream(spark, broker, f"{folder}/at-{number}", 100_000)
            medians.append(statistics.median(batches))
            return took

        good &= measured(broker, "streaming", rows, chosen.times, streamed)
        print(f"streaming: median batch of 100,000 rows: {min(medians):.0f} to {max(medians):.0f} ms")
        delays = latency(spark, broker, f"{folder}/latency", 20, chosen.rate)
        p50, p95 = delays[len(delays) // 2], delays[len(delays) * 95 // 100]
        print(f"publish to Parquet, {len(delays)} messages: p50 {p50:.2f} s, p95 {p95:.2f} s (goal 2 s)")
        good &= p95 < 2
        spark.stop()
        broker.stop()
    return 0 if good else 2


if __name__ == "__main__":
    sys.exit(main())
