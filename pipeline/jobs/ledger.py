"""The ledger: a row for each entry of a queue of one node, folded from its events.

The columns of a row are numbers that fold again: a row is a contribution like an event. So earlier rows and
the events since then give the present rows, in whatever portions the events come.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pipeline.journal.schema import ARRIVING, KEYS, LEAVING, STREAMED, TAKING

TERM_SHIFT: Final = 20
RECOVER_SHIFT: Final = 42
PERSISTENT: Final = 1

FEW_KEYS: Final = 1_000_000  # as many fit into each task
NUMBERS: Final = (
    "tally",
    "last",
    "delivered",
    "returned",
    "recovered",
    "settled",
    "ended",
    "placed",
    "qpos",
    "flags",
    "deliveries",
    "at",
    "first",
    "takes",
    "holder",
    "acked",
    "acker",
    "doubled_from",
    "doubled_to",
    "step",
    "taker",
)
"""The columns of a row, all numbers.

tally: how often the entry was enqueued, left (<< 20) and was recovered (<< 42). last: twice the seq of the
last event, + 1 if that is a recover. delivered, returned, recovered: seqs of the last event that delivers or
stages, that requeues or recovers, and of the last recover. settled, ended: seqs of the first and of the last
event that removes the entry. placed, qpos: seq of the last event that enqueues the entry, and its place.
flags: 1 persistent. deliveries: the largest number of deliveries in an event. at: microseconds since 1970 of
the last event. first: seq of the first event. takes: how often the entry was delivered or staged. holder: the
last holder, as a hash. acked, acker: seq of the first ack, and its consumer as a hash. doubled_from,
doubled_to: seqs of the first two consecutive deliveries to different consumers (`find_doubled`). step: seq of
the first event that changes the holder. taker: the holder after that event, as a hash; null: no holder.
"""


def contributions(events: DataFrame) -> DataFrame:
    """Return the contribution of each event of an entry to its row."""
    op, seq = F.col("op"), F.col("seq")
    arrives = op.isin(*ARRIVING)
    leaves = op.isin(*LEAVING)
    recovers = op == "recover"
    tally = (
        F.when(op == "enqueue", 1)
        .when(recovers, 1 << RECOVER_SHIFT)
        .when(leaves, 1 << TERM_SHIFT)
        .otherwise(F.lit(0).cast("long"))
    )
    numbers: dict[str, Column] = {
        "tally": tally,
        "last": seq * 2 + recovers.cast("long"),
        "delivered": F.when(op.isin(*TAKING), seq),
        "returned": F.when((op == "requeue") | recovers, seq),
        "recovered": F.when(recovers, seq),
        "settled": F.when(leaves, seq),
        "ended": F.when(leaves, seq),
        "placed": F.when(arrives, seq),
        "qpos": F.when(arrives, F.col("qpos")),
        "flags": F.when(arrives & F.col("persistent"), F.lit(PERSISTENT).cast("long")),
        "deliveries": F.col("delivery_count").cast("long"),
        "at": F.unix_micros("ts"),
        "first": seq,
        "takes": F.when(op.isin(*TAKING), F.lit(1).cast("long")),
        "holder": F.when(op.isin(*TAKING), consumer_hash()),
        "acked": F.when(op == "ack", seq),
        "acker": F.when(op == "ack", consumer_hash()),
        "doubled_from": F.lit(None).cast("long"),
        "doubled_to": F.lit(None).cast("long"),
        "step": F.when(_is_step(), seq),
        "taker": F.when(op.isin(*TAKING), consumer_hash()),
    }
    return _of_entries(events).select(*KEYS, *(column.alias(name) for name, column in numbers.items()))


def fold(rows: DataFrame) -> DataFrame:
    """Fold all contributions, which are of one node, into a row for each entry."""
    return rows.groupBy(*KEYS).agg(
        F.sum("tally").alias("tally"),
        F.max("last").alias("last"),
        F.max("delivered").alias("delivered"),
        F.max("returned").alias("returned"),
        F.max("recovered").alias("recovered"),
        F.min("settled").alias("settled"),
        F.max("ended").alias("ended"),
        F.max("placed").alias("placed"),
        F.max_by("qpos", "placed").alias("qpos"),
        F.max("flags").alias("flags"),
        F.max("deliveries").alias("deliveries"),
        F.max("at").alias("at"),
        F.min("first").alias("first"),
        F.sum("takes").alias("takes"),
        F.max_by("holder", "delivered").alias("holder"),
        F.min("acked").alias("acked"),
        F.min_by("acker", "acked").alias("acker"),
        F.min("doubled_from").alias("doubled_from"),
        F.min("doubled_to").alias("doubled_to"),
        F.min("step").alias("step"),
        F.min_by("taker", "step").alias("taker"),
    )


def consumer_hash() -> Column:
    """Return a number for the consumer of an event, with its connection and channel; null without one."""
    consumer = F.xxhash64("conn", F.col("channel").cast("long"), "consumer")
    return F.when(F.col("consumer").isNotNull() | F.col("conn").isNotNull(), consumer)


def find_doubled(events: DataFrame) -> DataFrame:
    """Return the entries that a consumer got while another one held them: KEYS | doubled_from | doubled_to.

    The rows fold with `contributions`. Between two deliveries there must be a requeue, a restart or the end.
    """
    op = F.col("op")
    in_order = Window.partitionBy(*KEYS).orderBy("seq")
    takes = op.isin(*TAKING)
    steps = _of_entries(events).where(_is_step())
    return (
        steps.select(*KEYS, "seq", takes.alias("takes"), consumer_hash().alias("who"))
        .withColumns(
            {
                "takes_before": F.lag("takes").over(in_order),
                "who_before": F.lag("who").over(in_order),
                "doubled_from": F.lag("seq").over(in_order),
            }
        )
        .where(F.col("takes") & F.col("takes_before") & (F.col("who") != F.col("who_before")))
        .groupBy(*KEYS)
        .agg(F.min("doubled_from").alias("doubled_from"), F.min("seq").alias("doubled_to"))
    )


def find_straddling(rows: DataFrame) -> DataFrame:
    """Return such entries from rows of two portions: a consumer held an entry at the end of the earlier one.

    The first event of the later portion that changes the holder gives the entry to another consumer.
    """
    in_order = Window.partitionBy(*KEYS).orderBy("first")
    free_since = F.coalesce(F.greatest("returned", "ended", "placed"), F.lit(-1))
    held_from = F.when(F.col("delivered") > free_since, F.col("delivered"))
    return (
        rows.withColumns(
            {
                "holder_before": F.lag("holder").over(in_order),
                "held_from": F.lag(held_from).over(in_order),
                "last_before": F.lag(F.shiftright("last", 1)).over(in_order),
            }
        )
        .where((F.col("last_before") < F.col("step")) & (F.col("taker") != F.col("holder_before")))
        .where(F.col("held_from").isNotNull())
        .select(*KEYS, F.col("held_from").alias("doubled_from"), F.col("step").alias("doubled_to"))
    )


def _is_step() -> Column:
    """Return whether an event changes the holder of an entry."""
    return F.col("op").isin(*TAKING, "requeue", "recover", *ARRIVING, *LEAVING)


def arrivals() -> Column:
    """Return how often an entry was enqueued."""
    return F.col("tally").bitwiseAND((1 << TERM_SHIFT) - 1)


def departures() -> Column:
    """Return how often an entry left its queue."""
    mask = (1 << (RECOVER_SHIFT - TERM_SHIFT)) - 1
    return F.shiftright("tally", TERM_SHIFT).bitwiseAND(mask)


def recoveries() -> Column:
    """Return how often a restart recovered an entry."""
    return F.shiftright("tally", RECOVER_SHIFT)


def _of_entries(events: DataFrame) -> DataFrame:
    has_keys = F.col("queue_id").isNotNull() & F.col("msg_uid").isNotNull()
    return events.where(has_keys & ~F.col("op").isin(*STREAMED))
