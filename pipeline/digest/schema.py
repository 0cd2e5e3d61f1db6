"""The rows of a digest: of four kinds, each with a column of its own, which is null in the others.

kept
    An event that says more than what its life is like: a fact, an end of a way from queue to queue, or one
    of a life that has been delivered late. ts: microseconds since 1970.
lived
    What the ledger takes of an event of a life that is not settled. ts: microseconds since 1970.
moved
    Sums of the events of one queue (null: of none) between two anchors of whatever queue, in a block of
    65,536 seqs. change: by how much the queue has more entries after them | listed: how many a restart has
    listed | settled: how many lives are counted and left out | lowest: the least `msg_uid` of these
    | unseen: how many of these ended with an ack and had no delivery
    | events | first, last: seqs | total: sum of the seqs' places in the block | gap: seq of the first `gap`
    | excused: the first seq that a `gap` says may be missing, the least of all
    | earliest, latest: microseconds since 1970.
placed
    First deliveries of a queue to one consumer, from `seq` and the place `qpos` to `last_seq` and
    `last_qpos`, in order of their places. Where they are not, each has a row of its own, and `msg_uid`.
    late: one of a later place came before it; the events of its life are kept.
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


def kept(rows: DataFrame) -> DataFrame:
    """Events that say more than what their lives are like."""
    return _of(rows, "kept").withColumn("ts", F.timestamp_micros("ts"))


def lived(rows: DataFrame) -> DataFrame:
    """The events of lives that are not settled, as the ledger takes them."""
    return _of(rows, "lived").withColumn("ts", F.timestamp_micros("ts"))


def moved(rows: DataFrame) -> DataFrame:
    """The sums."""
    return _of(rows, "moved")


def placed(rows: DataFrame) -> DataFrame:
    """The first deliveries."""
    return _of(rows, "placed")


def block_of(seq: str) -> Column:
    """Where the block begins that a seq is in."""
    return F.shiftleft(F.shiftright(seq, BLOCK_BITS), BLOCK_BITS)


def _of(rows: DataFrame, kind: str) -> DataFrame:
    return rows.where(F.col(kind).isNotNull()).select(f"{kind}.*")
