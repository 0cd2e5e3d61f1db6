"""Deliveries out of order: a message that is delivered for the first time after one from behind it."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812


def order(events: DataFrame, by_consumer: bool = False) -> DataFrame:
    """First deliveries that came after one of a later place in the queue, or to the consumer if asked.

    node | vhost | queue | queue_id | [consumer] | msg_uid | qpos | overtaken_by: the latest place before it
    | seq | ts. A place holds until a restart gives a new one, so each restart begins anew. What is
    redelivered may come out of order, and so may what was not there yet when the other was delivered
    (priorities).
    """
    op = F.col("op")
    listed = Window.partitionBy("node", "queue_id").orderBy("seq").rowsBetween(Window.unboundedPreceding, 0)
    ends = (op == "recover") & F.col("msg_uid").isNull()
    first = (op == "deliver") & ~F.coalesce("redelivered", F.lit(False))
    restarted = events.where(first | ends).withColumn("life", F.count_if(ends).over(listed))
    keys = ["node", "queue_id", "life", *(["consumer"] if by_consumer else [])]
    before = Window.partitionBy(*keys).orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    came = events.where(op == "enqueue").select("node", "queue_id", "msg_uid", F.col("seq").alias("came"))
    overtaken = (
        restarted.where(op == "deliver")
        .withColumn("overtaken_by", F.max("qpos").over(before))
        .withColumn("overtaken_at", F.max_by("seq", "qpos").over(before))
        .where(F.col("qpos") < F.col("overtaken_by"))
    )
    return (
        overtaken.join(came, ["node", "queue_id", "msg_uid"], "left")
        .where(F.coalesce(F.col("came") < F.col("overtaken_at"), F.lit(True)))
        .select(
            "node",
            "vhost",
            "queue",
            "queue_id",
            *(["consumer"] if by_consumer else []),
            "msg_uid",
            "qpos",
            "overtaken_by",
            "seq",
            "ts",
        )
        .orderBy("node", "seq")
    )
