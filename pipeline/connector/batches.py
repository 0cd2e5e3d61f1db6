"""The messages that a task reads, as Arrow record batches."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.connector.columns import Bodies, Columns
from pipeline.connector.messages import Details
from pipeline.connector.options import AMQP, SourceOptions
from pipeline.connector.plan import Slice, plan_batch
from pipeline.connector.schema import source_schema
from pipeline.connector.streams import DataLossError, fetch_range, fetch_staged

ROWS: Final = 16_384  # rows of a batch for Spark, unless the byte limit is reached first
LOG: Final = logging.getLogger("amqpd.pipeline")


def read_range(
    options: SourceOptions, schema: StructType, part: Slice, keys: frozenset[object] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield all messages of a range, or raise an error. `keys`: only messages with one of these routing keys.

    Raises DataLossError, ServerError.
    """
    wanted = part.wanted
    gaps = not options.fail_on_loss
    columns = Columns(
        to_arrow_schema(schema, timezone="UTC"),
        wanted.place,
        _bodies(options, schema),
        Details(options.properties, options.headers),
    )
    rows = 0

    def wanted_rows() -> Iterator[tuple[pa.RecordBatch, int]]:
        nonlocal rows
        values = None if keys is None else pa.array(list(keys), pa.string())
        for batch, size in _batches(options, columns, part, gaps):
            rows += batch.num_rows
            if values is None:
                yield batch, size
                continue
            chosen = batch.filter(pc.is_in(batch.column("routing_key"), values))
            if chosen.num_rows:
                yield chosen, size * chosen.num_rows // batch.num_rows

    yield from _join_batches(wanted_rows(), options.fetch_bytes)
    missing = wanted.end - wanted.start - rows
    if missing:
        what = (
            f"{missing} messages are missing of partition {wanted.place.number} of '{wanted.place.queue}' "
            f"from {wanted.start} to {wanted.end}"
        )
        if not gaps:
            raise DataLossError(what)
        LOG.warning("%s", what)


def _batches(
    options: SourceOptions, columns: Columns, part: Slice, gaps: bool
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield rows as they arrive, with their approximate bytes."""
    if options.transport == AMQP:
        from pipeline.connector.foreign_streams import consume_range

        for batch in consume_range(options, columns, part.wanted):
            yield batch, batch.column("value").nbytes
        return
    chunks = (
        fetch_range(options.server, part.wanted, gaps)
        if part.reader is None
        else fetch_staged(options.server, part.reader, part.wanted, gaps)
    )
    for chunk, start, end in chunks:
        yield columns.batch(chunk, start, end), chunk.header.size * (end - start) // chunk.rows


def _bodies(options: SourceOptions, schema: StructType) -> Bodies | None:
    if options.body_format == "binary":
        return None
    from pipeline.connector.bodies import JsonBodies, decode_text

    value: Any = schema["value"].dataType
    return decode_text if options.body_format == "string" else JsonBodies(value)


def _join_batches(batches: Iterator[tuple[pa.RecordBatch, int]], most: int) -> Iterator[pa.RecordBatch]:
    """Join small batches into batches of about `most` bytes."""
    waiting: list[pa.RecordBatch] = []
    rows = total = 0
    for batch, size in batches:
        waiting.append(batch)
        rows += batch.num_rows
        total += size
        if rows >= ROWS or total >= most:
            yield _one(waiting)
            waiting, rows, total = [], 0, 0
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def sample_bodies(options: SourceOptions) -> list[bytes]:
    """Return the bodies of the first messages, as the column `value` has them.

    Raises the errors of `read_range`.
    """
    plain = replace(options, body_format="binary", properties=False, headers=False)
    schema = source_schema(None, plain.properties, plain.headers)
    bodies: list[bytes] = []
    for wanted in plan_batch(options):
        few = wanted._replace(end=min(wanted.end, wanted.start + options.sample_rows - len(bodies)))
        if few.start >= few.end:
            break
        for batch in read_range(plain, schema, Slice(few, None)):
            bodies += batch.column("value").to_pylist()
    return bodies
