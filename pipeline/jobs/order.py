"""Deliveries out of order: the first delivery of a message after one from behind it in the queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F  # noqa: N812

from pipeline.jobs.ledger import FEW_KEYS

PLACE: Final = ("node", "queue_id", "msg_uid")


def order(events: DataFrame, by_consumer: bool = False) -> DataFrame:
    """Return first deliveries that came after one of a later place in the queue, or to the same consumer.

    node | vhost | queue | queue_id | [consumer] | msg_uid | qpos | overtaken_by: the latest place delivered
    before | seq | at: time. A place is valid until a restart assigns a new one, so each restart begins again.
    Redeliveries may be out of order, and so may messages that were enqueued after the other delivery
    (priorities). Only the latest place is compared. So, with priorities, a message is not reported if it was
    enqueued after the delivery of the latest place and overtaken by an earlier place only.
    """
    first = (F.col("op") == "deliver") & ~F.coalesce("redelivered", F.lit(False))
    steps = events.where(first | _ends()).select(
        *(*PLACE, "seq", "qpos"),
        F.col("seq").alias("last_seq"),
        F.col("qpos").alias("last_qpos"),
        _who() if by_consumer else F.lit(0).cast("long").alias("who"),
        _ends().alias("ends"),
    )
    overtaken, count = _few(find_overtaken(steps))
    return order_rows(overtaken, count["found"], events, by_consumer).orderBy("node", "seq")


def find_reordered(
    placed: DataFrame, kept: DataFrame, lived: DataFrame, events: Callable[[], DataFrame]
) -> DataFrame:
    """Return `order` by consumer from a digest: `placed`, and the events `kept` and `lived`.

    If the digest does not suffice, because one file has overtaken another, all `events` are read.
    """
    steps = placed.withColumns({"who": _who(), "ends": F.lit(False)}).drop("conn", "channel", "consumer")
    ends = kept.where(_ends()).select("node", "queue_id", "seq", F.lit(True).alias("ends"))
    unsure = ~F.col("late") | F.col("across")
    overtaken, counts = _few(
        find_overtaken(steps.unionByName(ends, allowMissingColumns=True), "late"), unsure
    )
    came = lived.where(F.col("op") == "enqueue")
    about = kept.where(F.col("op") == "deliver").unionByName(came, allowMissingColumns=True)
    if not counts["unsure"]:
        return order_rows(overtaken, counts["found"], about, by_consumer=True).orderBy("node", "seq")
    queue = ["node", "queue_id"]
    again = F.broadcast(overtaken.where(unsure).select(*queue).distinct())
    sure = order_rows(overtaken.join(again, queue, "left_anti"), counts["found"], about, by_consumer=True)
    looked_at = order(events().join(again, queue, "left_semi"), by_consumer=True)
    return sure.unionByName(looked_at).orderBy("node", "seq")


def find_overtaken(steps: DataFrame, *more: str) -> DataFrame:
    """Return steps that came after one of a later place: PLACE | seq | overtaken_by | overtaken_at: its seq.

    Also steps `across`, which began while an earlier one went on, for which that is unknown. `steps`: PLACE |
    seq | qpos: of the first delivery of several in order | last_seq | last_qpos: of the last one | who: the
    consumer | ends: a restart's list ends here, without the other columns | `more`.
    """
    queue = ("node", "queue_id")
    so_far = Window.partitionBy(*queue).orderBy("seq").rowsBetween(Window.unboundedPreceding, 0)
    before = (
        Window.partitionBy(*queue, "life", "who").orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    )
    return (
        steps.withColumn("life", F.count_if("ends").over(so_far))
        .where(~F.col("ends"))
        .withColumn("overtaken_by", F.max("last_qpos").over(before))
        .withColumn("overtaken_at", F.max_by("last_seq", "last_qpos").over(before))
        .withColumn("across", F.coalesce(F.max("last_seq").over(before) > F.col("seq"), F.lit(False)))
        .where((F.col("qpos") < F.col("overtaken_by")) | F.col("across"))
        .select(*PLACE, "seq", "overtaken_by", "overtaken_at", "across", *more)
    )


def order_rows(found: DataFrame, count: int, events: DataFrame, by_consumer: bool) -> DataFrame:
    """Return the rows of `order` for `found`, without entries enqueued after the other delivery.

    `count`: the largest possible number of rows.
    """
    if count <= FEW_KEYS:
        found = F.broadcast(found)
    op = F.col("op")
    is_before = (op == "enqueue") & (F.col("seq") < F.col("step"))
    came = F.max(F.when(is_before, F.col("seq"))).over(Window.partitionBy(*PLACE, "step"))
    who = ["consumer"] if by_consumer else []
    return (
        events.where(op.isin("enqueue", "deliver"))
        .join(found.withColumnRenamed("seq", "step"), list(PLACE))
        .withColumn("came", came)
        .where((F.col("seq") == F.col("step")) & (op == "deliver"))
        .where(F.coalesce(F.col("came") < F.col("overtaken_at"), F.lit(True)))
        .select(
            *("node", "vhost", "queue", "queue_id", *who, "msg_uid", "qpos", "overtaken_by", "seq"),
            F.col("ts").alias("at"),
        )
    )


def _few(found: DataFrame, unsure: Column | None = None) -> tuple[DataFrame, dict[str, int]]:
    """Compute the rows once, which are usually few, and return them with their numbers."""
    seen = Observation()
    counts = F.count(F.lit(1)).alias("found"), F.count_if(F.lit(False) if unsure is None else unsure)
    rows = found.observe(seen, counts[0], counts[1].alias("unsure")).localCheckpoint()
    return rows, seen.get


def _ends() -> Column:
    """Return whether an event ends a restart's list of its queue."""
    return (F.col("op") == "recover") & F.col("msg_uid").isNull()


def _who() -> Column:
    """Return the consumer of a delivery as a hash: narrow, as all steps are sorted."""
    return F.xxhash64("conn", F.col("channel").cast("long"), "consumer").alias("who")
