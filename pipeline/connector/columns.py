"""Rows of chunks as Arrow columns, in most cases without a loop over the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.connector.messages import Details, Message
from pipeline.connector.offsets import Place
from protocol.streams.chunk import BODY, EXCHANGE, PROPERTIES, ROUTING_KEY, SECTIONS, Chunk

MICROSECONDS: Final = pa.timestamp("us", tz="UTC")
OFFSETS: Final = 16_384  # computed at once, as most chunks follow one another
Bodies = Callable[[pa.Array, pa.Field], pa.Array]
"""Makes the column `value` from an array of binaries and its field."""


class Columns:
    """Makes record batches with the fields of `schema` from the chunks of one partition.

    `bodies`: None leaves `value` binary.
    """

    def __init__(self, schema: pa.Schema, place: Place, bodies: Bodies | None, wants: Details) -> None:
        self._schema = schema
        self._place = place
        self._bodies = bodies
        self._wants = wants
        self._same: dict[str, pa.Array] = {}  # columns with the same value in all rows
        self._lengthen(1024)
        self._offsets = pa.array([], pa.int64())  # consecutive offsets
        self._offset = 0  # the first of them

    def batch(self, chunk: Chunk, start: int, end: int) -> pa.RecordBatch:
        """Return the rows of a chunk with the offsets from `start` up to `end`, exclusively."""
        first = chunk.header.first
        row, count = start - first, end - start
        messages = self._messages(chunk, row, count)
        values = (
            _binaries(chunk, BODY, row, count)
            if messages is None
            else pa.array([each.body for each in messages], pa.binary())
        )
        data = chunk.data
        times = pa.py_buffer(data).slice(int(chunk.times) + 8 * row, 8 * count)
        columns: dict[str, Any] = {
            "value": values,
            "offset": self._dense(start, count),
            "timestamp": pa.Array.from_buffers(MICROSECONDS, count, [None, times]),
            "exchange": _texts(chunk, EXCHANGE, row, count),
            "routing_key": _texts(chunk, ROUTING_KEY, row, count),
        }
        columns |= {name: self._first(name, count) for name in ("queue", "partition", "redelivered")}
        return self._made(columns, messages)

    def batch_of(self, messages: list[Message], offsets: list[int]) -> pa.RecordBatch:
        """Return single messages as a batch without the times of their arrival, which are unknown."""
        count = len(messages)
        columns: dict[str, Any] = {
            "value": pa.array([each.body for each in messages], pa.binary()),
            "queue": self._first("queue", count),
            "partition": self._first("partition", count),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.nulls(count, MICROSECONDS),
            "exchange": pa.array([each.exchange for each in messages], pa.string()),
            "routing_key": pa.array([each.routing_key for each in messages], pa.string()),
            "redelivered": pa.array([each.redelivered for each in messages], pa.bool_()),
        }
        return self._made(columns, messages)

    def _dense(self, start: int, count: int) -> pa.Array:
        """Return `count` offsets from `start` on."""
        at = start - self._offset
        if at < 0 or at + count > len(self._offsets):
            self._offsets = pc.add(self._first("number", max(count, OFFSETS)), start)
            self._offset = start
            at = 0
        return self._offsets.slice(at, count)

    def _first(self, name: str, count: int) -> pa.Array:
        """Return the first rows of a column that has the same value in all rows."""
        if count > len(self._same[name]):
            self._lengthen(count)
        return self._same[name].slice(0, count)

    def _lengthen(self, count: int) -> None:
        self._same = {
            "queue": pa.repeat(self._place.queue, count),
            "partition": pa.repeat(pa.scalar(self._place.number, pa.int32()), count),
            "redelivered": pa.repeat(pa.scalar(False), count),
            "number": pa.array(range(count), pa.int64()),
        }

    def _made(self, columns: dict[str, Any], messages: list[Message] | None) -> pa.RecordBatch:
        schema = self._schema
        if self._bodies is not None:
            columns["value"] = self._bodies(columns["value"], schema.field("value"))
        if self._wants.properties:
            assert messages is not None, "they are wanted"
            columns["properties"] = pa.array(
                [each.properties for each in messages], schema.field("properties").type
            )
        if self._wants.headers:
            assert messages is not None, "they are wanted"
            columns["headers"] = pa.array([each.headers for each in messages], schema.field("headers").type)
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _messages(self, chunk: Chunk, row: int, count: int) -> list[Message] | None:
        """Return single messages if the schema or their kind needs them; None if columns suffice."""
        every = self._wants.properties or self._wants.headers
        kinds = chunk.data[chunk.kinds + row : chunk.kinds + row + count] if chunk.kinds else b""
        if not every and SECTIONS not in kinds:
            return None
        read = self._wants.read
        return [
            read(chunk.kind(each), chunk.value(PROPERTIES, each), chunk.value(BODY, each))
            for each in range(row, row + count)
        ]


def _binaries(chunk: Chunk, column: int, row: int, count: int) -> pa.Array:
    return _sliced(chunk, column, pa.binary()).slice(row, count)


def _texts(chunk: Chunk, column: int, row: int, count: int) -> pa.Array:
    """Return names as text; octets that are not UTF-8 are replaced."""
    texts = _sliced(chunk, column, pa.string()).slice(row, count)
    where = chunk.columns[column]
    if chunk.data[where.start : where.end].isascii():  # ASCII needs no validation
        return texts
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raw = _binaries(chunk, column, row, count)
        return pa.array([each.as_py().decode(errors="replace") for each in raw], pa.string())
    return texts


def _sliced(chunk: Chunk, column: int, kind: pa.DataType) -> pa.Array:
    """Return a column of all rows without copying."""
    values = chunk.columns[column]
    data = pa.py_buffer(chunk.data)
    starts = data.slice(int(values.offsets), 4 * (chunk.rows + 1))
    return pa.Array.from_buffers(
        kind, chunk.rows, [None, starts, data.slice(int(values.start), int(values.end - values.start))]
    )
