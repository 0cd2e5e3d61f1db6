"""The lag of streaming queries: written to the log batch by batch, and reported to the broker."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from pipeline.connector.choices import Choices
from pipeline.connector.offsets import Offsets, Place, parse_offsets
from pipeline.connector.server import Server, ServerError, make_server
from pipeline.errors import PipelineError

LOG: Final = logging.getLogger("amqpd.pipeline")
PATIENCE_S: Final = 5.0


class Lag(NamedTuple):
    """The next offset that a query reads from a partition; `end` is behind the last message."""

    place: Place
    next: int
    end: int

    @property
    def rows(self) -> int:
        """The number of messages that wait."""
        return max(self.end - self.next, 0)


class LagListener(StreamingQueryListener):
    """Reports the lag of a session's queries that read from one broker.

    A reader has the name `name`, or the query's name, or the query's id. A failed report is logged once until
    reporting works again, and the query continues.
    """

    def __init__(self, server: Server, name: str | None) -> None:
        self._server = replace(server, retries=0, timeout=PATIENCE_S)  # Spark waits for its listeners
        self._name = name
        self._works = True
        self._told: dict[str, tuple[str, list[Lag]]] = {}  # the last report of each running query

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        """Do nothing: no offsets are known yet (StreamingQueryListener)."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 (Spark's name)
        """Report the lag after a batch (StreamingQueryListener)."""
        progress = event.progress
        lags = compute_lags(progress)
        if not lags:
            return
        name = self._name or progress.name or str(progress.id)
        LOG.info(
            "reader '%s', batch %d: %d messages, %d still wait",
            name,
            progress.batchId,
            progress.numInputRows,
            sum(each.rows for each in lags),
        )
        self._told[str(progress.id)] = name, lags
        self._report(name, lags)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 (Spark's name)
        """Repeat the report, so that the broker does not drop it (StreamingQueryListener)."""
        if str(event.id) in self._told:
            self._report(*self._told[str(event.id)])

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 (Spark's name)
        """Delete the report: the query has ended (StreamingQueryListener)."""
        reader = self._told.pop(str(event.id), None)
        if reader is not None:
            self._try(lambda: self._server.delete("readers", self._server.vhost, reader[0]), reader[0])

    def _report(self, name: str, lags: list[Lag]) -> None:
        partitions = [
            {"queue": each.place.queue, "partition": each.place.number, "next": each.next, "end": each.end}
            for each in lags
        ]
        where = ("readers", self._server.vhost, name)
        self._try(lambda: self._server.put(*where, partitions=partitions), name)

    def _try(self, report: Any, name: str) -> None:
        try:
            report()
        except ServerError as error:
            if self._works:
                LOG.warning("the lag of reader '%s' was not reported: %s", name, error)
            self._works = False
        else:
            self._works = True


def watch(spark: SparkSession, options: Mapping[str, str]) -> LagListener:
    """Report the lag of the streaming queries of a session.

    `options`: those of their source. `spark.streams.removeListener` ends it. Raises OptionError.
    """
    choices = Choices(options)
    listener = LagListener(make_server(choices), choices.text("readerName"))
    spark.streams.addListener(listener)
    return listener


def compute_lags(progress: StreamingQueryProgress) -> list[Lag]:
    """Return the lag of each partition that the query reads of brokers; other sources are left out."""
    lags: list[Lag] = []
    for source in progress.sources:
        ends, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        if ends is not None and latest is not None:
            lags += [
                Lag(place, offset, latest.positions.get(place, offset))
                for place, offset in sorted(ends.positions.items())
            ]
    return lags


def _offsets(text: str) -> Offsets | None:
    try:
        document = json.loads(text)
        return parse_offsets(document) if isinstance(document, dict) else None
    except (ValueError, TypeError, PipelineError):  # another source's offsets, or none
        return None
