"""Events of one node as Arrow columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType

from pipeline.digest.schema import KEPT_COLUMNS, LIVED_COLUMNS
from pipeline.errors import PipelineError
from pipeline.journal.schema import EVENTS, QUANTITY_ALIAS, STREAMED

COLUMNS: Final = tuple(dict.fromkeys((*KEPT_COLUMNS, *LIVED_COLUMNS, "redelivered", "conn", "channel")))
TEXTS: Final = tuple(name for name in COLUMNS if isinstance(EVENTS[name].dataType, StringType))


class Chunk:
    """Events of one node in order of their seqs. `columns`: COLUMNS, texts as dictionaries, `ts` as int64."""

    def __init__(self, columns: Mapping[str, pa.Array]) -> None:
        self._columns = columns
        has_keys = pc.and_(pc.is_valid(columns["queue_id"]), pc.is_valid(columns["msg_uid"]))
        self.of_entry = pc.and_(has_keys, pc.invert(self.is_op(*STREAMED)))

    def __getitem__(self, name: str) -> pa.Array:
        return self._columns[name]

    def by_op(self, values: Mapping[str, int]) -> pa.Array:
        """Return a number for each event by its operation; 0 for other operations."""
        ops = self["op"]
        return pa.array([values.get(op, 0) for op in ops.dictionary.to_pylist()], pa.int64()).take(
            ops.indices
        )

    def is_op(self, *wanted: str) -> pa.Array:
        """Return whether each event has one of these operations."""
        return pc.not_equal(self.by_op(dict.fromkeys(wanted, 1)), 0)

    def seq_where(self, mask: pa.Array) -> pa.Array:
        """Return the seqs of events where `mask` is true, otherwise null."""
        return pc.if_else(mask, self["seq"], pa.scalar(None, pa.int64()))


def select_columns(events: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns that a digest reads: few, as many batches wait in memory for one another."""
    columns = {name: events.column(name) for name in COLUMNS}
    return pa.RecordBatch.from_pydict(
        {name: column.dictionary_encode() if name in TEXTS else column for name, column in columns.items()}
    )


def chunks(events: pa.Table) -> Iterator[Chunk]:
    """Yield the events of each node; columns may be missing, and the order is arbitrary.

    Raises PipelineError: an event has no node.
    """
    columns = {name: _column(events, name) for name in COLUMNS}
    if columns["node"].null_count:
        raise PipelineError(f"{columns['node'].null_count} events have no node")
    nodes = columns["node"].dictionary
    for node in nodes:
        own = columns
        if len(nodes) > 1:
            own = _each(columns, "filter", pc.equal(columns["node"], node))
        if len(own["seq"]):
            yield Chunk(own if _grow(own["seq"]) else _each(own, "take", pc.sort_indices(own["seq"])))


def _each(columns: Mapping[str, pa.Array], how: str, by: pa.Array) -> dict[str, pa.Array]:
    return {name: getattr(column, how)(by) for name, column in columns.items()}


def _grow(seqs: pa.Array) -> bool:
    grow = pc.all(pc.greater_equal(seqs.slice(1), seqs.slice(0, len(seqs) - 1)))
    return grow.as_py() is not False  # null: there is a next batch


def _column(events: pa.Table, name: str) -> pa.Array:
    kind = _kinds().field(name).type
    parts = [
        _one(events.column(each)) for each in _names(name) if events.schema.get_field_index(each) >= 0
    ] or [pa.nulls(events.num_rows, kind)]
    if name in TEXTS:
        return _text(parts[0])
    typed = [column.cast(kind) for column in parts]
    column = pc.coalesce(*typed) if len(typed) > 1 else typed[0]
    return column.cast(pa.int64()) if name in ("ts", "channel", "delivery_count") else column


def _text(column: pa.Array) -> pa.Array:
    """Return a text column as a dictionary of strings, whatever its type in the file."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    if pa.types.is_string(encoded.dictionary.type):
        return encoded
    return pa.DictionaryArray.from_arrays(encoded.indices, encoded.dictionary.cast(pa.string()))


def _names(name: str) -> tuple[str, ...]:
    """Return the names that a column may have in a file."""
    return (name, QUANTITY_ALIAS) if name == "quantity" else (name,)


def _one(column: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return column.combine_chunks()


@cache
def _kinds() -> pa.Schema:
    return to_arrow_schema(EVENTS, timezone="UTC")
