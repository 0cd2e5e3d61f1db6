"""Sums by queue between anchors, of which an audit makes balance and continuity."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.digest.chunk import Chunk
from pipeline.digest.schema import BLOCK, SUMS
from pipeline.journal.schema import ANCHORS, LEAVING

UNKNOWN: Final = 1 << 62
"""Events before a `gap` of version 1: any number of them may be missing."""

AGGREGATES: Final = (
    *((name, "sum", name) for name in ("change", "listed", "settled", "unseen")),
    ("uid", "min", "lowest"),
    ("seq", "count", "events"),
    ("seq", "min", "first"),
    ("seq", "max", "last"),
    ("total", "sum", "total"),
    ("gap", "min", "gap"),
    ("excused", "min", "excused"),
    ("ts", "min", "earliest"),
    ("ts", "max", "latest"),
)


def sums(chunk: Chunk, settled: pa.Array, unseen: pa.Array) -> dict[str, pa.Array]:
    """MOVED without the node, by queue and piece: no anchor, of whatever queue, is inside of one.

    `settled`: which events begin a life that is counted and left out; `unseen`: which end one of these with
    an ack that no delivery went before.
    """
    gap = chunk.is_op("gap")
    excused = pc.subtract(chunk["seq"], pc.fill_null(chunk["quantity"], UNKNOWN))
    seq = chunk["seq"]
    named = pc.is_valid(chunk["msg_uid"])
    events = pa.table(
        {
            "queue_id": chunk["queue_id"],
            "piece": _pieces(chunk),
            "change": _change(chunk),
            "listed": pc.and_(chunk.is_op("recover"), named).cast(pa.int64()),
            "settled": settled.cast(pa.int64()),
            "unseen": unseen.cast(pa.int64()),
            "uid": pc.if_else(settled, chunk["msg_uid"], pa.scalar(None, pa.int64())),
            "seq": seq,
            "total": pc.bit_wise_and(seq, BLOCK - 1),
            "gap": chunk.seq_where(gap),
            "excused": pc.if_else(gap, excused, pa.scalar(None, pa.int64())),
            "ts": chunk["ts"],
        }
    )
    found = events.group_by(["queue_id", "piece"], use_threads=False).aggregate(
        [(name, how) for name, how, _ in AGGREGATES]
    )
    named_sums = {sum_name: found[f"{name}_{how}"] for name, how, sum_name in AGGREGATES}
    columns = {"queue_id": found["queue_id"]} | {name: named_sums[name] for name in SUMS}
    return {name: column.combine_chunks() for name, column in columns.items()}


def _pieces(chunk: Chunk) -> pa.Array:
    """For each event the last anchor until then, or where its block begins if that is later."""
    of_queue = pc.and_(pc.is_valid(chunk["queue_id"]), pc.is_null(chunk["msg_uid"]))
    anchors = pc.fill_null_forward(chunk.seq_where(pc.and_(chunk.is_op(*ANCHORS), of_queue)))
    return pc.max_element_wise(anchors, pc.bit_wise_and(chunk["seq"], -BLOCK))


def _change(chunk: Chunk) -> pa.Array:
    """By how much a queue has more entries after an event. `queue_delete` is an anchor and no change."""
    ranges = pc.negate(pc.fill_null(chunk["quantity"], 0))
    one = chunk.by_op({"enqueue": 1, "append": 1} | dict.fromkeys(LEAVING, -1))
    return pc.if_else(chunk.is_op("purge", "lost", "trim"), ranges, one)
