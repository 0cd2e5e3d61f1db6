"""What Spark hands to a task."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from pipeline.connector.offsets import Range


class Slice(InputPartition):
    """A range, and the reader for whom it is staged; None: it is of a stream."""

    def __init__(self, wanted: Range, reader: str | None) -> None:
        super().__init__(0)
        self.wanted = wanted
        self.reader = reader
