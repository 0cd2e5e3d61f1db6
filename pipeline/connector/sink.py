"""Rows as messages: confirmed by the broker before a task says that it is done.

A task that is done again publishes again. So each message says in its headers which query, batch, task and
row it is of: who receives it can tell what it has already.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pipeline.connector.outgoing import BATCH, PARTITION, QUERY, outgoing
from pipeline.connector.publisher import Publisher
from pipeline.connector.sink_options import SinkOptions


class Rows(WriterCommitMessage):
    """How many rows a task has written."""

    def __init__(self, count: int) -> None:
        self.count = count


class AmqpWriter(DataSourceArrowWriter):
    """Writes the rows of one query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._query = str(uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Rows:
        """Publish a task's rows (DataSourceArrowWriter). Raises ServerError."""
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        return _publish(self._options, iterator, {QUERY: self._query, BATCH: 0, PARTITION: partition})


class AmqpStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a streaming query, batch after batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Rows:
        """Publish a task's rows (DataSourceStreamArrowWriter). Raises ServerError."""
        return _publish(self._options, iterator, stamps_of_task())


def stamps_of_task() -> dict[str, Any]:
    """Which query, batch and task this process works for."""
    context = TaskContext.get()
    assert context is not None, "it is called in tasks"
    return {
        QUERY: str(context.getLocalProperty("sql.streaming.queryId")),
        BATCH: int(context.getLocalProperty("streaming.sql.batchId") or 0),
        PARTITION: context.partitionId(),
    }


def _publish(options: SinkOptions, batches: Iterator[pa.RecordBatch], stamps: dict[str, Any]) -> Rows:
    publisher = Publisher(options.server, options.mandatory, options.in_flight, options.confirm_timeout)
    count = 0
    try:
        for each in outgoing(options, batches, stamps):
            publisher.publish(each)
            count += 1
        publisher.finish()
    except BaseException:
        publisher.drop()
        raise
    return Rows(count)
