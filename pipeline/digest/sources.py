"""Digests of journals in any place, made by the tasks that read them.

A task opens the files of a local folder itself. For other file systems, whose credentials only Spark has, the
task gets the bytes of the files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.functions import arrow_udtf
from pyspark.sql.types import StructType

from pipeline.digest.chunk import COLUMNS, TEXTS, select_columns
from pipeline.digest.digest import digest
from pipeline.digest.schema import DIGEST
from pipeline.errors import PipelineError
from pipeline.journal.frames import (
    fix_end,
    is_no_stray,
    read_events,
    read_fixed,
    sealed_folder,
    with_events_from,
)
from pipeline.journal.inventory import FileFaults, check_sealed, check_served
from pipeline.journal.options import JournalOptions, journal_options
from pipeline.journal.schema import QUANTITY_ALIAS
from pipeline.journal.source import JournalReader
from protocol.journal.inventory import CHANGED

EVENTS_OF_CHUNK: Final = 2_000_000  # at least, if a file has as many
NEEDED: Final = ("node", "seq", "ts", "op")

FORMAT: Final = "amqp-journal-digest"
OWN: Final = ("poison", "since")


def sealed_digest(
    spark: SparkSession,
    journal: str,
    poison: int,
    since: datetime | None = None,
    strays: Sequence[str] = (),
) -> DataFrame:
    """Return the digest (DIGEST) of all sealed events in a journal's folder, or of those from `since` on.

    `strays`: paths in the journal's folder of files to leave out. Raises PipelineError: there is no journal.
    """
    folder = sealed_folder(journal)
    files = with_events_from(spark.read.format("binaryFile").load(folder), since)
    if strays:
        files = files.where(is_no_stray(F.col("path"), strays))
    content = F.lit(None).cast("binary") if "://" not in folder else F.col("content")
    literals = F.lit(poison).alias("poison"), F.lit(micros_of(since)).cast("long").alias("since")
    table = files.select("path", content.alias("content"), *literals).asTable()
    frame: DataFrame = arrow_udtf(SealedFiles, returnType=DIGEST)(table)
    return frame


def micros_of(since: datetime | None) -> int | None:
    """Return a time in microseconds since 1970."""
    return None if since is None else int(since.timestamp() * 1_000_000)


class SealedFiles:
    """The function that a task calls with rows of files.

    The rows have: path | content; null: open the file | poison | since: microseconds or null
    """

    def eval(self, files: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the digests of files. Raises PipelineError: a file is damaged, or no file of a journal."""
        for path, content, poison, since in zip(*files.columns, strict=True):
            name = path.as_py().removeprefix("file:")
            for events in read(name, content.as_buffer() if content.is_valid else None, since.as_py()):
                yield from digest(events, poison.as_py())


def read(path: str, content: pa.Buffer | None, since: int | None) -> Iterator[pa.Table]:
    """Yield portions of a Parquet file, with those of COLUMNS that it has.

    `since`: microseconds since 1970, or null. Raises PipelineError: the file is damaged, or no file of a
    journal.
    """
    try:
        for events in _portions(path, content):
            yield events if since is None else from_time(events, since)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"'{path}' cannot be read as a file of a journal: {error}") from error


def _portions(path: str, content: pa.Buffer | None) -> Iterator[pa.Table]:
    file = pa.memory_map(path) if content is None else pa.BufferReader(content)
    with file:
        there = {name.lower(): name for name in pq.read_schema(file).names}
        names = [there[name] for name in (*COLUMNS, QUANTITY_ALIAS) if name in there]
        missing = [name for name in NEEDED if name not in there]
        if missing:
            raise PipelineError(f"'{path}' is no file of a journal: it has no column '{missing[0]}'")
        texts = [there[name] for name in TEXTS if name in there]
        parquet = pq.ParquetFile(file, read_dictionary=texts, coerce_int96_timestamp_unit="us")
        groups: list[int] = []
        rows = 0
        for group in range(parquet.num_row_groups):
            groups.append(group)
            rows += parquet.metadata.row_group(group).num_rows
            if rows >= EVENTS_OF_CHUNK or group == parquet.num_row_groups - 1:
                events = parquet.read_row_groups(groups, columns=names, use_threads=False)
                yield events.rename_columns([name.lower() for name in events.column_names])
                groups, rows = [], 0


