"""Journals as DataFrames of events: sealed events, or sealed and live events together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StructField, StructType

from pipeline.errors import PipelineError
from pipeline.journal.journals import find_journal
from pipeline.journal.options import FORMAT, journal_options
from pipeline.journal.raw import find_ends
from pipeline.journal.schema import EVENTS, QUANTITY_ALIAS
from pipeline.journal.source import register

FILES = StructType([*EVENTS.fields, StructField(QUANTITY_ALIAS, LongType())])
"""The columns that are read from files; a column that a file lacks is null."""

EVENTS_OF_BATCH: Final = 1_000_000


def read_events(
    spark: SparkSession, journal: str, since: datetime | None = None, strays: Sequence[str] = ()
) -> DataFrame:
    """Return all sealed events (EVENTS) in a journal's folder, or those from `since` on, without `strays`.

    Raises PipelineError: there is no journal.
    """
    files = with_events_from(spark.read.schema(FILES).parquet(sealed_folder(journal)), since)
    path = F.url_decode(F.regexp_replace("_metadata.file_path", r"\+", "%2B"))
    events = as_events(files.where(is_no_stray(path, strays)) if strays else files)
    return events if since is None else events.where(F.col("ts") >= F.lit(since))


def is_no_stray(path: Column, strays: Sequence[str]) -> Column:
    """Return whether a file's path is none of `strays`, which are paths in the journal's folder."""
    return ~F.concat(F.lit("parquet/"), F.substring_index(path, "/parquet/", -1)).isin(*strays)


def with_events_from(files: DataFrame, since: datetime | None) -> DataFrame:
    """Return the files of days that may have events from a time on, if folders have the day."""
    if since is None or "date" not in files.columns:
        return files
    day = F.lit((since - timedelta(days=1)).date())  # the earliest day of a file's first event
    return files.where(F.col("date") >= day)


def as_events(files: DataFrame) -> DataFrame:
    """Return the columns of files as EVENTS."""
    return files.select(*(_column(field.name) for field in EVENTS.fields))


def sealed_folder(journal: str) -> str:
    """Return the folder of the Parquet files: `parquet` in the journal's folder, or that folder itself.

    A URL of another file system is returned unchanged. Raises PipelineError.
    """
    if "://" in journal:
        return journal
    folder = Path(journal)
    if not folder.is_dir():
        raise PipelineError(f"no journal in '{journal}': there is no such folder")
    inner = folder / "parquet"
    chosen = inner if inner.is_dir() else folder
    if next(chosen.rglob("[!.]*.parquet"), None) is None:
        raise PipelineError(f"no sealed journal in '{journal}': amqpd journal seal '{journal}' seals files")
    return str(chosen)


def _column(name: str) -> Column:
    if name == "quantity":
        return F.coalesce(F.col(name), F.col(QUANTITY_ALIAS)).alias(name)
    return F.col(name)


def live_events(spark: SparkSession, given: Mapping[str, str], since: datetime | None = None) -> DataFrame:
    """Return all events (EVENTS) up to now, or those from `since` on: the same at each reading.

    `given`: options of `format("amqp-journal")`. Raises PipelineError: there is no journal.
    """
    return read_fixed(spark, fix_end(given, since), since)


def read_fixed(spark: SparkSession, fixed: Mapping[str, str], since: datetime | None) -> DataFrame:
    """Return the events of the options of `fix_end`."""
    register(spark)
    events = spark.read.format(FORMAT).options(**fixed).load()
    return (events if since is None else events.where(F.col("ts") >= F.lit(since))).persist()


def fix_end(given: Mapping[str, str], since: datetime | None) -> dict[str, str]:
    """Return options that select the same events at each reading: up to now, unless the options have an end.

    Raises PipelineError: there is no journal.
    """
    options = journal_options(given, streaming=False)
    now = find_ends(find_journal(options), options.fetch_bytes)
    start = {} if since is None else {"startingTimestamp": str(int(since.timestamp() * 1000))}
    return {"endingOffsets": json.dumps(now)} | dict(given) | start


def live_stream(spark: SparkSession, given: Mapping[str, str]) -> DataFrame:
    """Return all events from the first one on, and new ones, as a stream."""
    register(spark)
    defaults = {"startingOffsets": "earliest", "maxEventsPerTrigger": str(EVENTS_OF_BATCH)}
    return spark.readStream.format(FORMAT).options(**defaults | dict(given)).load()
