"""The digest of some events, as Arrow rows: unsettled entries, deliveries, and sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.digest.chunk import Chunk, chunks
from pipeline.digest.schema import BLOCK, DIGEST, KEPT, LIVED, SUMS
from pipeline.journal.schema import ANCHORS, FACTS, FORWARDS, KEYS, LEAVING, TAKING

CONSUMER: Final = ("queue_id", "conn", "channel", "consumer")
SHOWN: Final = (*CONSUMER, "seq", "qpos")

LEFT: Final = 1 << 20
ODD: Final = 1 << 42

UNKNOWN: Final = 1 << 62
"""The number for a `gap` of version 1: any number of events before the gap may be missing."""

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

ROWS_OF_BATCH: Final = 65_536


class Places(NamedTuple):
    """First deliveries. `rows`: PLACED without the node.

    `late`: KEYS of entries overtaken by a later place.
    """

    rows: dict[str, pa.Array]
    late: pa.Table


def places(chunk: Chunk) -> Places:
    """Return the first deliveries of a chunk.

    A place is valid until a restart assigns a new one. So no row continues beyond the end of a restart's
    list.
    """
    again = pc.fill_null(chunk["redelivered"], False)
    has_place = pc.and_(chunk.of_entry, pc.is_valid(chunk["qpos"]))
    first = pc.and_(pc.and_(chunk.is_op("deliver"), pc.invert(again)), has_place)
    columns = {name: chunk[name].filter(first) for name in (*SHOWN, "msg_uid")}
    own = groups([*(columns[name] for name in CONSUMER), _restarts(chunk).filter(first)])
    in_order = pc.sort_indices(own)  # keeps the order of seqs within a group
    rows = {name: column.take(in_order) for name, column in columns.items()}
    return _placed(rows, own.take(in_order))


def _placed(rows: dict[str, pa.Array], groups: pa.Array) -> Places:
    """Return rows of `placed`. `rows`: deliveries, by group and then by seq."""
    qpos = rows["qpos"]
    size = max(len(qpos) - 1, 0)
    same = pc.equal(groups.slice(1), groups.slice(0, size))
    falls = pc.and_(same, pc.less(qpos.slice(1), qpos.slice(0, size)))
    torn = pc.is_in(groups, value_set=groups.slice(1).filter(falls))
    edge = pa.array([True] * (len(qpos) > 0), pa.bool_())
    begins = pc.or_(torn, _joined(edge, pc.invert(same)))
    ends = pc.or_(torn, _joined(pc.invert(same), edge))
    late = _late(groups, qpos, torn)
    shown = {name: rows[name].filter(begins) for name in SHOWN}
    alone = pc.if_else(torn, rows["msg_uid"], pa.scalar(None, pa.int64()))
    lasts = {"last_seq": rows["seq"].filter(ends), "last_qpos": qpos.filter(ends)}
    more = {"msg_uid": alone.filter(begins), "late": late.filter(begins)}
    return Places(shown | lasts | more, pa.table({name: rows[name].filter(late) for name in KEYS}))


def _late(groups: pa.Array, qpos: pa.Array, torn: pa.Array) -> pa.Array:
    """Return whether a delivery came after a later place of its group.

    `torn` groups need a look at all places.
    """
    late = _behind(zip(groups.filter(torn).to_pylist(), qpos.filter(torn).to_pylist(), strict=True))
    return pc.replace_with_mask(pa.repeat(pa.scalar(False), len(qpos)), torn, pa.array(late, pa.bool_()))


def _behind(deliveries: Iterable[tuple[int, int]]) -> Iterator[bool]:
    of_group, latest = None, 0
    for group, qpos in deliveries:
        if group != of_group:
            of_group, latest = group, qpos
        yield qpos < latest
        latest = max(latest, qpos)


def _restarts(chunk: Chunk) -> pa.Array:
    """Return for each event the seq at which the last list of a restart ended, of any queue."""
    ends = pc.and_(chunk.is_op("recover"), pc.is_null(chunk["msg_uid"]))
    return pc.fill_null_forward(chunk.seq_where(ends))


def groups(columns: list[pa.Array]) -> pa.Array:
    """Return a number for each row that is equal where all columns are equal."""
    numbers = pa.repeat(pa.scalar(0, pa.int64()), len(columns[0]))
    for column in columns:
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        size = len(encoded.dictionary) + 1
        own = pc.fill_null(encoded.indices.cast(pa.int64()), size - 1)
        numbers = pc.add(pc.multiply(numbers, size), own).dictionary_encode().indices.cast(pa.int64())
    return numbers


def _joined(first: pa.Array, second: pa.Array) -> pa.Array:
    return pa.concat_arrays([first, second])


class Lives(NamedTuple):
    """KEYS of the entries that are not settled, and of settled entries acknowledged without a delivery."""

    unsettled: pa.Table
    unseen: pa.Table


def find_unsettled(chunk: Chunk, poison: int) -> Lives:
    """Find the entries that are not settled here.

    A settled entry entered once and left once, after all its other events. No restart listed the entry, it is
    no poison, and its holder returned or acknowledged it, if it was delivered at all. A settled entry is `ok`
    in any case.
    """
    has_actor = _has_actor(chunk)
    takes, backs = chunk.is_op(*TAKING), pc.and_(chunk.is_op("ack", "requeue"), has_actor)
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
            pc.and_(chunk.is_op("ack"), has_actor).cast(pa.int64()),
            pc.multiply(one, sign),
        ],
        names=[*KEYS, "tally", "last", "takes", "backs", "acks", "who"],
    ).filter(chunk.of_entry)
    sums = ("tally", "takes", "backs", "acks", "who")
    entries = events.group_by(list(KEYS), use_threads=False).aggregate(
        [("last", "max"), *((name, "sum") for name in sums)]
    )
    ends_last = pc.equal(pc.bit_wise_and(entries["last_max"], 1), 1)
    settled = pc.and_(
        pc.and_(pc.equal(entries["tally_sum"], 1 + LEFT), ends_last), _is_held_by_one(chunk, entries)
    )
    is_unseen = pc.and_(pc.equal(entries["takes_sum"], 0), pc.greater(entries["acks_sum"], 0))
    return Lives(
        entries.filter(pc.invert(settled)).select(list(KEYS)),
        entries.filter(pc.and_(settled, is_unseen)).select(list(KEYS)),
    )


def _has_actor(chunk: Chunk) -> pa.Array:
    """Return whether each event has an actor."""
    return pc.or_(pc.is_valid(chunk["consumer"]), pc.is_valid(chunk["conn"]))


def _is_held_by_one(chunk: Chunk, entries: pa.Table) -> pa.Array:
    """Return whether one consumer at a time held an entry, and returned or acknowledged it."""
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
    odd = _find_conflicts(chunk, keys)
    rows = pa.array(range(entries.num_rows), pa.int64())
    numbered = entries.select(list(KEYS)).append_column("row", rows)
    fine = numbered.filter(repeated).join(odd, list(KEYS), join_type="left anti", use_threads=False)
    return pc.or_(simple, pc.is_in(rows, value_set=fine["row"].combine_chunks()))


def _find_conflicts(chunk: Chunk, keys: pa.Table) -> pa.Table:
    """Return KEYS of entries with two holders at once, or settled by another consumer than the holder."""
    backs = pc.and_(chunk.is_op("ack", "requeue"), _has_actor(chunk))
    steps = pc.and_(events_of(chunk, keys), pc.or_(chunk.is_op(*TAKING), backs))
    columns = {name: chunk[name].filter(steps) for name in (*KEYS, "conn", "channel", "consumer")}
    takes = chunk.is_op(*TAKING).filter(steps)
    entry = groups([columns[name] for name in KEYS])
    order = pc.sort_indices(entry)  # keeps the order of seqs within an entry
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
    """Return whether each event is of one of these entries (KEYS)."""
    uids = entries["msg_uid"].combine_chunks()
    may_be = pc.and_(chunk.of_entry, pc.is_in(chunk["msg_uid"], value_set=uids))
    rows = pc.indices_nonzero(may_be)
    few = pa.table([*(chunk[name].filter(may_be) for name in KEYS), rows], names=[*KEYS, "row"])
    matches = few.join(entries, list(KEYS), join_type="left semi", use_threads=False)
    return pc.replace_with_mask(may_be, may_be, pc.is_in(rows, value_set=matches["row"].combine_chunks()))


def sum_events(chunk: Chunk, settled: pa.Array, unseen: pa.Array) -> dict[str, pa.Array]:
    """Return MOVED without the node, by queue and piece: no piece has an anchor of any queue inside.

    `settled`: the events that begin an entry which is counted and left out. `unseen`: the events that end
    such an entry with an ack without a delivery.
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
    sums = events.group_by(["queue_id", "piece"], use_threads=False).aggregate(
        [(name, how) for name, how, _ in AGGREGATES]
    )
    named_sums = {sum_name: sums[f"{name}_{how}"] for name, how, sum_name in AGGREGATES}
    columns = {"queue_id": sums["queue_id"]} | {name: named_sums[name] for name in SUMS}
    return {name: column.combine_chunks() for name, column in columns.items()}


