"""Which entries of queues have a life that is over within a chunk, and nothing to tell."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.digest.chunk import Chunk
from pipeline.journal.schema import KEYS, LEAVING

LEFT: Final = 1 << 20
ODD: Final = 1 << 42


def unsettled(chunk: Chunk, poison: int) -> pa.Table:
    """KEYS of the entries that are not settled here.

    Settled is one that came once and left once, after all else that happened to it, was not listed by a
    restart and is no poison. Whatever else there is, it is `ok`.
    """
    again = pc.fill_null(pc.greater_equal(chunk["delivery_count"], poison), False)
    tally = chunk.by_op({"recover": ODD, "enqueue": 1} | dict.fromkeys(LEAVING, LEFT))
    last = pc.add(pc.multiply(chunk["seq"], 2), chunk.by_op(dict.fromkeys(LEAVING, 1)))
    events = pa.table(
        [chunk["queue_id"], chunk["msg_uid"], pc.if_else(again, ODD, tally), last],
        names=[*KEYS, "tally", "last"],
    ).filter(chunk.of_entry)
    entries = events.group_by(list(KEYS), use_threads=False).aggregate([("tally", "sum"), ("last", "max")])
    ends_last = pc.equal(pc.bit_wise_and(entries["last_max"], 1), 1)
    settled = pc.and_(pc.equal(entries["tally_sum"], 1 + LEFT), ends_last)
    return entries.filter(pc.invert(settled)).select(list(KEYS))


def events_of(chunk: Chunk, entries: pa.Table) -> pa.Array:
    """Whether each event is of one of these entries (KEYS)."""
    uids = entries["msg_uid"].combine_chunks()
    may_be = pc.and_(chunk.of_entry, pc.is_in(chunk["msg_uid"], value_set=uids))
    rows = pc.indices_nonzero(may_be)
    few = pa.table([*(chunk[name].filter(may_be) for name in KEYS), rows], names=[*KEYS, "row"])
    found = few.join(entries, list(KEYS), join_type="left semi", use_threads=False)
    return pc.replace_with_mask(may_be, may_be, pc.is_in(rows, value_set=found["row"].combine_chunks()))
