"""Events as Arrow columns, made from records without a loop over the records. Imports pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from protocol.journal import records as r
from protocol.journal.decoder import Block, Decoder, Names
from protocol.journal.names import ACTORS, QUEUE, ROUTE
from protocol.journal.rows import (
    ADDING,
    WITH_MESSAGE_ID,
    WITH_QUANTITY,
    WITH_RANGE,
    WITH_TEXT,
    WITH_UNACKED,
    WITHOUT_SIZE,
)

SCHEMA: Final = pa.schema(
    [
        pa.field("node", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("op", pa.string(), nullable=False),
        ("reason", pa.string()),
        ("vhost", pa.string()),
        ("queue", pa.string()),
        ("queue_id", pa.int64()),
        ("msg_uid", pa.int64()),
        ("origin_uid", pa.int64()),
        ("qpos", pa.int64()),
        ("first_qpos", pa.int64()),
        ("peer_queue", pa.string()),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("user", pa.string()),
        ("conn", pa.string()),
        ("channel", pa.int32()),
        ("consumer", pa.string()),
        ("size", pa.int64()),
        ("quantity", pa.int64()),
        ("unacked", pa.int64()),
        ("delivery_count", pa.int32()),
        ("persistent", pa.bool_()),
        ("redelivered", pa.bool_()),
        ("auto_ack", pa.bool_()),
        ("message_id", pa.string()),
        ("text", pa.string()),
        ("address", pa.string()),
        ("request", pa.string()),
    ]
)
"""The columns of events in sealed and raw files: the fields of `protocol.journal.rows.EventRow`."""

WORDS: Final = r.RECORD_BYTES // 8


class _Table:
    """The names of some kinds by number, for look-ups of a whole column."""

    def __init__(self, names: Names, kinds: Mapping[int, Sequence[int]], fields: int) -> None:
        """`kinds`: for each kind of names, the index of its field for each column, -1 for none."""
        known = [(number, kind, values) for number, (kind, values) in names.items() if kind in kinds]
        self._numbers = pa.array([number for number, _, _ in known], pa.int64())
        self._fields = [
            pa.array(
                [
                    values[kinds[kind][field]] if kinds[kind][field] >= 0 else None
                    for _, kind, values in known
                ],
                pa.string(),
            )
            for field in range(fields)
        ]

    def columns(self, numbers: Any) -> list[Any]:
        """Return the columns of fields for a column of numbers of names."""
        places = pc.index_in(numbers, value_set=self._numbers)
        return [field.take(places) for field in self._fields]


def table_of(decoder: Decoder) -> Any:
    """Return all events of a file as a pyarrow.Table with SCHEMA."""
    return pa.Table.from_batches([batch_of(decoder, decoder.blocks())])


def batch_of(decoder: Decoder, blocks: Iterable[Block]) -> Any:
    """Return the events of blocks that `decoder` has read, as a pyarrow.RecordBatch with SCHEMA."""
    records: list[bytes] = []
    heaps: list[bytes] = []
    for block in blocks:
        records.append(block.records)
        heaps.append(block.heap)
    data = b"".join(records)
    count = len(data) // r.RECORD_BYTES
    flat = pa.Array.from_buffers(pa.int64(), count * WORDS, [None, pa.py_buffer(data)])
    records_of_words = pa.FixedSizeListArray.from_arrays(flat, WORDS)
    words = [pc.list_element(records_of_words, place) for place in range(WORDS)]
    return _batch(decoder, words, b"".join(heaps), count)


def _batch(decoder: Decoder, words: list[Any], heap: bytes, count: int) -> Any:
    seq, ts, uid, qpos, other, _, _, rest = words
    numbers = [_low(words[5]), _high(words[5]), _low(words[6])]
    queue, place, actor = numbers
    op, flags, reason = (_bits(rest, 8 * place, 0xFF) for place in range(3))
    names = decoder.names
    is_message = pc.not_equal(uid, 0)
    has_other = pc.not_equal(other, 0)
    counted = pc.or_(_among(op, WITH_QUANTITY), pc.and_(pc.equal(op, r.RECOVER), pc.invert(is_message)))
    counted = pc.or_(counted, pc.and_(pc.equal(op, r.GAP), has_other))
    sized = pc.invert(pc.or_(counted, _among(op, WITHOUT_SIZE)))
    size = _high(words[6])
    vhosts, queues, ids = _Table(names, {QUEUE: [0, 1, 2]}, 3).columns(queue)
    peers = _Table(names, {QUEUE: [1]}, 1).columns(place)[0]
    exchanges, keys = _Table(names, {ROUTE: [0, 1]}, 2).columns(place)
    conns, channels, users, consumers, addresses, requests = _Table(names, ACTORS, 6).columns(actor)
    texts = _texts(_bits(rest, 48, 0xFFFF), heap, count)
    has_text = pc.not_equal(texts, "")
    columns = [
        pa.repeat(pa.scalar(decoder.header.node), count),
        seq,
        ts.cast(pa.timestamp("us", tz="UTC")),
        pa.array(r.OPS, pa.string()).take(op),
        pa.array([name or None for name in r.REASONS], pa.string()).take(reason),
        vhosts,
        queues,
        ids.cast(pa.int64()),
        _where(is_message, uid),
        _where(pc.and_(_among(op, ADDING), has_other), other),
        _where(pc.greater_equal(qpos, 0), qpos),
        _where(_among(op, WITH_RANGE), other),
        _where(pc.equal(op, r.DEAD_LETTER), peers),
        exchanges,
        keys,
        _where(pc.not_equal(users, ""), users),
        _where(pc.not_equal(conns, ""), conns),
        _where(pc.not_equal(channels, ""), channels).cast(pa.int32()),
        consumers,
        _where(sized, size),
        _where(counted, size),
        _where(_among(op, WITH_UNACKED), other),
        _bits(rest, 32, 0xFFFF).cast(pa.int32()),
        pc.not_equal(pc.bit_wise_and(flags, r.PERSISTENT), 0),
        pc.not_equal(pc.bit_wise_and(flags, r.REDELIVERED), 0),
        pc.not_equal(pc.bit_wise_and(flags, r.AUTO_ACK), 0),
        _where(pc.and_(_among(op, WITH_MESSAGE_ID), has_text), texts),
        _where(pc.and_(_among(op, WITH_TEXT), has_text), texts),
        _where(pc.not_equal(addresses, ""), addresses),
        _where(pc.not_equal(requests, ""), requests),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _bits(words: Any, shift: int, mask: int) -> Any:
    return pc.bit_wise_and(pc.shift_right(words, shift), mask)


def _low(words: Any) -> Any:
    return pc.bit_wise_and(words, 0xFFFFFFFF)


def _high(words: Any) -> Any:
    return _bits(words, 32, 0xFFFFFFFF)


def _among(op: Any, wanted: Iterable[int]) -> Any:
    return pc.is_in(op, value_set=pa.array([int(each) for each in wanted], pa.int64()))


def _where(mask: Any, values: Any) -> Any:
    """Return the values where the mask is true, else null."""
    return pc.if_else(mask, values, pa.scalar(None, values.type))


def _texts(lengths: Any, heap: bytes, count: int) -> Any:
    """Return the texts of all records, which are consecutive in the heap."""
    ends = pc.cumulative_sum(lengths.cast(pa.int32())) if count else pa.array([], pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    texts = pa.Array.from_buffers(pa.binary(), count, [None, offsets.buffers()[1], pa.py_buffer(heap)])
    return texts.cast(pa.string())