def _pieces(chunk: Chunk) -> pa.Array:
    """Return for each event the seq of the last anchor before it, or of its block's begin if later."""
    of_queue = pc.and_(pc.is_valid(chunk["queue_id"]), pc.is_null(chunk["msg_uid"]))
    anchors = pc.fill_null_forward(chunk.seq_where(pc.and_(chunk.is_op(*ANCHORS), of_queue)))
    return pc.max_element_wise(anchors, pc.bit_wise_and(chunk["seq"], -BLOCK))


def _change(chunk: Chunk) -> pa.Array:
    """Return the change of a queue's number of entries by each event.

    `queue_delete` is an anchor and no change.
    """
    ranges = pc.negate(pc.fill_null(chunk["quantity"], 0))
    one = chunk.by_op({"enqueue": 1, "append": 1} | dict.fromkeys(LEAVING, -1))
    return pc.if_else(chunk.is_op("purge", "lost", "trim"), ranges, one)


def digest(events: pa.Table, poison: int) -> Iterator[pa.RecordBatch]:
    """Yield rows of DIGEST. Entries that these events do not settle may be settled with other events.

    Between these events there must be no other events of the same queues.
    """
    for chunk in chunks(events):
        node = chunk["node"].slice(0, 1).dictionary_decode()
        placed = places(chunk)
        lives = find_unsettled(chunk, poison)
        opens = events_of(chunk, pa.concat_tables([lives.unsettled, placed.late]))
        unseen = pc.and_(events_of(chunk, lives.unseen), pc.and_(chunk.is_op("ack"), pc.invert(opens)))
        stays = pc.or_(_says_more(chunk), events_of(chunk, placed.late))
        begins = pc.and_(chunk.is_op("enqueue"), chunk.of_entry)
        kinds = {
            "kept": _rows(chunk, stays, KEPT),
            "lived": _rows(chunk, opens, LIVED),
            "moved": sum_events(chunk, pc.and_(begins, pc.invert(opens)), unseen),
            "placed": placed.rows,
        }
        for kind, columns in kinds.items():
            yield from _batches(kind, columns, node)


