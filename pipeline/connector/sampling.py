"""The first bodies of what is to be read, which a schema is inferred from."""

from __future__ import annotations

from dataclasses import replace

from pipeline.connector.batches import read
from pipeline.connector.options import SourceOptions
from pipeline.connector.reading import of_batch
from pipeline.connector.schema import source_schema
from pipeline.connector.slices import Slice


def sampled(options: SourceOptions) -> list[bytes]:
    """The bodies of the first messages, as the column `value` has them. Raises what `read` raises."""
    plain = replace(options, body_format="binary", properties=False, headers=False)
    schema = source_schema(None, plain.properties, plain.headers)
    bodies: list[bytes] = []
    for wanted in of_batch(options):
        few = wanted._replace(end=min(wanted.end, wanted.start + options.sample_rows - len(bodies)))
        if few.start >= few.end:
            break
        for batch in read(plain, schema, Slice(few, None)):
            bodies += batch.column("value").to_pylist()
    return bodies
