"""Facts of each queue of one node: its name, its restarts, its purges, and its journal level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pipeline.journal.schema import FACTS

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
ALWAYS: Final = 0  # before the first seq
NEVER: Final = 1 << 62

NEEDS_FULL: Final = (
    *("delivered_after_settle", "delivered_to_two", "settled_by_another", "settled_undelivered"),
    *("stuck_unacked", "undelivered", "reordered"),
)
NAMED: Final = 3


def facts(events: DataFrame) -> DataFrame:
    """Return the events that concern no single message: anchors, ranges, gaps and levels."""
    return events.where(is_fact()).select(*FACT_COLUMNS)


def is_fact() -> Column:
    """Return whether an event concerns no single message."""
    return F.col("msg_uid").isNull() & F.col("op").isin(*FACTS)


def activity(events: DataFrame) -> DataFrame:
    """Return the last activity of each queue: node | queue_id | latest: microseconds since 1970."""
    return events.groupBy("node", "queue_id").agg(F.max(F.unix_micros("ts")).alias("latest"))


def known_queues(active: DataFrame, fact_rows: DataFrame) -> DataFrame:
    """Return a row for each queue of `activity` (or `moved` of a digest) and `facts` of one node.

    queue_id | vhost | queue: null if no fact has them | declared: the queue begins within these events |
    full_from: the seq from which on all deliveries are journaled; ALWAYS; or NEVER, if they are not now |
    less: not all deliveries were, or are, journaled | restarts: seqs at the ends of lists, or of the end of
    the queue with the broker | ranges (first, last, at, all): purged or deleted places | gaps: seqs before
    which events may be missing | known (start, end): the contents of the queue are known from events between
    these seqs and from later ones
    """
    nothing = F.array().cast("array<bigint>")
    no_range = F.array().cast("array<struct<first:bigint,last:bigint,at:bigint,all:boolean>>")
    no_known = F.array().cast("array<struct<start:bigint,end:bigint>>")
    full_from = F.greatest(_full_from("node_"), _full_from("own_"))
    return (
        active.where(F.col("queue_id").isNotNull())
        .select("queue_id")
        .distinct()
        .join(_told_of(fact_rows), "queue_id", "left")
        .crossJoin(_told_of_node(fact_rows))
        .select(
            "queue_id",
            "vhost",
            "queue",
            F.coalesce("declared", F.lit(False)).alias("declared"),
            full_from.alias("full_from"),
            F.coalesce(F.col("own_less") | F.col("node_less"), F.lit(False)).alias("less"),
            F.coalesce("restarts", nothing).alias("restarts"),
            F.coalesce("ranges", no_range).alias("ranges"),
            F.sort_array(F.concat("node_gaps", F.coalesce("offs", nothing))).alias("gaps"),
            F.coalesce("known", no_known).alias("known"),
        )
    )


def _told_of_node(fact_rows: DataFrame) -> DataFrame:
    """Return the facts about all queues: where events may be missing, and their deliveries."""
    of_node = fact_rows.where(F.col("queue_id").isNull())
    gap = (F.col("op") == "gap") | _is_level("off")
    return of_node.agg(F.collect_list(F.when(gap, F.col("seq"))).alias("node_gaps"), *_deliveries("node_"))


def _deliveries(prefix: str) -> list[Column]:
    """Return where deliveries stop being journaled (the last seq), and where they start (each seq).

    A queue records its level when it is declared, when a restart has listed it, behind the list, and when the
    level changes. Checkpoints repeat the level for readers without an earlier event.
    """
    reason = F.col("reason")
    begins = (reason == "full") & F.col("op").isin("declare", "level")
    listed = (reason == "full") & (F.col("op") == "recover")
    starts = F.when(begins | _is_begun(), F.col("seq")).when(listed, F.col("seq") - F.col("quantity") - 1)
    ends = F.when(reason.isin("off", "lifecycle"), F.col("seq"))
    return [
        F.max(ends).alias(f"{prefix}ended"),
        F.collect_list(starts).alias(f"{prefix}starts"),
        F.max(reason == "lifecycle").alias(f"{prefix}less"),
    ]


def _full_from(prefix: str) -> Column:
    """Return `full_from` of `known_queues`: the first start behind the last end."""
    ended = F.col(f"{prefix}ended")
    after = F.array_min(F.filter(f"{prefix}starts", lambda seq: seq > ended))
    return F.when(ended.isNull(), ALWAYS).otherwise(F.coalesce(after, F.lit(NEVER)))


def _is_begun() -> Column:
    """Return whether a queue that existed before is journaled from here on.

    A level other than `full` follows.
    """
    return (F.col("op") == "checkpoint") & (F.col("reason") == "level")


def _is_level(level: str) -> Column:
    return (F.col("op") == "level") & (F.col("reason") == level)


def _told_of(fact_rows: DataFrame) -> DataFrame:
    """Return the facts about each queue."""
    op = F.col("op")
    ended = (op == "queue_delete") & F.coalesce(
        F.col("reason") == "shutdown", F.lit(False)
    )  # ends with the broker
    is_all = (op == "queue_delete") & ~ended
    one = F.struct(
        F.when(is_all, FIRST_PLACE).otherwise(F.coalesce("first_qpos", F.lit(FIRST_PLACE))).alias("first"),
        F.when(is_all, LAST_PLACE).otherwise(F.coalesce("qpos", F.lit(LAST_PLACE))).alias("last"),
        F.col("seq").alias("at"),
        is_all.alias("all"),
    )
    start = F.when(op == "recover", F.col("seq") - F.col("quantity") - 1).otherwise(F.col("seq"))
    known = F.struct(start.alias("start"), F.col("seq").alias("end"))
    return (
        fact_rows.where(F.col("queue_id").isNotNull())
        .groupBy("queue_id")
        .agg(
            F.max_by("vhost", "seq").alias("vhost"),
            F.max_by("queue", "seq").alias("queue"),
            F.bool_or(op == "declare").alias("declared"),
            F.sort_array(F.collect_list(F.when((op == "recover") | ended, F.col("seq")))).alias("restarts"),
            F.collect_list(F.when((op == "purge") | is_all, one)).alias("ranges"),
            F.collect_list(F.when(_is_level("off"), F.col("seq"))).alias("offs"),
            F.collect_list(F.when(op.isin("declare", "recover"), known)).alias("known"),
            *_deliveries("own_"),
        )
    )


def describe_lacking(queues: DataFrame) -> str:
    """Return a text with the queues of one node without all deliveries. `queues`: of `known_queues`."""
    (row,) = queues.agg(*lacking_columns()).collect()
    return format_lacking(row.asDict())


def lacking_columns() -> tuple[Column, Column]:
    """Return columns over `known_queues`: the number of queues without all deliveries, and some names."""
    name = F.coalesce("queue", F.concat(F.lit("number "), F.col("queue_id")))
    names = F.sort_array(F.collect_set(F.when(F.col("less"), name)))
    return F.size(names).alias("total"), F.slice(names, 1, NAMED).alias("some")


def format_lacking(seen: Mapping[str, Any]) -> str:
    """Return the text of `describe_lacking` from the columns of `lacking_columns`."""
    if not seen["total"]:
        return ""
    more = f" and {seen['total'] - NAMED} more" if seen["total"] > NAMED else ""
    return ", ".join(seen["some"]) + more


def describe_lacking_by_node(events: DataFrame) -> dict[str, str]:
    """Return the texts of `describe_lacking` by node."""
    known, active = facts(events), activity(events)
    nodes = sorted(row["node"] for row in events.select("node").distinct().collect())
    return {
        node: describe_lacking(
            known_queues(active.where(F.col("node") == node), known.where(F.col("node") == node))
        )
        for node in nodes
    }


def not_judged(lacking: dict[str, str], what: Iterable[str] = NEEDS_FULL) -> dict[str, str]:
    """Return the verdicts `what` that could not be checked everywhere, with the reason.

    `lacking`: the result of `describe_lacking` by node.
    """
    of_queues = "; ".join(f"of {queues} in {node}" for node, queues in sorted(lacking.items()) if queues)
    why = f"the journal has not all deliveries {of_queues}: the level `full` records them"
    return dict.fromkeys(what, why) if of_queues else {}