def _says_more(chunk: Chunk) -> pa.Array:
    """Return whether an event is a fact, or an end of a transfer from queue to queue."""
    facts = pc.and_(pc.is_null(chunk["msg_uid"]), chunk.is_op(*FACTS))
    to_another = pc.fill_null(pc.not_equal(chunk["peer_queue"].dictionary_decode(), ""), False)
    leaves = pc.and_(to_another, chunk.is_op(*FORWARDS))
    comes = pc.and_(pc.is_valid(chunk["origin_uid"]), chunk.is_op("enqueue"))
    return pc.or_(facts, pc.or_(leaves, comes))


def _rows(chunk: Chunk, which: pa.Array, kind: StructType) -> dict[str, pa.Array]:
    return {name: chunk[name].filter(which) for name in kind.names}


def _batches(kind: str, columns: Mapping[str, pa.Array], node: pa.Array) -> Iterator[pa.RecordBatch]:
    """Yield rows of one kind, few at a time, as they are wide. `node`: for rows without the column."""
    for at in range(0, len(next(iter(columns.values()))), ROWS_OF_BATCH):
        yield _batch(kind, {name: each.slice(at, ROWS_OF_BATCH) for name, each in columns.items()}, node)


def _batch(kind: str, columns: Mapping[str, pa.Array], node: pa.Array) -> pa.RecordBatch:
    size = len(next(iter(columns.values())))
    fields = list(_schema().field(kind).type)
    arrays = [
        (columns[field.name] if field.name in columns else pa.repeat(node[0], size)).cast(field.type)
        for field in fields
    ]
    own = pa.StructArray.from_arrays(arrays, fields=fields)
    all_kinds = [own if field.name == kind else pa.nulls(size, field.type) for field in _schema()]
    return pa.RecordBatch.from_arrays(all_kinds, schema=_schema())


@cache
def _schema() -> pa.Schema:
    return to_arrow_schema(DIGEST, timezone="UTC")
