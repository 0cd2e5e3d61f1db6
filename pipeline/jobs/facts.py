"""What is known of each queue of one node: its name, its restarts, what was purged, how much is journaled."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pipeline.jobs.moves import CONSUMED, DELIVERS

FACTS: Final = (
    "declare",
    "checkpoint",
    "recover",
    "purge",
    "queue_delete",
    "lost",
    "gap",
    "level",
)
FACT_COLUMNS: Final = (
    "node",
    "seq",
    "ts",
    "op",
    "reason",
    "vhost",
    "queue",
    "queue_id",
    "first_qpos",
    "qpos",
    "quantity",
)
FIRST_PLACE: Final = -(1 << 62)
LAST_PLACE: Final = 1 << 62


def facts(events: DataFrame) -> DataFrame:
    """The events that are of no message: anchors, ranges, gaps and levels."""
    return events.where(is_fact()).select(*FACT_COLUMNS)


def is_fact() -> Column:
    """Whether an event is of no message."""
    return F.col("msg_uid").isNull() & F.col("op").isin(*FACTS)


def known_queues(active: DataFrame, told: DataFrame) -> DataFrame:
    """One row for each queue out of `activity` (or `moves`) and `facts` of one node.

    queue_id | vhost | queue: null if no fact tells them | declared: it began within these events
    | full: deliveries are journaled
    | restarts: seqs at which listings ended, or the queue itself with the broker
    | ranges (first, last, at, all): what was purged or deleted
    | gaps: seqs before which events may be missing
    """
    op = F.col("op")
    off = (op == "level") & (F.col("reason") == "off")
    of_node = told.where((op == "gap") | (off & F.col("queue_id").isNull()))
    gaps = of_node.agg(F.collect_list("seq").alias("node_gaps"))
    nothing = F.array().cast("array<bigint>")
    no_range = F.array().cast("array<struct<first:bigint,last:bigint,at:bigint,all:boolean>>")
    return (
        _active(active)
        .join(_told_of(told, off), "queue_id", "left")
        .crossJoin(gaps)
        .select(
            "queue_id",
            "vhost",
            "queue",
            F.coalesce("declared", F.lit(False)).alias("declared"),
            "full",
            F.coalesce("restarts", nothing).alias("restarts"),
            F.coalesce("ranges", no_range).alias("ranges"),
            F.sort_array(F.concat("node_gaps", F.coalesce("offs", nothing))).alias("gaps"),
        )
    )


def _active(active: DataFrame) -> DataFrame:
    """Queues, and whether deliveries are journaled: there are some, or no consumer was there to get one."""
    delivers, consumed = F.col("does").bitwiseAND(DELIVERS) > 0, F.col("does").bitwiseAND(CONSUMED) > 0
    untouched = F.col("has_delivers") & ~consumed
    return (
        active.where(F.col("queue_id").isNotNull())
        .groupBy("queue_id")
        .agg(F.bit_or("does").alias("does"))
        .crossJoin(active.agg(F.bool_or(delivers).alias("has_delivers")))
        .select("queue_id", (delivers | untouched).alias("full"))
    )


def _told_of(told: DataFrame, off: Column) -> DataFrame:
    """What facts say of each queue. `off`: whether a fact ends what is journaled."""
    op = F.col("op")
    ended = (op == "queue_delete") & F.coalesce(
        F.col("reason") == "shutdown", F.lit(False)
    )  # with the broker
    is_all = (op == "queue_delete") & ~ended
    one = F.struct(
        F.when(is_all, FIRST_PLACE).otherwise(F.coalesce("first_qpos", F.lit(FIRST_PLACE))).alias("first"),
        F.when(is_all, LAST_PLACE).otherwise(F.coalesce("qpos", F.lit(LAST_PLACE))).alias("last"),
        F.col("seq").alias("at"),
        is_all.alias("all"),
    )
    return (
        told.where(F.col("queue_id").isNotNull())
        .groupBy("queue_id")
        .agg(
            F.max_by("vhost", "seq").alias("vhost"),
            F.max_by("queue", "seq").alias("queue"),
            F.bool_or(op == "declare").alias("declared"),
            F.sort_array(F.collect_list(F.when((op == "recover") | ended, F.col("seq")))).alias("restarts"),
            F.collect_list(F.when((op == "purge") | is_all, one)).alias("ranges"),
            F.collect_list(F.when(off, F.col("seq"))).alias("offs"),
        )
    )