def from_time(events: pa.Table, since: int) -> pa.Table:
    """Return the events from a time on, in microseconds since 1970."""
    times = events.column("ts").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return events.filter(pc.greater_equal(times, since))


def live_digest(spark: SparkSession, given: Mapping[str, str], poison: int, since: int | None) -> DataFrame:
    """Return the digest (DIGEST) of a batch of `format("amqp-journal")` with the options `given`.

    `since`: microseconds since 1970.
    """
    spark.dataSource.register(DigestSource)
    own = {"poison": str(poison)} | ({} if since is None else {"since": str(since)})
    return spark.read.format(FORMAT).options(**dict(given) | own).load()


class DigestSource(DataSource):
    """The digest of events of `format("amqp-journal")`, with its options, `poison` and `since`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of a digest."""
        return DIGEST

    def reader(self, schema: StructType) -> DigestReader:
        """Return the reader of a batch query. Raises OptionError."""
        others = {name: value for name, value in self.options.items() if name.lower() not in OWN}
        since = self.options.get("since")
        options = journal_options(others, streaming=False)
        return DigestReader(options, int(self.options["poison"]), None if since is None else int(since))


class DigestReader(JournalReader):
    """Reads events; each task makes a digest of its events."""

    def __init__(self, options: JournalOptions, poison: int, since: int | None) -> None:
        super().__init__(options)
        self._poison = poison
        self._since = since

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read events, and make their digest (DataSourceReader)."""
        batches = [select_columns(batch) for batch in super().read(partition)]
        if batches:
            events = pa.Table.from_batches(batches)
            yield from digest(events if self._since is None else from_time(events, self._since), self._poison)


class Digest:
    """A digest. `rows`: DIGEST. `poison`: limit of deliveries. `held`: faults of the files."""

    def __init__(self, rows: DataFrame, poison: int, held: FileFaults, read: Callable[[], DataFrame]) -> None:
        """`read`: reads the events of the digest."""
        self.rows = rows
        self.held = held
        self.poison = poison
        self._read = read

    @cached_property
    def events(self) -> DataFrame:
        """Return the events of the digest, for details that the digest lacks."""
        return self._read()


def sealed_journal_digest(
    spark: SparkSession, journal: str, poison: int = 5, since: datetime | None = None
) -> Digest:
    """Return the digest of a folder's sealed events, or of those from `since` on. Raises PipelineError."""
    sealed_folder(journal)
    held = check_sealed(spark, journal, micros_of(since))
    rows = sealed_digest(spark, journal, poison, since, held.strays)
    return Digest(rows, poison, held, lambda: read_events(spark, journal, since, held.strays))


def live_journal_digest(
    spark: SparkSession, given: Mapping[str, str], poison: int = 5, since: datetime | None = None
) -> Digest:
    """Return the digest of all events up to now, sealed or not. `given`: options of `format("amqp-journal")`.

    Raises PipelineError: there is no journal.
    """
    held = check_served(journal_options(given, streaming=False), micros_of(since))
    if held.faults:  # the faults are findings, so the audit continues without these files
        changed = [fault["file"].rpartition("/")[2] for fault in held.faults if fault["what"] == CHANGED]
        given = {"failOnDataLoss": "false", "without": json.dumps(changed)} | dict(given)
    fixed = fix_end(given, since)
    rows = live_digest(spark, fixed, poison, micros_of(since))
    return Digest(rows, poison, held, lambda: read_fixed(spark, fixed, since))
