"""Deliveries out of order: a message that is delivered for the first time after one from behind it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pipeline.jobs.ledger import FEW_KEYS

PLACE: Final = ("node", "queue_id", "msg_uid")


def order(events: DataFrame, by_consumer: bool = False) -> DataFrame:
    """First deliveries that came after one of a later place in the queue, or to the consumer if asked.

    node | vhost | queue | queue_id | [consumer] | msg_uid | qpos | overtaken_by: the latest place before it
    | seq | at: when. A place holds until a restart gives a new one, so each restart begins anew. What is
    redelivered may come out of order, and so may what was not there yet when the other was delivered
    (priorities). Only the latest place is compared: with priorities, a message that came after the latest one
    was delivered and that only an earlier one has overtaken is not told.
    """
    found = overtaken(events, by_consumer).localCheckpoint()  # few, as a rule
    keys = found.select(*PLACE).distinct()
    if found.count() <= FEW_KEYS:
        keys = F.broadcast(keys)
    op = F.col("op")
    about = events.where(op.isin("enqueue", "deliver")).join(keys, list(PLACE), "left_semi").localCheckpoint()
    came = about.where(op == "enqueue").select(*PLACE, F.col("seq").alias("came"))
    shown = ["vhost", "queue", "qpos", F.col("ts").alias("at"), *(["consumer"] if by_consumer else [])]
    return (
        about.where(op == "deliver")
        .select(*PLACE, "seq", *shown)
        .join(found, [*PLACE, "seq"])
        .join(came, list(PLACE), "left")
        .where(F.coalesce(F.col("came") < F.col("overtaken_at"), F.lit(True)))
        .select(
            *("node", "vhost", "queue", "queue_id"),
            *(["consumer"] if by_consumer else []),
            *("msg_uid", "qpos", "overtaken_by", "seq", "at"),
        )
        .orderBy("node", "seq")
    )


def overtaken(events: DataFrame, by_consumer: bool) -> DataFrame:
    """PLACE | seq | overtaken_by | overtaken_at, its seq: what came after one of a later place."""
    op = F.col("op")
    ends = (op == "recover") & F.col("msg_uid").isNull()
    first = (op == "deliver") & ~F.coalesce("redelivered", F.lit(False))
    who = F.xxhash64("conn", "channel", "consumer") if by_consumer else F.lit(0).cast("long")
    steps = events.where(first | ends).select(
        *PLACE,
        "seq",
        "qpos",
        ends.alias("ends"),
        who.alias("who"),  # narrow rows: all of them are sorted
    )
    queue = ("node", "queue_id")
    so_far = Window.partitionBy(*queue).orderBy("seq").rowsBetween(Window.unboundedPreceding, 0)
    before = (
        Window.partitionBy(*queue, "life", "who").orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    )
    return (
        steps.withColumn("life", F.count_if("ends").over(so_far))
        .where(~F.col("ends"))
        .withColumn("overtaken_by", F.max("qpos").over(before))
        .withColumn("overtaken_at", F.max_by("seq", "qpos").over(before))
        .where(F.col("qpos") < F.col("overtaken_by"))
        .select(*PLACE, "seq", "overtaken_by", "overtaken_at")
    )
