"""Whether the journal of one node is whole: seqs that are missing, or there twice."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pipeline.digest.schema import BLOCK, block_of


def blocks(moved: DataFrame) -> DataFrame:
    """Blocks of 65,536 seqs out of the sums of a digest; `whole`: each seq from first to last is there once.

    node | block | events | first | last | whole | excused: the first is a `gap`, which says that the events
    from this seq on may be missing | earliest | latest | settled | lowest
    """
    first, last = F.col("first"), F.col("last")
    total = (first.bitwiseAND(BLOCK - 1) + last.bitwiseAND(BLOCK - 1)) * F.col("events")
    return (
        moved.groupBy("node", block_of("first").alias("block"))
        .agg(
            *(F.sum(name).alias(name) for name in ("events", "total", "settled")),
            *(F.min(name).alias(name) for name in ("first", "gap", "excused", "earliest", "lowest")),
            *(F.max(name).alias(name) for name in ("last", "latest")),
        )
        .withColumns(
            {
                "whole": (last - first + 1 == F.col("events")) & (F.col("total") * 2 == total),
                "excused": F.when(F.col("gap") == first, F.col("excused")),
            }
        )
        .drop("total", "gap")
    )


def holes(of_node: DataFrame, torn: DataFrame | None) -> DataFrame:
    """Where seqs are missing or come again. `of_node`: `blocks`; `torn`: events of those that are not whole.

    node | after | before | missing (negative: there again) | at: when the event behind was. A `gap` excuses
    as many events directly before it as it says; one of version 1 excuses all.
    """
    no, yes = F.lit(False), F.lit(True)
    begin = _place(F.col("first"), F.col("excused"), no, F.col("earliest"))
    end = _place(F.col("last"), F.lit(None).cast("long"), yes, F.col("latest"))
    places = of_node.where("whole").select("node", F.inline(F.array(begin, end)))
    if torn is not None:
        places = places.unionByName(_each(torn))
    seq, times = F.col("seq"), F.col("times")
    after = F.lag("seq").over(Window.partitionBy("node").orderBy("seq", "inner"))
    behind = F.least(seq, F.greatest(F.coalesce("excused", seq), F.col("after") + 1))
    missing = F.when(times > 1, 1 - times).when(F.col("inner"), 0).otherwise(behind - F.col("after") - 1)
    return (
        places.withColumn("after", after)
        .where(missing != 0)
        .select(
            "node",
            "after",
            F.when(times > 1, seq).otherwise(behind).alias("before"),
            missing.alias("missing"),
            F.timestamp_micros("micros").alias("at"),
        )
    )


def of_torn(events: DataFrame, of_node: DataFrame) -> DataFrame:
    """The events in those `blocks` of a node that are not whole."""
    torn = of_node.where(~F.col("whole")).select("block")
    looked_at = events.select("node", "seq", "ts", "op", "quantity", block_of("seq").alias("block"))
    return looked_at.join(F.broadcast(torn), "block")


def _each(torn: DataFrame) -> DataFrame:
    """A place for each seq."""
    return torn.groupBy("node", "seq").agg(
        F.count(F.lit(1)).alias("times"),
        F.min(F.when(F.col("op") == "gap", F.col("seq") - F.coalesce("quantity", F.col("seq")))).alias(
            "excused"
        ),
        F.lit(False).alias("inner"),
        F.max(F.unix_micros("ts")).alias("micros"),
    )


def _place(seq: Column, excused: Column, inner: Column, micros: Column) -> Column:
    """An end of a block that has all its seqs once. `inner`: its other end is before it."""
    once = F.lit(1).cast("long").alias("times")
    return F.struct(
        seq.alias("seq"), once, excused.alias("excused"), inner.alias("inner"), micros.alias("micros")
    )
