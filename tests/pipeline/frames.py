"""Events as DataFrames and as digests, from their relevant fields."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, settings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.digest.sources import Digest, sealed_journal_digest
from pipeline.journal.schema import EVENTS

SLOW: Final = settings(
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # each example takes seconds
    suppress_health_check=list(HealthCheck),
)
WHEN: Final = datetime(2026, 1, 1, tzinfo=UTC)


def table(events: list[dict[str, Any]]) -> pa.Table:
    """Return events of a single moment, by default; missing fields are null."""
    return pa.Table.from_pylist(
        [{"ts": WHEN} | event for event in events], to_arrow_schema(EVENTS, timezone="UTC")
    )


def frame(spark: SparkSession, events: list[dict[str, Any]]) -> DataFrame:
    """The `table` of some events."""
    return spark.createDataFrame(table(events))


def digested(spark: SparkSession, folder: Path, events: pa.Table, *cuts: int) -> Digest:
    """Return the digest of these events, cut into several files."""
    parquet = folder / "parquet"
    parquet.mkdir(parents=True)
    for number, (start, end) in enumerate(pairwise([0, *cuts, events.num_rows])):
        pq.write_table(events.slice(start, end - start), parquet / f"{number}.parquet")
    return sealed_journal_digest(spark, str(folder))
