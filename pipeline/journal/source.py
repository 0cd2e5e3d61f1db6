"""`format("amqp-journal")` for Spark: the source, and its two readers.

Spark starts a new process for each plan, so each function imports what it needs and no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pipeline.connector.tables import (
    SOURCE,
    add_table_options,
    is_table,
    merge_table_options,
    read_table_options,
)
from pipeline.journal.options import FORMAT, JournalOptions, journal_options
from pipeline.journal.schema import EVENTS

Batches = Iterator[Any]
"""Record batches of pyarrow. A process of Spark that only plans does not import pyarrow."""

Seqs = dict[str, int]
"""The sequence number of the next event of each journal, by the name of its node."""


class BatchPlanner(Protocol):
    """The planner of a streaming query: `plan.Progress`, which only the process that plans imports."""

    def initial(self) -> Seqs:
        """Return the sequence numbers at which the first batch begins."""

    def fix_end(self) -> None:
        """Limit the query to the events that the journals have now."""

    def next_batch(self, committed: Seqs, rows: int | None) -> Seqs:
        """Return the end of the next batch of at most `rows` events; `committed` if no event is new."""

    def end_seen(self) -> Seqs | None:
        """Return the ends of all journals, as they were last seen."""

    def slices(self, start: Seqs, end: Seqs) -> Sequence[InputPartition]:
        """Return the slice of a batch that each task reads."""


class JournalDataSource(DataSource):
    """Journals, sealed and live."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of an event."""
        return (
            add_table_options(EVENTS, read_table_options(self.options), SOURCE)
            if is_table(self.options)
            else EVENTS
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query. Raises OptionError."""
        return JournalReader(
            journal_options(merge_table_options(self.options, schema, SOURCE), streaming=False)
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Return the reader of a streaming query. Raises OptionError."""
        return JournalStreamReader(
            journal_options(merge_table_options(self.options, schema, SOURCE), streaming=True)
        )


class JournalReader(DataSourceReader):
    """Reads the events that exist when the query is planned."""

    def __init__(self, options: JournalOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return the slice that each task reads (DataSourceReader)."""
        from pipeline.journal.plan import plan_batch

        return list(plan_batch(self._options))

    def read(self, partition: InputPartition | None) -> Batches:
        """Read a slice; without slices Spark passes its own partition (DataSourceReader)."""
        return _read(self._options, partition)


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads in batches from seq to seq; a repeated batch has the same events."""

    def __init__(self, options: JournalOptions) -> None:
        self._options = options
        self._planner: BatchPlanner | None = None  # made on the first use, in the process that plans

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Return the seqs of the first batch; Spark calls this more than once (DataSourceStreamReader)."""
        from pipeline.journal.plan import json_of

        return json_of(self._planning().initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """Return the limit of events in a batch (DataSourceStreamReader)."""
        rows = self._options.rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Read only the events that exist now (SupportsTriggerAvailableNow)."""
        self._planning().fix_end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch (DataSourceStreamReader)."""
        from pipeline.journal.plan import json_of, seqs_of

        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return json_of(self._planning().next_batch(seqs_of(start), rows))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 (Spark's name)
        """Return the ends of the journals, for the query's metrics (DataSourceStreamReader)."""
        from pipeline.journal.plan import json_of

        seen = self._planning().end_seen()
        return None if seen is None else json_of(seen)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the slice of a batch that each task reads (DataSourceStreamReader)."""
        from pipeline.journal.plan import seqs_of

        return list(self._planning().slices(seqs_of(start), seqs_of(end)))

    def read(self, partition: InputPartition | None) -> Batches:
        """Read a slice; without slices Spark passes its own partition (DataSourceStreamReader)."""
        return _read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: a journal needs no acknowledgement (DataSourceStreamReader)."""

    def _planning(self) -> BatchPlanner:
        from pipeline.journal.plan import Progress

        if self._planner is None:
            self._planner = Progress(self._options)
        return self._planner


def register(spark: SparkSession) -> None:
    """Register `format("amqp-journal")` if the package is not installed but in a zip.

    Raises PipelineError if Spark's workers start an interpreter without the package.
    """
    from pipeline.requirements import check_workers

    check_workers(spark)
    spark.dataSource.register(JournalDataSource)


def _read(options: JournalOptions, partition: InputPartition | None) -> Batches:
    from pipeline.journal.plan import Slice

    if not isinstance(partition, Slice):
        return iter(())
    from pipeline.journal.events import EventReader
    from pipeline.journal.journals import find_journal

    wanted = (partition.node, partition.start, partition.end)
    how = (options.fail_on_loss, options.fetch_bytes, options.without)
    reader = EventReader(find_journal(options), *wanted, *how)
    return reader.batches()
