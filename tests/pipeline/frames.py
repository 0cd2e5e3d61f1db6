"""Events as DataFrames, out of what matters of each."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.journal.schema import EVENTS

WHEN: Final = datetime(2026, 1, 1, tzinfo=UTC)


def frame(spark: SparkSession, events: list[dict[str, Any]]) -> DataFrame:
    """Events of one moment, unless they say of another; what they do not have is null."""
    schema = to_arrow_schema(EVENTS, timezone="UTC")
    return spark.createDataFrame(pa.Table.from_pylist([{"ts": WHEN} | event for event in events], schema))
