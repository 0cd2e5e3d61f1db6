"""Double-entry bookkeeping of one node: opening + in - out = closing, for each queue between two anchors."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pipeline.journal.schema import ANCHORS


def imbalances(moved: DataFrame, told: DataFrame) -> DataFrame:
    """Intervals of a queue that do not add up. `moved`: sums of a digest; `told`: `facts`; of one node.

    queue_id | vhost | queue | op | from_seq | to_seq | expected: what came and left makes it | found
    | at: when. What a restart lists must be as many as it says. Intervals with a gap are passed over, and
    so are lists: behind it may be the rest of one, or one that begins anew. `expected` is null where files
    have events of one queue across one another: then no sum says what came before an anchor.
    """
    in_order = Window.partitionBy("queue_id").orderBy("since", F.col("op").isNull(), "seq")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, 0)
    pieces = moved.where(F.col("queue_id").isNotNull()).select(
        "queue_id", F.col("first").alias("since"), "last", "change", "listed"
    )
    at_anchors = (
        _anchors(told)
        .unionByName(pieces, allowMissingColumns=True)
        .withColumn("moved", F.sum(F.coalesce("change", F.lit(0))).over(so_far))
        .withColumn("counted", F.sum(F.coalesce("listed", F.lit(0))).over(so_far))
        .withColumn("across", F.coalesce(F.max("last").over(so_far) > F.col("seq"), F.lit(False)))
        .where(F.col("op").isNotNull())
    )
    return _compared(at_anchors, told)


def _anchors(told: DataFrame) -> DataFrame:
    """The facts that say how much is in a queue."""
    return told.where(F.col("op").isin(*ANCHORS) & F.col("queue_id").isNotNull()).select(
        "queue_id", "vhost", "queue", "seq", F.col("seq").alias("since"), "ts", "op", "quantity", "reason"
    )


def _compared(at_anchors: DataFrame, told: DataFrame) -> DataFrame:
    order = Window.partitionBy("queue_id").orderBy("seq")
    op = F.col("op")
    closing = F.when(op == "queue_delete", 0).otherwise(F.col("quantity"))
    before = {
        "from_seq": F.lag("seq").over(order),
        "opening": F.lag(closing).over(order),
        "moved_before": F.lag("moved").over(order),
        "counted_before": F.lag("counted").over(order),
        "across_before": F.coalesce(F.lag("across").over(order), F.lit(False)),
    }
    made = F.col("opening") + F.col("moved") - F.col("moved_before")
    told_there = F.col("counted") - F.coalesce("counted_before", F.lit(0))
    is_known = ~(F.col("across") | F.col("across_before"))
    expected = F.when(is_known, F.when(op == "recover", told_there).otherwise(made))
    compares = ~op.isin("declare") & ~F.coalesce(F.col("reason") == "level", F.lit(False))
    has_before = (op == "recover") | F.col("from_seq").isNotNull()
    differs = ~is_known | (F.col("expected") != F.col("quantity"))
    return (
        at_anchors.withColumns(before)
        .crossJoin(F.broadcast(_gaps(told)))
        .withColumn("expected", expected)
        .where(compares & has_before & differs & ~_in_gap())
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


def _gaps(told: DataFrame) -> DataFrame:
    op = F.col("op")
    off = (op == "level") & (F.col("reason") == "off") & F.col("queue_id").isNull()
    return told.where((op == "gap") | off).agg(F.sort_array(F.collect_list("seq")).alias("gaps"))


def _in_gap() -> Column:
    begin = F.coalesce("from_seq", F.lit(0))  # a list may be without an anchor before it
    return F.exists("gaps", lambda gap: (gap > begin) & (gap < F.col("seq")))
