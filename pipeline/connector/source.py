"""`format("amqp")` as Spark finds it: the source, its two readers, and the sink.

Spark plans in processes that are new each time: each imports what it needs, and no more.
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

from pipeline.connector.filters import Pushed
from pipeline.connector.offsets import Offsets
from pipeline.connector.options import INFER, SUBSCRIPTIONS, SourceOptions, source_options
from pipeline.connector.schema import body_type, source_schema
from pipeline.connector.tables import SINK, SOURCE, is_table, kept, options_of_table, with_kept

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
        """The columns; some of them come by options. Raises OptionError, ServerError."""
        if not is_table(self.options):
            return _schema(source_options(self.options, streaming=False))
        said = options_of_table(self.options)
        if not SUBSCRIPTIONS.isdisjoint(said):
            return kept(_schema(source_options(said, streaming=False)), said, SOURCE)
        from pipeline.connector.options import sink_columns, sink_options

        columns = sink_columns(said)
        sink_options(said, columns, overwrite=False, streaming=False)
        return kept(columns, said, SINK)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads once. Raises OptionError."""
        options = source_options(with_kept(self.options, schema, SOURCE), streaming=False)
        return AmqpFilteringReader(options, schema) if options.pushdown else AmqpReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Reads on and on. Raises OptionError."""
        return AmqpStreamReader(
            source_options(with_kept(self.options, schema, SOURCE), streaming=True), schema
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Publishes once. Raises OptionError."""
        from pipeline.connector.options import sink_options
        from pipeline.connector.sink import AmqpWriter

        return AmqpWriter(
            sink_options(with_kept(self.options, schema, SINK), schema, overwrite, streaming=False)
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Publishes batch after batch. Raises OptionError, ServerError."""
        from pipeline.connector.options import sink_options
        from pipeline.connector.sink import AmqpStagedWriter, AmqpStreamWriter

        options = sink_options(with_kept(self.options, schema, SINK), schema, overwrite, streaming=True)
        return AmqpStreamWriter(options) if options.name is None else AmqpStagedWriter(options, options.name)


class AmqpReader(DataSourceReader):
    """Reads the messages that are there when the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return the slice that each task reads (DataSourceReader)."""
        from pipeline.connector.plan import Slice, of_batch

        return [Slice(each, None) for each in of_batch(self._options)]

    def read(self, partition: InputPartition | None) -> Batches:
        """Read it; where there are no partitions Spark has one of its own (DataSourceReader)."""
        return _read(self._options, self._schema, partition)


class AmqpFilteringReader(AmqpReader):
    """Reads only what filters of the query leave. Spark refuses it unless it is set to push filters down.

    What it has planned last Spark uses for all queries of one DataFrame, also for those with other filters.
    [Spark 4.3 PythonDataSourceV2.readInfo]
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._filters: Pushed | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Take filters, and return those that Spark must still evaluate (DataSourceReader)."""
        from pipeline.connector.options import AMQP
        from pipeline.connector.pushdown import pushed

        self._filters, left = pushed(filters, has_times=self._options.transport != AMQP)
        return left

    def partitions(self) -> list[InputPartition]:
        """Return the slice that each task reads (DataSourceReader)."""
        from pipeline.connector.plan import EVERYTHING, Slice, of_batch

        return [Slice(each, None) for each in of_batch(self._options, self._filters or EVERYTHING)]

    def read(self, partition: InputPartition | None) -> Batches:
        """Read it; where there are no partitions Spark has one of its own (DataSourceReader)."""
        return _read(self._options, self._schema, partition, self._filters and self._filters.keys)


class AmqpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads in batches from offset to offset; a batch that is read again has the same messages.

    What is acknowledged is what Spark has committed: the offset with which it asks for more.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._planner: BatchPlanner | None = None  # made on the first use, in the process that plans

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Where the first batch begins; asked more than once (DataSourceStreamReader)."""
        return self._planning().initial().json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """Return the limit of rows; `next_batch` applies the other limits (DataSourceStreamReader)."""
        rows = self._options.limits.rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Read only the messages that are there now (SupportsTriggerAvailableNow)."""
        self._planning().fix_end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next batch goes (DataSourceStreamReader)."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._planning().next_batch(start, rows)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 (Spark's name)
        """Return the ends of the streams, for people who watch the query (DataSourceStreamReader)."""
        return self._planning().end_seen()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the slice of a batch that each task reads (DataSourceStreamReader)."""
        return list(self._planning().slices(start, end))

    def read(self, partition: InputPartition | None) -> Batches:
        """Read it; where there are no partitions Spark has one of its own (DataSourceStreamReader)."""
        return _read(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done (DataSourceStreamReader)."""
        self._planning().acknowledge(end)

    def _planning(self) -> BatchPlanner:
        from pipeline.connector.plan import Progress

        if self._planner is None:
            self._planner = Progress(self._options)
        return self._planner


def register(spark: SparkSession) -> None:
    """Have `format("amqp")` be known where the package is not installed but comes in a zip.

    Raises PipelineError if Spark's workers start an interpreter that does not have the package.
    """
    from pipeline.requirements import check_workers

    check_workers(spark)
    spark.dataSource.register(AmqpDataSource)


def _schema(options: SourceOptions) -> StructType:
    schema = None if options.body_schema is None else _body_schema(options, options.body_schema)
    body = body_type(options.body_format, schema)
    return source_schema(body, options.properties, options.headers)


def _body_schema(options: SourceOptions, said: str) -> StructType:
    from pipeline.connector.batches import sampled
    from pipeline.connector.bodies import inferred, with_corrupt
    from pipeline.connector.schema import schema_of

    return with_corrupt(inferred(sampled(options)) if said == INFER else schema_of(said))


def _read(
    options: SourceOptions,
    schema: StructType,
    partition: InputPartition | None,
    keys: frozenset[object] | None = None,
) -> Batches:
    from pipeline.connector.batches import read
    from pipeline.connector.plan import Slice

    if not isinstance(partition, Slice):
        return iter(())
    return read(options, schema, partition, keys)
