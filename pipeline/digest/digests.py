"""Digests as an audit takes them, of journals wherever they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession

from pipeline.digest.live import live_digest
from pipeline.digest.sealed import micros_of, sealed_digest
from pipeline.journal.inventory import Held, hold_options, hold_sealed
from pipeline.journal.live import read_fixed, until_now
from pipeline.journal.options import journal_options
from pipeline.journal.reading import read_events, sealed_folder
from protocol.journal.inventory import CHANGED


class Digest:
    """`rows`: DIGEST. `poison`: so many deliveries are too many. `held`: what is wrong with the files."""

    def __init__(self, rows: DataFrame, poison: int, held: Held, read: Callable[[], DataFrame]) -> None:
        """`read`: has the events that it is of."""
        self.rows = rows
        self.held = held
        self.poison = poison
        self._read = read

    @cached_property
    def events(self) -> DataFrame:
        """The events that it is of, for what it does not tell."""
        return self._read()


def of_sealed(spark: SparkSession, journal: str, poison: int = 5, since: datetime | None = None) -> Digest:
    """Of the sealed events in a journal's folder, or those from `since` on. Raises PipelineError."""
    sealed_folder(journal)
    held = hold_sealed(spark, journal, micros_of(since))
    rows = sealed_digest(spark, journal, poison, since, held.strays)
    return Digest(rows, poison, held, lambda: read_events(spark, journal, since, held.strays))


def of_live(
    spark: SparkSession, said: Mapping[str, str], poison: int = 5, since: datetime | None = None
) -> Digest:
    """Of all events up to now, sealed or not. `said`: options of `format("amqp-journal")`.

    Raises PipelineError: there is no journal.
    """
    held = hold_options(journal_options(said, streaming=False), micros_of(since))
    if held.faults:  # they are findings, so the audit goes on without these events
        changed = [fault["file"].rpartition("/")[2] for fault in held.faults if fault["what"] == CHANGED]
        said = {"failOnDataLoss": "false", "without": json.dumps(changed)} | dict(said)
    fixed = until_now(said, since)
    rows = live_digest(spark, fixed, poison, micros_of(since))
    return Digest(rows, poison, held, lambda: read_fixed(spark, fixed, since))
