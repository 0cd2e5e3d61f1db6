"""The sink's writers: messages confirmed before a task ends, or batches published exactly once.

At least once: a repeated task publishes again. So each message has headers with its query, batch, task and
row, and its receiver can detect duplicates.

Exactly once: each task writes its rows into an attempt, which no consumer sees. The driver commits the
attempts that count, and the broker publishes them as one decision. [amqpd, staged sinks:
broker/admin/api/sinks.py]
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pipeline.connector.options import SinkOptions
from pipeline.connector.publisher import Publisher
from pipeline.connector.rows import BATCH, PARTITION, QUERY, OutgoingMessage, encode_rows
from pipeline.connector.server import RefusedError, Server, ServerError
from pipeline.errors import PipelineError
from protocol.streams.chunk import BASIC, ChunkWriter

CHUNK_ROWS: Final = 1000  # as many as the broker publishes in one step
CHUNK_BYTES: Final = 1024 * 1024
REQUEST_BYTES: Final = 4 * 2**20
ROW_BYTES: Final = 8 * 2**20 - 1024  # the broker's limit for a request, less the overhead of a chunk
WAIT_S: Final = 60  # the broker's longest wait
LEAST_S: Final = 1  # minimum for an answer
SHORT: Final = 503  # the broker is short of memory or disk space
PAUSE_S: Final = 0.5


class Rows(WriterCommitMessage):
    """The number of rows that a task has written."""

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
    """Return the query, the batch and the task that this process works for."""
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
        for each in encode_rows(options, batches, stamps):
            publisher.publish(each)
            count += 1
        publisher.finish()
    except BaseException:
        publisher.drop()
        raise
    return Rows(count)


class AttemptMade(WriterCommitMessage):
    """The rows that a task has written; no `attempt`: the batch was committed before. `query`: Spark's id."""

    def __init__(self, query: str, epoch: int, partition: int, attempt: int | None, rows: int) -> None:
        self.query = query
        self.epoch = epoch
        self.partition = partition
        self.attempt = attempt
        self.rows = rows


class AmqpStagedWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a streaming query, each batch once.

    Spark sends one writer to its tasks, and makes another one for each commit. The first attaches to the sink
    when it is sent. From then on another driver of the same name is fenced. The other writers get the epoch
    from the tasks.
    """

    def __init__(self, options: SinkOptions, name: str) -> None:
        self._options = options
        self._name = name
        self._epoch = 0
        self._last = -1

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that tasks get. Raises ServerError."""
        if not self._epoch:  # a row may be sent more than once
            sink = self._post()
            self._epoch, self._last = sink["epoch"], sink["last_batch"]
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> AttemptMade:
        """Write a task's rows (DataSourceStreamArrowWriter). Raises ServerError, PipelineError."""
        stamps = stamps_of_task()
        query, batch, partition = stamps[QUERY], stamps[BATCH], stamps[PARTITION]
        opened = self._post("attempts", epoch=self._epoch, batch=batch, partition=partition, checkpoint=query)
        attempt: int | None = opened["attempt"]
        if attempt is None and batch < self._last:
            raise PipelineError(
                f"sink '{self._name}' has published batch {self._last} already, and this query is at "
                f"{batch}: its checkpoint is new or older, and needs another 'sinkName'"
            )
        if attempt is None:
            return AttemptMade(query, self._epoch, partition, None, 0)
        where = (*self._where(), "attempts", str(attempt), "rows")
        rows = Attempt(self._options.server, where, self._options.confirm_timeout)
        for each in encode_rows(self._options, iterator, stamps):
            rows.add(each)
        rows.flush()
        return AttemptMade(query, self._epoch, partition, attempt, rows.count)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's)
        """Publish the batch, unless it is published (DataSourceStreamArrowWriter). Raises ServerError."""
        attempts = _made(messages)
        fields = {
            "epoch": attempts[0].epoch,
            "batch": batchId,
            "attempts": [each.attempt for each in attempts if each.attempt is not None],
            "rows": sum(each.rows for each in attempts),
            "mandatory": self._options.mandatory,
            "checkpoint": attempts[0].query,
        }
        left = self._options.confirm_timeout
        until: float | None = None
        while (answer := self._commit(left, fields))["moving_rows"]:
            if until is None:  # the wait for an unreachable broker does not count
                until = time.monotonic() + left - self._waited(left)
            left = until - time.monotonic() - PAUSE_S
            if left < LEAST_S:
                raise ServerError(
                    f"batch {batchId} of sink '{self._name}' is committed, but {answer['moving_rows']} rows "
                    f"are not published yet: {answer.get('blocked') or 'the broker is publishing them'}"
                )
            time.sleep(PAUSE_S)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's)
        """Drop the attempts of a batch (DataSourceStreamArrowWriter). Raises ServerError."""
        attempts = _made(messages)
        if attempts:  # otherwise the next commit drops them
            self._post("abort", epoch=attempts[0].epoch, batch=batchId)

    def _commit(self, seconds: float, fields: dict[str, Any]) -> Any:
        """Send a commit that takes `seconds` at most, unless the broker does not answer."""
        server = self._options.server
        patient = replace(server, timeout=min(server.timeout, max(seconds, LEAST_S)))
        return self._post("commit", server=patient, **fields, wait=self._waited(seconds))

    def _waited(self, seconds: float) -> int:
        """Return the seconds that the broker waits: only a part, as it answers within `seconds`."""
        return int(min(seconds, self._options.server.timeout, 2 * WAIT_S) / 2)

    def _post(self, *path: str, server: Server | None = None, **fields: object) -> Any:
        try:
            return (server or self._options.server).post(*self._where(), *path, **fields)
        except RefusedError as error:
            if error.status == 409:
                raise PipelineError(f"sink '{self._name}': {error}") from error
            raise

    def _where(self) -> tuple[str, ...]:
        return "staged-sinks", self._options.server.vhost, self._name


