"""The digest of some events, as rows of Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.digest.chunk import Chunk, chunks
from pipeline.digest.lives import events_of, lives_of
from pipeline.digest.places import places
from pipeline.digest.schema import DIGEST, KEPT, LIVED
from pipeline.digest.sums import sums
from pipeline.journal.schema import FACTS, FORWARDS

ROWS_OF_BATCH: Final = 65_536


def digest(events: pa.Table, poison: int) -> Iterator[pa.RecordBatch]:
    """Rows of DIGEST. What is not settled in these events may be so with others.

    Of each queue there must be no other events between these.
    """
    for chunk in chunks(events):
        node = chunk["node"].slice(0, 1).dictionary_decode()
        found = places(chunk)
        lives = lives_of(chunk, poison)
        opens = events_of(chunk, pa.concat_tables([lives.unsettled, found.late]))
        unseen = pc.and_(events_of(chunk, lives.unseen), pc.and_(chunk.is_op("ack"), pc.invert(opens)))
        stays = pc.or_(_says_more(chunk), events_of(chunk, found.late))
        begins = pc.and_(chunk.is_op("enqueue"), chunk.of_entry)
        kinds = {
            "kept": _rows(chunk, stays, KEPT),
            "lived": _rows(chunk, opens, LIVED),
            "moved": sums(chunk, pc.and_(begins, pc.invert(opens)), unseen),
            "placed": found.rows,
        }
        for kind, columns in kinds.items():
            yield from _batches(kind, columns, node)


def _says_more(chunk: Chunk) -> pa.Array:
    """Whether an event is a fact, or an end of a way from queue to queue."""
    facts = pc.and_(pc.is_null(chunk["msg_uid"]), chunk.is_op(*FACTS))
    to_another = pc.fill_null(pc.not_equal(chunk["peer_queue"].dictionary_decode(), ""), False)
    leaves = pc.and_(to_another, chunk.is_op(*FORWARDS))
    comes = pc.and_(pc.is_valid(chunk["origin_uid"]), chunk.is_op("enqueue"))
    return pc.or_(facts, pc.or_(leaves, comes))


def _rows(chunk: Chunk, which: pa.Array, kind: StructType) -> dict[str, pa.Array]:
    return {name: chunk[name].filter(which) for name in kind.names}


def _batches(kind: str, columns: Mapping[str, pa.Array], node: pa.Array) -> Iterator[pa.RecordBatch]:
    """Rows of one kind, few at a time: they are wide. `node`: its name, for what does not have it."""
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
