"""Double-entry bookkeeping of one node: opening + in - out = closing, for each queue between two anchors."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812


def imbalances(moved: DataFrame, anchored: DataFrame, told: DataFrame) -> DataFrame:
    """Intervals of a queue that do not add up; `moved`: of `moves`; `anchored`: `anchors`, of one node.

    queue_id | vhost | queue | op | from_seq | to_seq | expected: what came and left makes it | found
    | at: when. What a restart lists must be as many as it says. Intervals with a gap are passed over, and
    so are lists: behind it may be the rest of one, or one that begins anew.
    `told`: of `facts`.
    """
    sums = moved.where(F.col("queue_id").isNotNull()).select("queue_id", "since", "change", "listed")
    rows = anchored.drop("node").unionByName(sums, allowMissingColumns=True)
    of_queue = Window.partitionBy("queue_id")
    # anchors of one run have nothing between them, and what moves in their piece moves behind them
    in_order = of_queue.orderBy("since", F.col("op").isNull(), "seq")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, 0)
    at_anchors = (
        rows.withColumn("moved", F.sum(F.coalesce("change", F.lit(0))).over(so_far))
        .withColumn("counted", F.sum(F.coalesce("listed", F.lit(0))).over(so_far))
        .where(F.col("op").isNotNull())
    )
    return _compared(at_anchors, of_queue.orderBy("seq"), told)


def _compared(at_anchors: DataFrame, order: object, told: DataFrame) -> DataFrame:
    op = F.col("op")
    off = (op == "level") & (F.col("reason") == "off") & F.col("queue_id").isNull()
    gaps = told.where((op == "gap") | off).agg(F.sort_array(F.collect_list("seq")).alias("gaps"))
    closing = F.when(op == "queue_delete", 0).otherwise(F.col("quantity"))
    with_before = (
        at_anchors.withColumn("from_seq", F.lag("seq").over(order))
        .withColumn("opening", F.lag(closing).over(order))
        .withColumn("moved_before", F.lag("moved").over(order))
        .withColumn("counted_before", F.lag("counted").over(order))
    )
    made = F.col("opening") + F.col("moved") - F.col("moved_before")
    told_there = F.col("counted") - F.coalesce("counted_before", F.lit(0))
    expected = F.when(op == "recover", told_there).otherwise(made)
    compares = ~op.isin("declare") & ~F.coalesce(F.col("reason") == "level", F.lit(False))
    begin = F.coalesce("from_seq", F.lit(0))  # a list may be without an anchor before it
    in_gap = F.exists("gaps", lambda gap: (gap > begin) & (gap < F.col("seq")))
    return (
        with_before.crossJoin(F.broadcast(gaps))
        .withColumn("expected", expected)
        .where(compares & (F.col("expected") != F.col("quantity")) & ~in_gap)
        .select(
            "queue_id",
            "vhost",
            "queue",
            "op",
            "from_seq",
            F.col("seq").alias("to_seq"),
            "expected",
            F.col("quantity").alias("found"),
            F.col("ts").alias("at"),
        )
    )
