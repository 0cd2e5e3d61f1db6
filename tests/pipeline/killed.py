"""A streaming job that kills itself with Spark at a named point: `python -m tests.pipeline.killed`.

It writes each batch into a folder of its own, so that one that is done again replaces what was there; or
into a queue, exactly once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from pipeline.connector.options import sink_options, source_options
from pipeline.connector.sink import AmqpStagedWriter
from pipeline.connector.source import AmqpDataSource, AmqpStreamReader
from pipeline.session import build_session

BEFORE_ADVANCE: Final = "before advance"
AFTER_ADVANCE: Final = "after advance"
FETCH: Final = "fetch"
BEFORE_WRITE: Final = "before write"
AFTER_WRITE: Final = "after write"
AFTER_COMMIT: Final = "after commit"
BEFORE_PUBLISH: Final = "before publish"
AFTER_PUBLISH: Final = "after publish"
OF_READER: Final = (BEFORE_ADVANCE, AFTER_ADVANCE, FETCH, AFTER_COMMIT)
POINTS: Final = (*OF_READER, BEFORE_WRITE, AFTER_WRITE)
POINTS_OF_SINK: Final = (*OF_READER, BEFORE_WRITE, AFTER_WRITE, BEFORE_PUBLISH, AFTER_PUBLISH)
KILL_AT: Final = "KILL_AT"
GROUP: Final = "KILL_GROUP"


def reached(point: str) -> None:
    """Kill the driver, the JVM and its workers, if this is where."""
    if os.environ.get(KILL_AT) == point:
        os.killpg(int(os.environ[GROUP]), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)  # workers are in a group of their own


class KilledReader(AmqpStreamReader):
    """The reader, with points."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._begun: dict[str, Any] | None = None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """A second batch in this life means that the first one is committed."""
        if self._begun is not None and start != self._begun:
            reached(AFTER_COMMIT)
        self._begun = start
        reached(BEFORE_ADVANCE)
        found = super().latestOffset(start, limit)
        if found != start:
            reached(AFTER_ADVANCE)
        return found

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Die in the middle."""
        for number, batch in enumerate(super().read(partition)):
            if number == 0:
                reached(FETCH)
            yield batch


class KilledWriter(AmqpStagedWriter):
    """The writer that publishes exactly once, with points."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        """Die before an attempt is begun, or when it is complete."""
        reached(BEFORE_WRITE)
        made = super().write(iterator)
        reached(AFTER_WRITE)
        return made

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        """Die before the broker decides, or when it has and Spark does not know it."""
        reached(BEFORE_PUBLISH)
        super().commit(messages, batchId)
        reached(AFTER_PUBLISH)


class KilledSource(AmqpDataSource):
    """The source and the sink, with such a reader and writer."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return KilledWriter(sink_options(self.options, schema, overwrite, streaming=True), "killed")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return KilledReader(source_options(self.options, streaming=True), schema)


def main() -> None:
    """Arguments: a JSON object with `options`, `folder`, `available_now`, and perhaps options of a `sink`."""
    document = json.loads(sys.argv[1])
    os.environ[GROUP] = str(os.getpgid(0))
    spark = build_session("local[2,4]", {"spark.sql.shuffle.partitions": "1"})
    spark.dataSource.register(KilledSource)

    def store(batch: DataFrame, number: int) -> None:
        reached(BEFORE_WRITE)
        batch.select("value").write.mode("overwrite").parquet(f"{document['folder']}/out/batch={number}")
        reached(AFTER_WRITE)

    frame = spark.readStream.format("amqp").options(**document["options"]).load()
    if "sink" in document:
        writer = frame.select("value").writeStream.format("amqp").options(**document["sink"])
    else:
        writer = frame.writeStream.foreachBatch(store)
    writer = writer.option("checkpointLocation", f"{document['folder']}/at")
    if document["available_now"]:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
