"""Whether the journal of one node is whole: seqs that are missing, or there twice."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pipeline.jobs.moves import BLOCK, block_of


def holes(events: DataFrame, moved: DataFrame, node: str) -> DataFrame:
    """Where seqs are missing or come again.

    node | after | before | missing (negative: there again) | at: when the event behind was.
    `moved`: of `moves`; events are looked at only in blocks where some seq from the first to the last is not
    there once. A `gap` just behind a hole explains it.
    """
    summed = moved.groupBy(block_of("since").alias("block")).agg(
        F.sum("events").alias("events"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.sum("total").alias("total"),
        F.min("gap").alias("gap"),
        F.min("earliest").alias("earliest"),
        F.max("latest").alias("latest"),
    )
    seq, times, inner = F.col("seq"), F.col("times"), F.col("inner")
    first, last = F.col("first"), F.col("last")
    total = (first.bitwiseAND(BLOCK - 1) + last.bitwiseAND(BLOCK - 1)) * F.col("events")
    is_whole = (last - first + 1 == F.col("events")) & (F.col("total") * 2 == total)
    by_gap = F.coalesce(F.col("gap") == first, F.lit(False))
    no, yes, micros = F.lit(False), F.lit(True), F.unix_micros("ts")
    begin = _place(first, by_gap, no, F.col("earliest"))
    end = _place(last, no, yes, F.col("latest"))
    torn = summed.where(~is_whole).select("block")
    looked_at = events.select("seq", "ts", "op", block_of("seq").alias("block"))
    rows = (
        looked_at.join(F.broadcast(torn), "block")
        .groupBy("seq")
        .agg(
            F.count(F.lit(1)).alias("times"),
            F.bool_or(F.col("op") == "gap").alias("explained"),
            no.alias("inner"),
            F.max(micros).alias("micros"),
        )
    )
    after = F.lag("seq").over(Window.partitionBy(F.lit(1)).orderBy("seq", "inner"))
    missing = F.when(times > 1, 1 - times).when(inner, 0).otherwise(seq - F.col("after") - 1)
    return (
        summed.where(is_whole)
        .select(F.inline(F.array(begin, end)))
        .unionByName(rows)
        .withColumn("after", after)
        .where((missing != 0) & ~F.col("explained"))
        .select(
            F.lit(node).alias("node"),
            "after",
            seq.alias("before"),
            missing.alias("missing"),
            F.timestamp_micros("micros").alias("at"),
        )
    )


def _place(seq: Column, explained: Column, inner: Column, micros: Column) -> Column:
    """An end of a block that has all its seqs once. `inner`: its other end is before it."""
    once = F.lit(1).cast("long").alias("times")
    return F.struct(
        seq.alias("seq"), once, explained.alias("explained"), inner.alias("inner"), micros.alias("micros")
    )
