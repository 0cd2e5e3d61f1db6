"""Events of sealed files, one by one. Takes pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from protocol.journal.rows import Row


def sealed_rows(path: Path, node: str) -> Iterator[Row]:
    """The events of a sealed file. Raises OSError and pyarrow's ArrowInvalid: it is none."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches():
            at = batch.schema.get_field_index("ts")
            numbers = batch.set_column(at, "ts", batch.column(at).cast(pa.int64()))
            for each in numbers.to_pylist():
                yield Row(**each)
