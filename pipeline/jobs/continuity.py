"""Whether the journal of one node is whole: seqs that are missing, or there twice."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pipeline.jobs.chunks import CHUNK, CHUNK_BITS, CHUNK_SUM, chunk


def holes(events: DataFrame, summed: DataFrame, node: str) -> DataFrame:
    """Where seqs are missing or come again: node | after | before | missing (negative: there again).

    `summed`: of `chunks`; only those that are not whole are looked at. A `gap` just behind a
    hole explains it.
    """
    seq = F.col("seq")
    blocks = summed.groupBy("chunk").agg(F.sum("events").alias("events"), F.sum("total").alias("total"))
    is_whole = (F.col("events") == CHUNK) & (F.col("total") == CHUNK_SUM)
    partial = blocks.where(~is_whole).select("chunk")
    start = F.shiftleft("chunk", CHUNK_BITS)
    ends = F.array(
        F.struct(start.alias("seq"), F.lit(False).alias("inner")),
        F.struct((start + CHUNK - 1).alias("seq"), F.lit(True).alias("inner")),
    )
    whole = (
        blocks.where(is_whole)
        .select(F.inline(ends))
        .select("seq", F.lit(1).cast("long").alias("times"), F.lit(False).alias("explained"), "inner")
    )
    looked_at = events.select("seq", "op", chunk()).join(F.broadcast(partial), "chunk")
    rows = looked_at.groupBy("seq").agg(
        F.count(F.lit(1)).alias("times"), F.bool_or(F.col("op") == "gap").alias("explained")
    )
    after = F.lag("seq").over(Window.partitionBy(F.lit(1)).orderBy("seq"))
    missing = (
        F.when(F.col("times") > 1, 1 - F.col("times"))
        .when(F.col("inner"), 0)
        .otherwise(seq - F.col("after") - 1)
    )
    return (
        rows.withColumn("inner", F.lit(False))
        .unionByName(whole)
        .withColumn("after", after)
        .select(
            F.lit(node).alias("node"), "after", seq.alias("before"), missing.alias("missing"), "explained"
        )
        .where((F.col("missing") != 0) & ~F.col("explained"))
    )
