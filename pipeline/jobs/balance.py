"""Checks whether the journal of one node is complete and consistent."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pipeline.digest.schema import BLOCK, block_of
from pipeline.journal.schema import ANCHORS


def blocks(moved: DataFrame) -> DataFrame:
    """Return blocks of 65,536 seqs from the sums of a digest.

    `whole`: each seq from first to last is there once.

    node | block | events | first | last | whole | excused: the first seq that a `gap` reports as possibly
    missing | earliest | latest | settled | lowest
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
    """Return where seqs are missing or repeated. `of_node`: `blocks`. `torn`: events of incomplete blocks.

    node | after | before | missing (negative: repeated) | at: time of the event behind. A `gap` excuses as
    many events directly before it as it names; a `gap` of version 1 excuses all.
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
    """Return the events in incomplete `blocks` of a node."""
    torn = of_node.where(~F.col("whole")).select("block")
    looked_at = events.select("node", "seq", "ts", "op", "quantity", block_of("seq").alias("block"))
    return looked_at.join(F.broadcast(torn), "block")


def _each(torn: DataFrame) -> DataFrame:
    """Return a place for each seq."""
    return torn.groupBy("node", "seq").agg(
        F.count(F.lit(1)).alias("times"),
        F.min(F.when(F.col("op") == "gap", F.col("seq") - F.coalesce("quantity", F.col("seq")))).alias(
            "excused"
        ),
        F.lit(False).alias("inner"),
        F.max(F.unix_micros("ts")).alias("micros"),
    )


def _place(seq: Column, excused: Column, inner: Column, micros: Column) -> Column:
    """Return one end of a complete block. `inner`: the other end is before it."""
    once = F.lit(1).cast("long").alias("times")
    return F.struct(
        seq.alias("seq"), once, excused.alias("excused"), inner.alias("inner"), micros.alias("micros")
    )


def imbalances(moved: DataFrame, fact_rows: DataFrame) -> DataFrame:
    """Return the inconsistent intervals of a queue.

    `moved`: sums of a digest of one node. `fact_rows`: the `facts` of that node.

    queue_id | vhost | queue | op | from_seq | to_seq | expected: from the entries that came and left | found
    | at: time. A restart's list must be as long as the restart reports. Intervals with a gap are skipped, and
    so are lists with a gap, which may be incomplete or begin again. `expected` is null where events of one
    queue overlap between files: then no sum is known before an anchor.
    """
    in_order = Window.partitionBy("queue_id").orderBy("since", F.col("op").isNull(), "seq")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, 0)
    pieces = moved.where(F.col("queue_id").isNotNull()).select(
        "queue_id", F.col("first").alias("since"), "last", "change", "listed"
    )
    at_anchors = (
        _anchors(fact_rows)
        .unionByName(pieces, allowMissingColumns=True)
        .withColumn("moved", F.sum(F.coalesce("change", F.lit(0))).over(so_far))
        .withColumn("counted", F.sum(F.coalesce("listed", F.lit(0))).over(so_far))
        .withColumn("across", F.coalesce(F.max("last").over(so_far) > F.col("seq"), F.lit(False)))
        .where(F.col("op").isNotNull())
    )
    return _compared(at_anchors, fact_rows)


def _anchors(fact_rows: DataFrame) -> DataFrame:
    """Return the facts with the number of entries in a queue."""
    return fact_rows.where(F.col("op").isin(*ANCHORS) & F.col("queue_id").isNotNull()).select(
        "queue_id", "vhost", "queue", "seq", F.col("seq").alias("since"), "ts", "op", "quantity", "reason"
    )


def _compared(at_anchors: DataFrame, fact_rows: DataFrame) -> DataFrame:
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
    computed = F.col("opening") + F.col("moved") - F.col("moved_before")
    told_there = F.col("counted") - F.coalesce("counted_before", F.lit(0))
    is_known = ~(F.col("across") | F.col("across_before"))
    expected = F.when(is_known, F.when(op == "recover", told_there).otherwise(computed))
    compares = ~op.isin("declare") & ~F.coalesce(F.col("reason") == "level", F.lit(False))
    has_before = (op == "recover") | F.col("from_seq").isNotNull()
    differs = ~is_known | (F.col("expected") != F.col("quantity"))
    return (
        at_anchors.withColumns(before)
        .crossJoin(F.broadcast(_gaps(fact_rows)))
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


def _gaps(fact_rows: DataFrame) -> DataFrame:
    op = F.col("op")
    off = (op == "level") & (F.col("reason") == "off") & F.col("queue_id").isNull()
    return fact_rows.where((op == "gap") | off).agg(F.sort_array(F.collect_list("seq")).alias("gaps"))


def _in_gap() -> Column:
    begin = F.coalesce("from_seq", F.lit(0))  # a list may have no anchor before it
    return F.exists("gaps", lambda gap: (gap > begin) & (gap < F.col("seq")))
