"""How much came and went: rates, bytes, and the share of deliveries that were not the first."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pipeline.journal.schema import LEAVING


def traffic(events: DataFrame, window: str = "5 minutes") -> DataFrame:
    """By queue and window: what came, was delivered, left, went back and was lost on the way.

    node | vhost | queue | start | enqueued | bytes | delivered | redelivered | left | requeued | expired
    | dead_lettered | dropped | redelivery_ratio (null without deliveries).
    """
    op = F.col("op")
    of_queues = events.where(F.col("queue_id").isNotNull() & F.col("msg_uid").isNotNull())
    again = (op == "deliver") & F.coalesce("redelivered", F.lit(False))
    sums: dict[str, Column] = {
        "enqueued": F.count_if(op == "enqueue"),
        "bytes": F.sum(F.when(op == "enqueue", F.col("size")).otherwise(0)),
        "delivered": F.count_if(op == "deliver"),
        "redelivered": F.count_if(again),
        "left": F.count_if(op.isin(*LEAVING)),
        "requeued": F.count_if(op == "requeue"),
        "expired": F.count_if(op == "expire"),
        "dead_lettered": F.count_if(op == "dead_letter"),
        "dropped": F.count_if(op.isin("drop_overflow", "reject")),
    }
    return (
        of_queues.groupBy("node", "vhost", "queue", F.window("ts", window).alias("window"))
        .agg(*(column.alias(name) for name, column in sums.items()))
        .select("node", "vhost", "queue", F.col("window.start").alias("start"), *sums)
        .withColumn("redelivery_ratio", F.try_divide("redelivered", "delivered"))
        .orderBy("node", "vhost", "queue", "start")
    )
