"""Dead letters that left one queue for another and never arrived."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pipeline.journal.schema import FORWARDS

SAME_WRITE: Final = 1024  # seqs: the arrival of an event so close before a gap may be in the gap


def is_forwarding() -> Column:
    """Return whether an event is an end of a transfer from queue to queue."""
    return _leaves() | (F.col("origin_uid").isNotNull() & (F.col("op") == "enqueue"))


def forwarding_losses(events: DataFrame, fact_rows: DataFrame, end: int) -> DataFrame:
    """Return the dead letters sent to a queue of one node that has no `enqueue` with their `origin_uid`.

    msg_uid | vhost | queue: the destination | from_queue | seq | at: time of leaving. Skipped are events
    directly before a gap, events to a queue that is not known to be journaled at that time, and events of the
    last turn of the broker: all events of a turn have the same time. `fact_rows`: of `facts`. `end`: the time
    of the last event, microseconds since 1970.
    """
    of_node = (F.col("op") == "gap") | (F.col("queue_id").isNull() & (F.col("reason") == "off"))
    gaps = fact_rows.where(of_node).agg(F.collect_list("seq").alias("gaps"))
    in_order = Window.partitionBy("vhost", "to_queue").orderBy("seq")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, 0)
    return (
        _missing(events)
        .where(F.unix_micros("ts") < end)
        .unionByName(_journaled(fact_rows), allowMissingColumns=True)
        .withColumn("since", F.last("journaled", ignorenulls=True).over(so_far))
        .where(F.col("uid").isNotNull() & (F.col("since") >= 0))
        .crossJoin(F.broadcast(gaps))
        .where(~F.exists("gaps", _is_near))
        .select(
            F.col("uid").alias("msg_uid"),
            "vhost",
            F.col("to_queue").alias("queue"),
            "from_queue",
            "seq",
            F.col("ts").alias("at"),
        )
    )


def _missing(events: DataFrame) -> DataFrame:
    """Return the messages that left more often than they arrived.

    uid | vhost | to_queue | from_queue | seq | ts
    """
    leaves = _leaves()
    rows = events.where(is_forwarding()).select(
        F.when(leaves, F.col("msg_uid")).otherwise(F.col("origin_uid")).alias("uid"),
        "vhost",
        F.when(leaves, F.col("peer_queue")).otherwise(F.col("queue")).alias("to_queue"),
        F.when(leaves, F.col("queue")).alias("from_queue"),
        F.when(leaves, 1).otherwise(-1).alias("due"),
        F.when(leaves, F.col("seq")).alias("left_seq"),
        F.when(leaves, F.col("ts")).alias("left_ts"),
    )
    sums = rows.groupBy("uid", "vhost", "to_queue").agg(
        F.sum("due").alias("due"),
        F.max_by("from_queue", "left_seq").alias("from_queue"),
        F.max("left_seq").alias("seq"),
        F.max("left_ts").alias("ts"),
    )
    return sums.where(F.col("due") > 0).drop("due")


def _journaled(fact_rows: DataFrame) -> DataFrame:
    """Return the seqs from which on queues are journaled, or are not.

    vhost | to_queue | seq | journaled: that seq; -1: not from here on
    """
    op, reason = F.col("op"), F.coalesce("reason", F.lit(""))
    ends = (op == "queue_delete") | ((op == "level") & (reason == "off")) | (reason == "shutdown")
    return fact_rows.where(F.col("queue").isNotNull()).select(
        "vhost",
        F.col("queue").alias("to_queue"),
        "seq",
        F.when(ends, -1).otherwise(F.col("seq")).alias("journaled"),
    )


def _is_near(gap: Column) -> Column:
    return (gap > F.col("since")) & (gap <= F.col("seq") + SAME_WRITE)


def _leaves() -> Column:
    return F.col("peer_queue").isNotNull() & (F.col("peer_queue") != "") & F.col("op").isin(*FORWARDS)
