"""What is known of each queue of one node: its name, its restarts, what was purged, how much is journaled."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pipeline.jobs.moves import CONSUMED, DELIVERS, STAGED

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
    "unacked",
)
FIRST_PLACE: Final = -(1 << 62)
LAST_PLACE: Final = 1 << 62
ALWAYS: Final = 0  # before the first seq
NEVER: Final = 1 << 62


def facts(events: DataFrame) -> DataFrame:
    """The events that are of no message: anchors, ranges, gaps and levels."""
    return events.where(is_fact()).select(*FACT_COLUMNS)


def is_fact() -> Column:
    """Whether an event is of no message."""
    return F.col("msg_uid").isNull() & F.col("op").isin(*FACTS)


def known_queues(active: DataFrame, told: DataFrame) -> DataFrame:
    """One row for each queue out of `activity` (or `moves`) and `facts` of one node.

    queue_id | vhost | queue: null if no fact tells them | declared: it began within these events
    | full_from: the seq from which on all deliveries are journaled; ALWAYS, or NEVER, as now they are not
    | less: deliveries of messages that are journaled are not
    | restarts: seqs at which listings ended, or the queue itself with the broker
    | ranges (first, last, at, all): what was purged or deleted
    | gaps: seqs before which events may be missing
    """
    nothing = F.array().cast("array<bigint>")
    no_range = F.array().cast("array<struct<first:bigint,last:bigint,at:bigint,all:boolean>>")
    full_from = F.greatest("node_full_from", F.coalesce("own_full_from", F.lit(ALWAYS)))
    return (
        _active(active)
        .join(_told_of(told), "queue_id", "left")
        .crossJoin(_told_of_node(told))
        .withColumn("seen", _is_seen())
        .select(
            "queue_id",
            "vhost",
            "queue",
            F.coalesce("declared", F.lit(False)).alias("declared"),
            F.when(F.col("seen"), full_from).otherwise(NEVER).alias("full_from"),
            (~F.col("seen") | F.coalesce("own_less", F.lit(False)) | F.col("node_less")).alias("less"),
            F.coalesce("restarts", nothing).alias("restarts"),
            F.coalesce("ranges", no_range).alias("ranges"),
            F.sort_array(F.concat("node_gaps", F.coalesce("offs", nothing))).alias("gaps"),
        )
    )


def _active(active: DataFrame) -> DataFrame:
    """What was done in each queue, and whether deliveries are journaled of any."""
    delivers = F.col("does").bitwiseAND(DELIVERS) > 0
    return (
        active.where(F.col("queue_id").isNotNull())
        .groupBy("queue_id")
        .agg(F.bit_or("does").alias("does"))
        .crossJoin(active.agg(F.bool_or(delivers).alias("has_delivers")))
    )


def _is_seen() -> Column:
    """Whether deliveries are journaled: there are some, or no consumer is known of that has got one."""
    delivers, consumed, staged = (F.col("does").bitwiseAND(bit) > 0 for bit in (DELIVERS, CONSUMED, STAGED))
    untouched = ~consumed & (staged | (F.coalesce("held", F.lit(0)) == 0))
    return delivers | (F.col("has_delivers") & untouched)


def _told_of_node(told: DataFrame) -> DataFrame:
    """What facts say of all queues: where events may be missing, and since when deliveries are not."""
    of_node = F.col("queue_id").isNull()
    gap = (F.col("op") == "gap") | (of_node & _is_level("off"))
    less, full = of_node & _is_level("lifecycle"), of_node & _is_level("full")
    return told.agg(
        F.collect_list(F.when(gap, F.col("seq"))).alias("node_gaps"),
        _full_from(less, full).alias("node_full_from"),
        F.coalesce(F.bool_or(less | full), F.lit(False)).alias("node_less"),
    )


def _full_from(less: Column, more: Column) -> Column:
    """See `known_queues`. `less`, `more`: whether a fact ends deliveries in the journal, or begins them.

    After a restart it need not be as it was before. What is in a queue then is listed, and so it begins anew.
    """
    ended, changed, restarted = (
        F.max(F.when(when, F.col("seq"))) for when in (less, less | more, F.col("op") == "recover")
    )
    return F.when(ended == F.greatest(changed, restarted), NEVER).otherwise(
        F.coalesce(changed, F.lit(ALWAYS))
    )


def _is_level(*levels: str) -> Column:
    return (F.col("op") == "level") & F.col("reason").isin(*levels)


def _is_checkpoint(reason: str) -> Column:
    return (F.col("op") == "checkpoint") & F.coalesce(F.col("reason") == reason, F.lit(False))


def _told_of(told: DataFrame) -> DataFrame:
    """What facts say of each queue; `held`: how many messages consumers had at the last look."""
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
            F.collect_list(F.when(_is_level("off"), F.col("seq"))).alias("offs"),
            F.max_by("unacked", F.when(_is_checkpoint("time"), F.col("seq"))).alias("held"),
            _full_from(_is_level("off", "lifecycle"), _is_level("full") | _is_checkpoint("level")).alias(
                "own_full_from"
            ),
            F.bool_or(_is_level("lifecycle", "full")).alias("own_less"),  # it was less before `full`, too
        )
    )
