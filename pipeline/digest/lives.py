"""Which entries of queues have a life that is over within a chunk, and nothing to tell."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.digest.chunk import Chunk
from pipeline.digest.places import groups
from pipeline.journal.schema import KEYS, LEAVING, TAKING

LEFT: Final = 1 << 20
ODD: Final = 1 << 42


class Lives(NamedTuple):
    """KEYS of the entries that are not settled, and of those that are and were acknowledged undelivered."""

    unsettled: pa.Table
    unseen: pa.Table


def lives_of(chunk: Chunk, poison: int) -> Lives:
    """Tell which entries are not settled here.

    Settled is one that came once and left once, after all else that happened to it, was not listed by a
    restart and is no poison; who gave it back or acknowledged it was who had it, if it was delivered at all.
    Whatever else there is, it is `ok`.
    """
    told = _has_actor(chunk)
    takes, backs = chunk.is_op(*TAKING), pc.and_(chunk.is_op("ack", "requeue"), told)
    one = pc.add(groups([chunk[name] for name in ("conn", "channel", "consumer")]), 1)
    sign = pc.subtract(takes.cast(pa.int64()), backs.cast(pa.int64()))
    again = pc.fill_null(pc.greater_equal(chunk["delivery_count"], poison), False)
    tally = chunk.by_op({"recover": ODD, "enqueue": 1} | dict.fromkeys(LEAVING, LEFT))
    last = pc.add(pc.multiply(chunk["seq"], 2), chunk.by_op(dict.fromkeys(LEAVING, 1)))
    events = pa.table(
        [
            *(chunk[name] for name in KEYS),
            pc.if_else(again, ODD, tally),
            last,
            takes.cast(pa.int64()),
            backs.cast(pa.int64()),
            pc.and_(chunk.is_op("ack"), told).cast(pa.int64()),
            pc.multiply(one, sign),
        ],
        names=[*KEYS, "tally", "last", "takes", "backs", "acks", "who"],
    ).filter(chunk.of_entry)
    sums = ("tally", "takes", "backs", "acks", "who")
    entries = events.group_by(list(KEYS), use_threads=False).aggregate(
        [("last", "max"), *((name, "sum") for name in sums)]
    )
    ends_last = pc.equal(pc.bit_wise_and(entries["last_max"], 1), 1)
    settled = pc.and_(pc.and_(pc.equal(entries["tally_sum"], 1 + LEFT), ends_last), _in_turn(chunk, entries))
    is_unseen = pc.and_(pc.equal(entries["takes_sum"], 0), pc.greater(entries["acks_sum"], 0))
    return Lives(
        entries.filter(pc.invert(settled)).select(list(KEYS)),
        entries.filter(pc.and_(settled, is_unseen)).select(list(KEYS)),
    )


def _has_actor(chunk: Chunk) -> pa.Array:
    """Whether each event says who did it."""
    return pc.or_(pc.is_valid(chunk["consumer"]), pc.is_valid(chunk["conn"]))


def _in_turn(chunk: Chunk, entries: pa.Table) -> pa.Array:
    """Whether one consumer at a time had an entry, and gave it back or acknowledged it."""
    none = pc.equal(entries["takes_sum"], 0)
    returned_once = pc.and_(pc.equal(entries["backs_sum"], 1), pc.equal(entries["who_sum"], 0))
    once = pc.and_(
        pc.equal(entries["takes_sum"], 1), pc.or_(pc.equal(entries["backs_sum"], 0), returned_once)
    )
    simple = pc.or_(none, once)
    repeated = pc.greater(entries["takes_sum"], 1)
    if not pc.any(repeated).as_py():
        return simple
    keys = entries.filter(repeated).select(list(KEYS))
    odd = _out_of_turn(chunk, keys)
    rows = pa.array(range(entries.num_rows), pa.int64())
    found = entries.select(list(KEYS)).append_column("row", rows)
    fine = found.filter(repeated).join(odd, list(KEYS), join_type="left anti", use_threads=False)
    return pc.or_(simple, pc.is_in(rows, value_set=fine["row"].combine_chunks()))


def _out_of_turn(chunk: Chunk, keys: pa.Table) -> pa.Table:
    """KEYS of those entries that two had at once, or that one gave back or acknowledged who had them not."""
    backs = pc.and_(chunk.is_op("ack", "requeue"), _has_actor(chunk))
    steps = pc.and_(events_of(chunk, keys), pc.or_(chunk.is_op(*TAKING), backs))
    columns = {name: chunk[name].filter(steps) for name in (*KEYS, "conn", "channel", "consumer")}
    takes = chunk.is_op(*TAKING).filter(steps)
    entry = groups([columns[name] for name in KEYS])
    order = pc.sort_indices(entry)  # which leaves those of an entry in order of their seqs
    entry, takes = entry.take(order), takes.take(order)
    who = groups([columns[name] for name in ("conn", "channel", "consumer")]).take(order)
    size = max(len(entry) - 1, 0)
    edge = pa.array([False] * min(len(entry), 1), pa.bool_())

    def before(values: pa.Array, none: pa.Array) -> pa.Array:
        return pa.concat_arrays([none, values.slice(0, size)])

    same = pa.concat_arrays([edge, pc.equal(entry.slice(1), entry.slice(0, size))])
    had = pc.and_(same, before(takes, edge))
    its_own = pc.equal(who, before(who, pa.array([0] * len(edge), who.type)))
    odd = pc.or_(pc.and_(had, pc.invert(its_own)), pc.and_(pc.invert(had), pc.invert(takes)))
    return pa.table({name: columns[name].take(order).filter(odd) for name in KEYS})


def events_of(chunk: Chunk, entries: pa.Table) -> pa.Array:
    """Whether each event is of one of these entries (KEYS)."""
    uids = entries["msg_uid"].combine_chunks()
    may_be = pc.and_(chunk.of_entry, pc.is_in(chunk["msg_uid"], value_set=uids))
    rows = pc.indices_nonzero(may_be)
    few = pa.table([*(chunk[name].filter(may_be) for name in KEYS), rows], names=[*KEYS, "row"])
    found = few.join(entries, list(KEYS), join_type="left semi", use_threads=False)
    return pc.replace_with_mask(may_be, may_be, pc.is_in(rows, value_set=found["row"].combine_chunks()))
