"""Journals as jobs read them while they go on: what is sealed and what is live, together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pipeline.journal.journals import journal_of
from pipeline.journal.options import FORMAT, journal_options
from pipeline.journal.planning import ends
from pipeline.journal.source import register

EVENTS_OF_BATCH: Final = 1_000_000


def live_events(spark: SparkSession, said: Mapping[str, str], since: datetime | None = None) -> DataFrame:
    """All events up to now, or those from `since` on (EVENTS): the same each time, and read once.

    `said`: options of `format("amqp-journal")`. Raises PipelineError: there is no journal.
    """
    return read_fixed(spark, until_now(said, since), since)


def read_fixed(spark: SparkSession, fixed: Mapping[str, str], since: datetime | None) -> DataFrame:
    """The same with the options of `until_now`."""
    register(spark)
    events = spark.read.format(FORMAT).options(**fixed).load()
    return (events if since is None else events.where(F.col("ts") >= F.lit(since))).persist()


def until_now(said: Mapping[str, str], since: datetime | None) -> dict[str, str]:
    """Options with which the same events are read each time: those until now, unless they say of others.

    Raises PipelineError: there is no journal.
    """
    options = journal_options(said, streaming=False)
    now = ends(journal_of(options), options.fetch_bytes)
    start = {} if since is None else {"startingTimestamp": str(int(since.timestamp() * 1000))}
    return {"endingOffsets": json.dumps(now)} | dict(said) | start


def live_stream(spark: SparkSession, said: Mapping[str, str]) -> DataFrame:
    """All events from the first one that there is, and those that come, in batches."""
    register(spark)
    defaults = {"startingOffsets": "earliest", "maxEventsPerTrigger": str(EVENTS_OF_BATCH)}
    return spark.readStream.format(FORMAT).options(**defaults | dict(said)).load()
