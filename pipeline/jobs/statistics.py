"""Statistics of queues: times, rates, bytes, redeliveries, and messages that are delivered too often."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pipeline.journal.schema import LEAVING

ACCURACY: Final = 1000
QUANTILES: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
TIMES: Final = {
    "first_delivery": "from enqueue to the first delivery",
    "in_queue": "from enqueue to the way out",
    "processing": "from the last delivery to the way out",
}


def lives(events: DataFrame) -> DataFrame:
    """Return the times of each enqueued entry in seconds: node | queue_id | msg_uid | consumer | at | TIMES.

    `consumer`: the last one; `at`: the time of enqueueing. A time without both ends is null.
    """
    op, micros = F.col("op"), F.unix_micros("ts")
    leaves = op.isin(*LEAVING)
    folded = (
        events.where(F.col("queue_id").isNotNull() & F.col("msg_uid").isNotNull())
        .groupBy("node", "queue_id", "msg_uid")
        .agg(
            F.min(F.when(op == "enqueue", micros)).alias("came"),
            F.min(F.when(op == "deliver", micros)).alias("first"),
            F.max(F.when(op == "deliver", micros)).alias("last"),
            F.min(F.when(leaves, micros)).alias("left"),
            F.max(F.when(leaves, F.col("consumer"))).alias("consumer"),
        )
    )
    return folded.where(F.col("came").isNotNull()).select(
        "node",
        "queue_id",
        "msg_uid",
        "consumer",
        F.timestamp_micros("came").alias("at"),
        _seconds("came", "first").alias("first_delivery"),
        _seconds("came", "left").alias("in_queue"),
        _seconds("last", "left").alias("processing"),
    )


def latency(events: DataFrame, window: str = "5 minutes", by_consumer: bool = False) -> DataFrame:
    """Return quantiles of times in seconds by queue and window of enqueueing, optionally by consumer.

    node | vhost | queue | [consumer] | start | messages | <time>_p50, _p95, _p99 for each of TIMES.
    """
    names = (
        events.where(F.col("queue_id").isNotNull())
        .groupBy("node", "queue_id")
        .agg(F.max_by("vhost", "seq").alias("vhost"), F.max_by("queue", "seq").alias("queue"))
    )
    keys = ["node", "vhost", "queue", *(["consumer"] if by_consumer else [])]
    quantiles = [
        F.percentile_approx(time, share, ACCURACY).alias(f"{time}_{name}")
        for time in TIMES
        for name, share in QUANTILES
    ]
    return (
        lives(events)
        .join(F.broadcast(names), ["node", "queue_id"])
        .groupBy(*keys, F.window("at", window).alias("window"))
        .agg(F.count(F.lit(1)).alias("messages"), *quantiles)
        .select(*keys, F.col("window.start").alias("start"), "messages", *_quantile_names())
        .orderBy(*keys, "start")
    )


def _quantile_names() -> list[str]:
    return [f"{time}_{name}" for time in TIMES for name, _ in QUANTILES]


def _seconds(start: str, end: str) -> Column:
    return (F.col(end) - F.col(start)) / 1e6


def traffic(events: DataFrame, window: str = "5 minutes") -> DataFrame:
    """Return rates by queue and window: enqueued, delivered, removed, requeued and lost messages.

    node | vhost | queue | start | enqueued | bytes | delivered | redelivered | left | requeued | expired |
    dead_lettered | dropped | redelivery_ratio (null without deliveries).
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


def poison(events: DataFrame, limit: int = 5) -> DataFrame:
    """Return entries with `limit` deliveries or more, the most first.

    node | vhost | queue | queue_id | msg_uid | deliveries: number | last_op | first_ts | last_ts
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
