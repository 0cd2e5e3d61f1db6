"""The first pass over all events: sums by queue and by chunks of 4096 seqs, of which the rest is made."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pipeline.journal.schema import LEAVING

CHUNK_BITS: Final = 12
CHUNK: Final = 1 << CHUNK_BITS
CHUNK_SUM: Final = CHUNK * (CHUNK - 1) // 2
DELIVERS: Final = 1
CONSUMED: Final = 2


def chunks(events: DataFrame) -> DataFrame:
    """By node | queue_id (null: of none) | chunk | events | total | latest | does | change | listed.

    `total`: sum of the seqs' places in their chunk. `latest`: microseconds since 1970. `does`: 1 (DELIVERS)
    if there are deliveries, 2 (CONSUMED) if a consumer has settled something. `change`: by how much the
    queue has more entries after it; `listed`: how many a restart has listed.
    """
    op = F.col("op")
    does = F.when(op == "deliver", DELIVERS).when(op.isin("ack", "reject", "requeue"), CONSUMED).otherwise(0)
    return events.groupBy("node", "queue_id", chunk()).agg(
        F.count(F.lit(1)).alias("events"),
        F.sum(F.col("seq").bitwiseAND(CHUNK - 1)).alias("total"),
        F.max(F.unix_micros("ts")).alias("latest"),
        F.bit_or(does).alias("does"),
        F.sum(change()).alias("change"),
        F.sum(listed()).alias("listed"),
    )


def chunk() -> Column:
    """Which chunk an event is in."""
    return F.shiftright("seq", CHUNK_BITS).alias("chunk")


def change() -> Column:
    """By how much a queue has more entries after an event. `queue_delete` is an anchor and no change."""
    op = F.col("op")
    return (
        F.when(op == "enqueue", F.lit(1).cast("long"))
        .when(op.isin(*LEAVING), -1)
        .when(op.isin("purge", "lost"), -F.coalesce("quantity", F.lit(0)))
        .otherwise(0)
    ).alias("change")


def listed() -> Column:
    """1 for an entry that a restart has listed."""
    return ((F.col("op") == "recover") & F.col("msg_uid").isNotNull()).cast("long").alias("listed")