def _made(messages: list[WriterCommitMessage | None]) -> list[AttemptMade]:
    """Return the attempts that tasks have written, in the order of their partitions."""
    attempts = [each for each in messages if isinstance(each, AttemptMade)]
    return sorted(attempts, key=lambda each: each.partition)


class Attempt:
    """Rows that are sent to an attempt. `count`: number of rows, with those being sent.

    Raises ServerError.
    """

    def __init__(self, server: Server, where: tuple[str, ...], patience: float) -> None:
        """`patience`: seconds to wait for a broker that is short of memory or disk space."""
        self.count = 0
        self._patience = patience
        self._server = server
        self._where = where
        self._there = 0
        self._writer = ChunkWriter()
        self._chunks: list[bytes] = []
        self._size = 0

    def add(self, message: OutgoingMessage) -> None:
        """Add a row."""
        writer = self._writer
        exchange, key = message.exchange.encode(), message.routing_key.encode()
        for name, value in (("exchange", exchange), ("routing key", key)):
            if len(value) > 255:
                raise PipelineError(
                    f"{name} '{value[:50].decode(errors='replace')}...' has more than 255 bytes"
                )
        size = len(exchange) + len(key) + len(message.properties) + len(message.body)
        if size > ROW_BYTES:
            raise PipelineError(
                f"row {self.count} of a task has {size} bytes; it has {ROW_BYTES} at most with exactly-once"
            )
        if self._size + writer.size + size > REQUEST_BYTES:
            self.flush()
        writer.add(0, BASIC, exchange, key, message.properties, message.body)
        self.count += 1
        if writer.rows >= CHUNK_ROWS or writer.size >= CHUNK_BYTES:
            self._cut()

    def flush(self) -> None:
        """Send all rows, and return when they are on the broker's disk."""
        if self._writer.rows:
            self._cut()
        if self._chunks:
            self._there = self._sent(b"".join(self._chunks))
            self._chunks = []
            self._size = 0

    def _sent(self, data: bytes) -> int:
        """Send rows until the broker accepts them; return the attempt's number of rows then."""
        until = time.monotonic() + self._patience
        while True:
            try:
                answer = self._server.send(*self._where, data=data, **{"from": self._there})
            except RefusedError as error:
                if error.status != SHORT or time.monotonic() > until:
                    raise
                time.sleep(PAUSE_S)
            else:
                return int(answer["rows"])

    def _cut(self) -> None:
        chunk = self._writer.take(0, 0)
        self._chunks.append(chunk)
        self._size += len(chunk)
