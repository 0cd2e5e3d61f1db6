"""The rows of a digest: of four kinds, each with a column of its own, which is null in the others.

kept
    An event that is kept in full: a fact, an end of a transfer from queue to queue, or an event of an entry
    that was delivered out of order. ts: microseconds since 1970.
lived
    The ledger's columns of an event of an unsettled entry. ts: microseconds since 1970.
moved
    Sums of the events of one queue (null: of no queue) between two anchors of any queue, in a block of 65,536
    seqs. change: growth of the queue's number of entries | listed: entries that a restart has listed
    | settled: entries that are counted and left out | lowest: the least `msg_uid` of these
    | unseen: number of these that ended with an ack without a delivery
    | events | first, last: seqs | total: sum of the seqs' places in the block | gap: seq of the first `gap`
    | excused: the least seq that a `gap` reports as possibly missing
    | earliest, latest: microseconds since 1970.
placed
    First deliveries of a queue to one consumer, from `seq` and the place `qpos` to `last_seq` and
    `last_qpos`, in order of their places. Deliveries out of order have a row each, with `msg_uid`.
    late: a later place was delivered before; the events of the entry are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from pipeline.journal.schema import EVENTS

KEPT_COLUMNS: Final = (
    *("node", "seq", "ts", "op", "reason", "vhost", "queue", "queue_id", "msg_uid", "origin_uid"),
    *("qpos", "first_qpos", "peer_queue", "consumer", "quantity"),
)
LIVED_COLUMNS: Final = (
    *("node", "seq", "ts", "op", "queue_id", "msg_uid", "qpos", "delivery_count", "persistent"),
    *("conn", "channel", "consumer"),
)


def _events(names: Iterable[str]) -> StructType:
    kinds = {name: EVENTS[name].dataType for name in names} | {"ts": LongType()}
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


KEPT: Final = _events(KEPT_COLUMNS)
LIVED: Final = _events(LIVED_COLUMNS)
SUMS: Final = (
    *("change", "listed", "settled", "lowest", "unseen", "events", "first", "last"),
    *("total", "gap", "excused", "earliest", "latest"),
)
MOVED: Final = StructType(
    [
        StructField("node", StringType()),
        StructField("queue_id", LongType()),
        *(StructField(name, LongType()) for name in SUMS),
    ]
)
PLACED: Final = StructType(
    [
        StructField("node", StringType()),
        StructField("queue_id", LongType()),
        StructField("conn", StringType()),
        StructField("channel", LongType()),
        StructField("consumer", StringType()),
        *(StructField(name, LongType()) for name in ("msg_uid", "seq", "qpos", "last_seq", "last_qpos")),
        StructField("late", BooleanType()),
    ]
)
DIGEST: Final = StructType(
    [
        StructField("kept", KEPT),
        StructField("lived", LIVED),
        StructField("moved", MOVED),
        StructField("placed", PLACED),
    ]
)
BLOCK_BITS: Final = 16
BLOCK: Final = 1 << BLOCK_BITS


def select_kept(rows: DataFrame) -> DataFrame:
    """Return the events that the digest keeps in full."""
    return _of(rows, "kept").withColumn("ts", F.timestamp_micros("ts"))


def select_lived(rows: DataFrame) -> DataFrame:
    """Return the events of unsettled entries, in the ledger's columns."""
    return _of(rows, "lived").withColumn("ts", F.timestamp_micros("ts"))


def select_moved(rows: DataFrame) -> DataFrame:
    """Return the sums."""
    return _of(rows, "moved")


def select_placed(rows: DataFrame) -> DataFrame:
    """Return the first deliveries."""
    return _of(rows, "placed")


def block_of(seq: str) -> Column:
    """Return the first seq of a seq's block."""
    return F.shiftleft(F.shiftright(seq, BLOCK_BITS), BLOCK_BITS)


def _of(rows: DataFrame, kind: str) -> DataFrame:
    return rows.where(F.col(kind).isNotNull()).select(f"{kind}.*")
