"""Digests of sealed journals, made in Spark's tasks.

Spark hands each task the bytes of files, from whatever file system it reads, and Arrow takes them from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.functions import arrow_udtf

from pipeline.digest.chunk import COLUMNS, TEXTS
from pipeline.digest.digest import digest
from pipeline.digest.schema import DIGEST
from pipeline.errors import PipelineError
from pipeline.journal.reading import sealed_folder
from pipeline.journal.schema import QUANTITY_ALIAS

EVENTS_OF_CHUNK: Final = 2_000_000  # at least, if a file has more


def sealed_digest(spark: SparkSession, journal: str, poison: int, since: datetime | None = None) -> DataFrame:
    """The digest of all sealed events in a journal's folder, or of those from `since` on (DIGEST).

    Raises PipelineError: there is none.
    """
    files = spark.read.format("binaryFile").load(sealed_folder(journal))
    if since is not None and "date" in files.columns:
        day = F.lit((since - timedelta(days=1)).date())  # a file is in the folder of its first event
        files = files.where(F.col("date") >= day)
    told = F.lit(poison).alias("poison"), F.lit(micros_of(since)).cast("long").alias("since")
    table = files.select("path", "content", *told).asTable()
    frame: DataFrame = arrow_udtf(SealedFiles, returnType=DIGEST)(table)
    return frame


def micros_of(since: datetime | None) -> int | None:
    """Microseconds since 1970."""
    return None if since is None else int(since.timestamp() * 1_000_000)


class SealedFiles:
    """What a task makes of files: path | content | poison | since, microseconds or null."""

    def eval(self, files: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Their digests. Raises PipelineError: a file is damaged."""
        for path, content, poison, since in zip(*files.columns, strict=True):
            try:
                for events in read(content.as_buffer(), since.as_py()):
                    yield from digest(events, poison.as_py())
            except pa.ArrowInvalid as error:
                raise PipelineError(f"'{path}' is damaged: {error}") from error


def read(content: pa.Buffer, since: int | None) -> Iterator[pa.Table]:
    """Portions of a Parquet file, with COLUMNS that it has. `since`: microseconds since 1970, or null."""
    there = pq.read_metadata(pa.BufferReader(content)).schema.names
    names = [name for name in (*COLUMNS, QUANTITY_ALIAS) if name in there]
    texts = [name for name in names if name in TEXTS]
    parquet = pq.ParquetFile(pa.BufferReader(content), read_dictionary=texts)
    groups: list[int] = []
    rows = 0
    for group in range(parquet.num_row_groups):
        groups.append(group)
        rows += parquet.metadata.row_group(group).num_rows
        if rows >= EVENTS_OF_CHUNK or group == parquet.num_row_groups - 1:
            events = parquet.read_row_groups(groups, columns=names, use_threads=False)
            yield events if since is None else from_time(events, since)
            groups, rows = [], 0


def from_time(events: pa.Table, since: int) -> pa.Table:
    """The events from a time on, microseconds since 1970."""
    times = events.column("ts").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return events.filter(pc.greater_equal(times, since))
