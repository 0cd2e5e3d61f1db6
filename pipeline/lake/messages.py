"""Messages stored in Parquet files: each message once, even if a batch is repeated.

<out>/checkpoint/                                       of Spark: the progress
<out>/data/batch=N/queue=NAME/date=2026-01-31/*.parquet the messages of batch N, once
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pipeline.connector.listener import watch
from pipeline.errors import PipelineError
from pipeline.session import await_query

PARTITIONS: Final = ("queue", "date")
EVERY: Final = "5 seconds"


def store(
    spark: SparkSession,
    options: Mapping[str, str],
    out: str,
    continuous: bool,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Store the messages up to now, or endlessly until a signal; return the numbers of this run.

    `options`: of `format("amqp")`. Raises PipelineError: `out` has data of another checkpoint.
    """
    _check(out)
    rows = batches = 0

    def take(batch: DataFrame, number: int) -> None:
        nonlocal rows, batches
        batch.persist()
        count = batch.count()
        dated = batch.withColumn("date", F.to_date(F.coalesce("timestamp", F.current_timestamp())))
        dated.write.mode("overwrite").partitionBy(*PARTITIONS).parquet(f"{out}/data/batch={number}")
        batch.unpersist()
        rows += count
        batches += 1
        tell(f"batch {number}: {count} messages")

    stream = spark.readStream.format("amqp").options(**options).load()
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", f"{out}/checkpoint")
    trigger = writer.trigger(processingTime=EVERY) if continuous else writer.trigger(availableNow=True)
    listener = watch(spark, options)
    try:
        await_query(trigger.start())
    finally:
        spark.streams.removeListener(listener)
    return {"messages": rows, "batches": batches, "out": out}


def _check(out: str) -> None:
    """Raise PipelineError if there is data without a checkpoint, which would be replaced."""
    if "://" in out or Path(out, "checkpoint").is_dir():
        return
    if next(Path(out, "data").glob("batch=*"), None) is not None:
        raise PipelineError(f"'{out}' has data but no checkpoint: store new messages in another folder")
