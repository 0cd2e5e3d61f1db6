"""Messages that are delivered again and again."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812


def poison(events: DataFrame, limit: int = 5) -> DataFrame:
    """Entries that were delivered `limit` times or more, the worst first.

    node | vhost | queue | queue_id | msg_uid | deliveries: how often | last_op | first_ts | last_ts
    """
    return (
        events.where((F.col("delivery_count") >= limit) & F.col("msg_uid").isNotNull())
        .groupBy("node", "vhost", "queue", "queue_id", "msg_uid")
        .agg(
            F.max("delivery_count").alias("deliveries"),
            F.max_by("op", "seq").alias("last_op"),
            F.min("ts").alias("first_ts"),
            F.max("ts").alias("last_ts"),
        )
        .orderBy(F.desc("deliveries"), "msg_uid")
    )
