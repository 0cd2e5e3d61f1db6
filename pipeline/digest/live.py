"""Digests of journals that go on, made by the tasks that read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from pipeline.digest.chunk import narrowed
from pipeline.digest.digest import digest
from pipeline.digest.schema import DIGEST
from pipeline.digest.sealed import from_time
from pipeline.journal.options import JournalOptions, journal_options
from pipeline.journal.source import JournalReader

FORMAT: Final = "amqp-journal-digest"
OWN: Final = ("poison", "since")


def live_digest(spark: SparkSession, said: Mapping[str, str], poison: int, since: int | None) -> DataFrame:
    """The digest of what a batch of `format("amqp-journal")` reads with the options `said` (DIGEST).

    `since`: microseconds since 1970.
    """
    spark.dataSource.register(DigestSource)
    own = {"poison": str(poison)} | ({} if since is None else {"since": str(since)})
    return spark.read.format(FORMAT).options(**dict(said) | own).load()


class DigestSource(DataSource):
    """What `format("amqp-journal")` reads, as digests. Its options, and `poison` and `since`."""

    @classmethod
    def name(cls) -> str:
        """What `format` is called."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of a digest."""
        return DIGEST

    def reader(self, schema: StructType) -> DigestReader:
        """Reads once. Raises OptionError."""
        said = {name: value for name, value in self.options.items() if name.lower() not in OWN}
        since = self.options.get("since")
        options = journal_options(said, streaming=False)
        return DigestReader(options, int(self.options["poison"]), None if since is None else int(since))


class DigestReader(JournalReader):
    """Each task makes a digest of its events."""

    def __init__(self, options: JournalOptions, poison: int, since: int | None) -> None:
        super().__init__(options)
        self._poison = poison
        self._since = since

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read events, and make their digest (DataSourceReader)."""
        batches = [narrowed(batch) for batch in super().read(partition)]
        if batches:
            events = pa.Table.from_batches(batches)
            yield from digest(events if self._since is None else from_time(events, self._since), self._poison)
