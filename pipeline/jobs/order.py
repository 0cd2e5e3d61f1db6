"""Deliveries out of order: a message that is delivered for the first time after one from behind it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pipeline.jobs.facts import NEVER
from pipeline.jobs.ledger import FEW_KEYS

PLACE: Final = ("node", "queue_id", "msg_uid")


def order(events: DataFrame, told: DataFrame, by_consumer: bool = False) -> DataFrame:
    """First deliveries that came after one of a later place in the queue, or to the consumer if asked.

    node | vhost | queue | queue_id | [consumer] | msg_uid | qpos | overtaken_by: the latest place before it
    | seq | at: when. A place holds until a restart gives a new one, so each restart begins anew. What is
    redelivered may come out of order, and so may what was not there yet when the other was delivered
    (priorities): only the latest place is asked for that, so where places are not in the order of arrival one
    that an earlier place has overtaken may not be told. `told`: of `facts`.
    """
    found = overtaken(events, told, by_consumer).localCheckpoint()  # few, as a rule
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


def overtaken(events: DataFrame, told: DataFrame, by_consumer: bool) -> DataFrame:
    """PLACE | seq | overtaken_by | overtaken_at, its seq: what came after one of a later place."""
    first = (F.col("op") == "deliver") & ~F.coalesce("redelivered", F.lit(False))
    rows, life = events.where(first), F.broadcast(_lives(told))
    is_in = (
        (rows["queue_id"] == life["of_queue"])
        & (rows["seq"] > life["begin"])
        & (rows["seq"] < life["end"])
        & (rows["node"] == life["of_node"])
    )
    who = ("conn", "channel", "consumer") if by_consumer else ()
    line = F.xxhash64("node", "begin", *who)
    steps = rows.join(life, is_in, "left").select(*PLACE, "seq", "qpos", line.alias("line"))
    # rows are narrow, and compared by numbers, the one that tells most of them apart first: all are sorted
    before = Window.partitionBy("line", "queue_id").orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    return (
        steps.withColumn("overtaken_by", F.max("qpos").over(before))
        .withColumn("overtaken_at", F.max_by("seq", "qpos").over(before))
        .where(F.col("qpos") < F.col("overtaken_by"))
        .select(*PLACE, "seq", "overtaken_by", "overtaken_at")
    )


def _lives(told: DataFrame) -> DataFrame:
    """of_node | of_queue | begin | end: between which seqs a queue had its places from one restart."""
    restarts = told.where((F.col("op") == "recover") & F.col("queue_id").isNotNull())
    following = F.lead("seq").over(Window.partitionBy("node", "queue_id").orderBy("seq"))
    return restarts.select(
        F.col("node").alias("of_node"),
        F.col("queue_id").alias("of_queue"),
        F.col("seq").alias("begin"),
        F.coalesce(following, F.lit(NEVER)).alias("end"),
    )
