"""First deliveries of queues to consumers, and those that came after one of a later place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.digest.chunk import Chunk
from pipeline.journal.schema import KEYS

CONSUMER: Final = ("queue_id", "conn", "channel", "consumer")
SHOWN: Final = (*CONSUMER, "seq", "qpos")


class Places(NamedTuple):
    """`rows`: PLACED without the node. `late`: KEYS of entries that one of a later place has overtaken."""

    rows: dict[str, pa.Array]
    late: pa.Table


def places(chunk: Chunk) -> Places:
    """The first deliveries of a chunk.

    A place holds until a restart gives a new one, so no row goes over the end of what a restart lists.
    """
    again = pc.fill_null(chunk["redelivered"], False)
    has_place = pc.and_(chunk.of_entry, pc.is_valid(chunk["qpos"]))
    first = pc.and_(pc.and_(chunk.is_op("deliver"), pc.invert(again)), has_place)
    found = {name: chunk[name].filter(first) for name in (*SHOWN, "msg_uid")}
    own = groups([*(found[name] for name in CONSUMER), _restarts(chunk).filter(first)])
    in_order = pc.sort_indices(own)  # which leaves those of a group in order of their seqs
    rows = {name: column.take(in_order) for name, column in found.items()}
    return _rows(rows, own.take(in_order))


def _rows(rows: dict[str, pa.Array], groups: pa.Array) -> Places:
    """`rows`: deliveries, by group and then by seq."""
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
    """Whether a delivery came after one of a later place of its group, which takes a look at `torn` ones."""
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
    """For each event the last end of what a restart lists, of whatever queue."""
    ends = pc.and_(chunk.is_op("recover"), pc.is_null(chunk["msg_uid"]))
    return pc.fill_null_forward(chunk.seq_where(ends))


def groups(columns: list[pa.Array]) -> pa.Array:
    """A number for each row, which is the same where all columns are."""
    found = pa.repeat(pa.scalar(0, pa.int64()), len(columns[0]))
    for column in columns:
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        size = len(encoded.dictionary) + 1
        own = pc.fill_null(encoded.indices.cast(pa.int64()), size - 1)
        found = pc.add(pc.multiply(found, size), own).dictionary_encode().indices.cast(pa.int64())
    return found


def _joined(first: pa.Array, second: pa.Array) -> pa.Array:
    return pa.concat_arrays([first, second])
