"""Sums by queue and piece of the journal, of which much of an audit is made."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pipeline.journal.schema import LEAVING

ANCHORS: Final = ("declare", "checkpoint", "recover", "queue_delete")
BLOCK_BITS: Final = 16
SLICE_BITS: Final = 12
BLOCK: Final = 1 << BLOCK_BITS


def moves(events: DataFrame, anchored: DataFrame) -> DataFrame:
    """By node | queue_id (null: of none) | since: sums of the events of one piece of the journal.

    `since`: where a run of anchors or else a block of 65,536 seqs begins; no other one is between the events
    of a row. change: by how much the queue has more entries after them | listed: how many a restart has
    listed | events | first, last: seqs | total: sum of the seqs' places in the block | gap: seq of the first
    `gap` | earliest, latest: microseconds since 1970. `anchored`: of `anchors`.
    """
    seq, time, named = F.col("seq"), F.unix_micros("ts"), F.col("msg_uid").isNotNull()
    cut = F.broadcast(_pieces(anchored))
    rows = events.withColumn("slice", F.shiftright("seq", SLICE_BITS))
    # nodes are compared last and not hashed: there are few, and many events
    same_node = (rows["node"] <= cut["of_node"]) & (rows["node"] >= cut["of_node"])
    is_in = (rows["slice"] == cut["of_slice"]) & (seq >= F.col("begin")) & (seq < F.col("end")) & same_node
    sums: dict[str, Column] = {
        "change": F.sum(_change()),
        "listed": F.sum(((F.col("op") == "recover") & named).cast("long")),
        "events": F.count(F.lit(1)),
        "first": F.min(seq),
        "last": F.max(seq),
        "total": F.sum(seq.bitwiseAND(BLOCK - 1)),
        "gap": F.min(F.when(F.col("op") == "gap", seq)),
        "earliest": F.min(time),
        "latest": F.max(time),
    }
    return (
        rows.join(cut, is_in, "left")
        .groupBy("node", "queue_id", F.coalesce("piece", block_of("seq")).alias("since"))
        .agg(*(column.alias(name) for name, column in sums.items()))
    )


def activity(events: DataFrame) -> DataFrame:
    """By node | queue_id: latest: microseconds since 1970."""
    return events.groupBy("node", "queue_id").agg(F.max(F.unix_micros("ts")).alias("latest"))


def anchors(told: DataFrame) -> DataFrame:
    """The facts that say how much is in a queue, and `since`: where its run of anchors begins.

    Queues are told of one after the other, with nothing between; so runs are few, and anchors are many.
    """
    in_order = Window.partitionBy("node").orderBy("seq")
    begins = F.coalesce(F.col("seq") - F.lag("seq").over(in_order) > 1, F.lit(True))
    begun = F.last(F.when(F.col("begins"), F.col("seq")), ignorenulls=True)
    return (
        told.where(F.col("op").isin(*ANCHORS) & F.col("queue_id").isNotNull())
        .select("node", "queue_id", "vhost", "queue", "seq", "ts", "op", "quantity", "reason")
        .withColumn("begins", begins)
        .withColumn("since", begun.over(in_order.rowsBetween(Window.unboundedPreceding, 0)))
        .drop("begins")
    )


def block_of(seq: str) -> Column:
    """Where the block begins that a seq is in."""
    return F.shiftleft(F.shiftright(seq, BLOCK_BITS), BLOCK_BITS)


def _pieces(anchored: DataFrame) -> DataFrame:
    """The blocks in which runs begin, by slices of 4,096 seqs, which are cut where one does.

    of_node | of_slice | begin | end: the seq behind it | piece: where the last run begins, or the block.
    """
    runs = anchored.where(F.col("seq") == F.col("since")).select("node", "seq").distinct()
    blocks = runs.select("node", block_of("seq").alias("block")).distinct()
    slices = F.explode(F.sequence(F.lit(0), F.lit(BLOCK - 1), F.lit(1 << SLICE_BITS))).alias("place")
    whole = blocks.select("node", "block", slices)
    edges = whole.select(
        "node",
        (F.col("block") + F.col("place")).alias("seq"),
        F.when(F.col("place") == 0, F.col("block")).alias("piece"),
    )
    in_block = Window.partitionBy("node", block_of("seq")).orderBy("seq")
    so_far = in_block.rowsBetween(Window.unboundedPreceding, 0)
    return (
        runs.select("node", "seq", F.col("seq").alias("piece"))
        .unionByName(edges)
        .groupBy("node", "seq")
        .agg(F.max("piece").alias("piece"))
        .select(
            F.col("node").alias("of_node"),
            F.shiftright("seq", SLICE_BITS).alias("of_slice"),
            F.col("seq").alias("begin"),
            F.coalesce(F.lead("seq").over(in_block), block_of("seq") + BLOCK).alias("end"),
            F.last("piece", ignorenulls=True).over(so_far).alias("piece"),
        )
    )


def _change() -> Column:
    """By how much a queue has more entries after an event. `queue_delete` is an anchor and no change."""
    op = F.col("op")
    return (
        F.when(op == "enqueue", F.lit(1).cast("long"))
        .when(op.isin(*LEAVING), -1)
        .when(op.isin("purge", "lost"), -F.coalesce("quantity", F.lit(0)))
        .otherwise(0)
    )
