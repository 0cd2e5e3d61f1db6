"""Events in other formats: few large Parquet files by date and hour, Delta tables, Iceberg tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pipeline.errors import PipelineError

WANTED: Final = {"delta": "deltalake", "iceberg": "pyiceberg.catalog.sql"}
TABLE: Final = "journal.events"
EVENTS_OF_FILE: Final = 2_000_000  # an audit may need all bytes of a file in memory


def compact(events: DataFrame, out: str) -> dict[str, Any]:
    """Rewrite events as one file for each hour and 2 million events, by queue and seq, and count them again.

    Raises PipelineError: the new files have another number of rows, and must not be used.
    """
    before = events.count()
    by_hour = events.withColumns(
        {"date": F.date_format("ts", "yyyy-MM-dd"), "hour": F.date_format("ts", "HH")}
    )
    (
        by_hour.repartition("date", "hour")
        .sortWithinPartitions("date", "hour", "queue_id", "seq")
        .write.mode("errorifexists")
        .option("compression", "zstd")
        .option("maxRecordsPerFile", EVENTS_OF_FILE)
        .partitionBy("date", "hour")
        .parquet(out)
    )
    after = events.sparkSession.read.parquet(out).count()
    if after != before:
        raise PipelineError(f"'{out}' has {after} events instead of {before}")
    return {"events": after, "out": out}


def export(events: DataFrame, to: str, out: str) -> dict[str, Any]:
    """Write events as Parquet, or append them to a Delta or Iceberg table. Raises PipelineError."""
    if to == "parquet":
        return compact(events, out)
    return EXPORTS[to](events, out)


def _delta(events: DataFrame, out: str) -> dict[str, Any]:
    delta = _module("delta")
    written = 0
    for batch in _batches(events):
        delta.write_deltalake(out, batch, mode="append")
        written += batch.num_rows
    return {"events": written, "out": out, "version": delta.DeltaTable(out).version()}


def _iceberg(events: DataFrame, out: str) -> dict[str, Any]:
    iceberg = _module("iceberg")
    folder = Path(out).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    catalog = iceberg.SqlCatalog("amqpd", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace_if_not_exists(TABLE.partition(".")[0])
    table = None
    written = 0
    for batch in _batches(events):
        table = table or catalog.create_table_if_not_exists(TABLE, schema=batch.schema)
        table.append(batch)
        written += batch.num_rows
    return {"events": written, "out": out, "table": TABLE}


def _batches(events: DataFrame) -> Iterator[Any]:
    """Yield Arrow tables of events, an hour each, so that the driver holds at most one hour."""
    hour = F.date_trunc("hour", "ts")
    hours = sorted(row["hour"] for row in events.select(hour.alias("hour")).distinct().collect())
    for each in hours:
        yield events.where(hour == F.lit(each)).orderBy("node", "seq").toArrow()


def _module(to: str) -> Any:
    """Return the library that writes a format, an optional dependency. Raises PipelineError without it."""
    name = WANTED[to]
    package = name.partition(".")[0]
    if find_spec(package) is None:
        raise PipelineError(
            f"export to {to} takes {package}, which is not installed: pip install 'amqpd[{to}]'"
        )
    return import_module(name)


EXPORTS: Final[dict[str, Callable[[DataFrame, str], dict[str, Any]]]] = {"delta": _delta, "iceberg": _iceberg}
