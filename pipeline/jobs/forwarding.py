"""Messages that left one queue for another and never came there."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

FORWARDS: Final = ("dead_letter",)
SAME_WRITE: Final = 1024  # seqs: what is that close before a gap may have its arrival in the gap


def is_forwarding() -> Column:
    """Whether an event is one of either end of a way from queue to queue."""
    return _leaves() | (F.col("origin_uid").isNotNull() & (F.col("op") == "enqueue"))


def forwarding_losses(events: DataFrame, told: DataFrame) -> DataFrame:
    """What was sent to a queue of one node and has no `enqueue` there whose `origin_uid` it is.

    msg_uid | vhost | queue: where it was to go | from_queue | seq | at: when it left. Queues that are not
    journaled are passed over, and so is what a gap follows at once. `told`: of `facts`.
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
    due = rows.groupBy("uid", "vhost", "to_queue").agg(
        F.sum("due").alias("due"),
        F.max_by("from_queue", "left_seq").alias("from_queue"),
        F.max("left_seq").alias("seq"),
        F.max("left_ts").alias("ts"),
    )
    journaled = (
        told.where(F.col("queue").isNotNull())
        .select(F.col("vhost"), F.col("queue").alias("to_queue"))
        .distinct()
    )
    gaps = told.where(F.col("op") == "gap").agg(F.collect_list("seq").alias("gaps"))
    near = F.exists("gaps", lambda gap: (gap > F.col("seq")) & (gap <= F.col("seq") + SAME_WRITE))
    return (
        due.where(F.col("due") > 0)
        .join(F.broadcast(journaled), ["vhost", "to_queue"], "left_semi")
        .crossJoin(F.broadcast(gaps))
        .where(~near)
        .select(
            F.col("uid").alias("msg_uid"),
            "vhost",
            F.col("to_queue").alias("queue"),
            "from_queue",
            "seq",
            F.col("ts").alias("at"),
        )
    )


def _leaves() -> Column:
    return F.col("peer_queue").isNotNull() & (F.col("peer_queue") != "") & F.col("op").isin(*FORWARDS)
