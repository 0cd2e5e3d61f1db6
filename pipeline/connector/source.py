"""`format("amqp")` for Spark: the source, its two readers, and the sink.

Spark starts a new process for each plan, so each function imports what it needs and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pipeline.connector.filters import RangeFilters
from pipeline.connector.offsets import Offsets
from pipeline.connector.options import INFER, SUBSCRIPTIONS, SourceOptions, source_options
from pipeline.connector.schema import body_type, source_schema
from pipeline.connector.tables import (
    SINK,
    SOURCE,
    add_table_options,
    is_table,
    merge_table_options,
    read_table_options,
)

Batches = Iterator[Any]
"""Record batches of pyarrow. A process of Spark that only plans does not import pyarrow."""


class BatchPlanner(Protocol):
    """The planner of a streaming query: `plan.Progress`, which only the process that plans imports."""

    def initial(self) -> Offsets:
        """Return the offsets at which the first batch begins."""

    def fix_end(self) -> None:
        """Limit the query to the messages that the streams and queues have now."""

    def next_batch(self, committed: dict[str, Any], rows: int | None) -> dict[str, Any]:
        """Return the end of the next batch of at most `rows` rows; `committed` if no message is new."""

    def end_seen(self) -> dict[str, Any] | None:
        """Return the ends of all partitions, as they were last seen."""

    def slices(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the slice of a batch that each task reads."""

    def acknowledge(self, end: dict[str, Any]) -> None:
        """Acknowledge a batch that Spark has committed."""


class AmqpDataSource(DataSource):
    """Streams and queues of a broker."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "amqp"

    def schema(self) -> StructType:
        """Return the columns, some of which depend on options. Raises OptionError, ServerError."""
        if not is_table(self.options):
            return _schema(source_options(self.options, streaming=False))
        options = read_table_options(self.options)
        if not SUBSCRIPTIONS.isdisjoint(options):
            return add_table_options(_schema(source_options(options, streaming=False)), options, SOURCE)
        from pipeline.connector.options import sink_columns, sink_options

        columns = sink_columns(options)
        sink_options(options, columns, overwrite=False, streaming=False)
        return add_table_options(columns, options, SINK)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query. Raises OptionError."""
        options = source_options(merge_table_options(self.options, schema, SOURCE), streaming=False)
        return AmqpFilteringReader(options, schema) if options.pushdown else AmqpReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Return the reader of a streaming query. Raises OptionError."""
        return AmqpStreamReader(
            source_options(merge_table_options(self.options, schema, SOURCE), streaming=True), schema
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of a batch query. Raises OptionError."""
        from pipeline.connector.options import sink_options
        from pipeline.connector.sink import AmqpWriter

        return AmqpWriter(
            sink_options(merge_table_options(self.options, schema, SINK), schema, overwrite, streaming=False)
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Return the writer of a streaming query. Raises OptionError, ServerError."""
        from pipeline.connector.options import sink_options
        from pipeline.connector.sink import AmqpStagedWriter, AmqpStreamWriter

        options = sink_options(
            merge_table_options(self.options, schema, SINK), schema, overwrite, streaming=True
        )
        return AmqpStreamWriter(options) if options.name is None else AmqpStagedWriter(options, options.name)


class AmqpReader(DataSourceReader):
    """Reads the messages that exist when the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return the slice that each task reads (DataSourceReader)."""
        from pipeline.connector.plan import Slice, plan_batch

        return [Slice(each, None) for each in plan_batch(self._options)]

    def read(self, partition: InputPartition | None) -> Batches:
        """Read a slice; without slices Spark passes its own partition (DataSourceReader)."""
        return _read(self._options, self._schema, partition)


class AmqpFilteringReader(AmqpReader):
    """Reads only messages that pass the query's filters. Spark must be configured to push filters down.

    Spark uses the last plan for all queries of one DataFrame, also for queries with other filters. [Spark 4.3
    PythonDataSourceV2.readInfo]
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._filters: RangeFilters | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Take filters, and return those that Spark must still evaluate (DataSourceReader)."""
        from pipeline.connector.options import AMQP
        from pipeline.connector.pushdown import convert_filters

        self._filters, left = convert_filters(filters, has_times=self._options.transport != AMQP)
        return left

    def partitions(self) -> list[InputPartition]:
        """Return the slice that each task reads (DataSourceReader)."""
        from pipeline.connector.plan import EVERYTHING, Slice, plan_batch

        return [Slice(each, None) for each in plan_batch(self._options, self._filters or EVERYTHING)]

    def read(self, partition: InputPartition | None) -> Batches:
        """Read a slice; without slices Spark passes its own partition (DataSourceReader)."""
        return _read(self._options, self._schema, partition, self._filters and self._filters.keys)


class AmqpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads in batches from offset to offset; a repeated batch has the same messages.

    Messages are acknowledged when Spark has committed them: up to the offset from which it asks for more.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._planner: BatchPlanner | None = None  # made on the first use, in the process that plans

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Return the offsets of the first batch; Spark calls this more than once (DataSourceStreamReader)."""
        return self._planning().initial().json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """Return the limit of rows; `next_batch` applies the other limits (DataSourceStreamReader)."""
        rows = self._options.limits.rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Read only the messages that are there now (SupportsTriggerAvailableNow)."""
        self._planning().fix_end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch (DataSourceStreamReader)."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._planning().next_batch(start, rows)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 (Spark's name)
        """Return the ends of the streams, for the query's metrics (DataSourceStreamReader)."""
        return self._planning().end_seen()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the slice of a batch that each task reads (DataSourceStreamReader)."""
        return list(self._planning().slices(start, end))

    def read(self, partition: InputPartition | None) -> Batches:
        """Read a slice; without slices Spark passes its own partition (DataSourceStreamReader)."""
        return _read(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge a batch (DataSourceStreamReader)."""
        self._planning().acknowledge(end)

    def _planning(self) -> BatchPlanner:
        from pipeline.connector.plan import Progress

        if self._planner is None:
            self._planner = Progress(self._options)
        return self._planner


def register(spark: SparkSession) -> None:
    """Register `format("amqp")` if the package is not installed but in a zip.

    Raises PipelineError if Spark's workers start an interpreter without the package.
    """
    from pipeline.requirements import check_workers

    check_workers(spark)
    spark.dataSource.register(AmqpDataSource)


def _schema(options: SourceOptions) -> StructType:
    schema = None if options.body_schema is None else _body_schema(options, options.body_schema)
    body = body_type(options.body_format, schema)
    return source_schema(body, options.properties, options.headers)


def _body_schema(options: SourceOptions, text: str) -> StructType:
    from pipeline.connector.batches import sample_bodies
    from pipeline.connector.bodies import add_corrupt_field, infer_schema
    from pipeline.connector.schema import parse_schema

    return add_corrupt_field(infer_schema(sample_bodies(options)) if text == INFER else parse_schema(text))


def _read(
    options: SourceOptions,
    schema: StructType,
    partition: InputPartition | None,
    keys: frozenset[object] | None = None,
) -> Batches:
    from pipeline.connector.batches import read_range
    from pipeline.connector.plan import Slice

    if not isinstance(partition, Slice):
        return iter(())
    return read_range(options, schema, partition, keys)
