"""Rows as outgoing messages: destination, encoded properties, and body."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa

from pipeline.connector.options import SinkOptions
from pipeline.connector.schema import OCTETS, PLACES, TIMESTAMP
from pipeline.errors import PipelineError
from protocol.amqp091.properties import HEADERS
from protocol.amqp091.table import encode_table

QUERY: Final = "x-spark-query-id"
BATCH: Final = "x-spark-batch-id"
PARTITION: Final = "x-spark-partition"
ROW: Final = "x-spark-row"
_ROW: Final = bytes((len(ROW),)) + ROW.encode() + b"l"


class OutgoingMessage(NamedTuple):
    """A message."""

    exchange: str
    routing_key: str
    properties: bytes
    body: bytes


def encode_rows(
    options: SinkOptions, batches: Iterator[pa.RecordBatch], stamps: dict[str, Any]
) -> Iterator[OutgoingMessage]:
    """Yield the messages of a task, numbered in order. Raises PipelineError."""
    count = 0
    for batch in batches:
        yield from _of_batch(options, batch, stamps, count)
        count += batch.num_rows


def _of_batch(
    options: SinkOptions, batch: pa.RecordBatch, stamps: dict[str, Any], first: int
) -> Iterator[OutgoingMessage]:
    names = batch.schema.names
    values = batch.column("value")
    if not pa.types.is_binary(values.type):
        values = values.cast(pa.binary())
    exchanges = _find_names(batch, "exchange", options.exchange)
    keys = _find_names(batch, "routing_key", options.routing_key)
    property_rows = batch.column("properties").to_pylist() if "properties" in names else None
    headers = batch.column("headers").to_pylist() if "headers" in names else None
    fixed = Properties(options, stamps, {}, [])
    for row, value in enumerate(values):
        body = value.as_py()
        if body is None:
            raise PipelineError(f"row {first + row} of task {stamps[PARTITION]} has null for 'value'")
        properties = (
            fixed
            if property_rows is None and headers is None
            else Properties(
                options,
                stamps,
                property_rows[row] or {} if property_rows else {},
                headers[row] or [] if headers else [],
            )
        )
        yield OutgoingMessage(exchanges[row], keys[row], properties.of_row(first + row), body)


def _find_names(batch: pa.RecordBatch, name: str, option: str | None) -> list[str]:
    """Return a name for each row: the option takes precedence over the column. [Kafka's rule]"""
    if option is not None:
        return [option] * batch.num_rows
    names: list[str] = batch.column(name).to_pylist()
    if None in names:
        raise PipelineError(f"a row has null for '{name}', and option '{name}' is not set")
    return names


class Properties:
    """The property list of messages that differ only in values of their rows."""

    def __init__(
        self,
        options: SinkOptions,
        stamps: dict[str, Any],
        given: dict[str, Any],
        headers: list[tuple[str, str | None]],
    ) -> None:
        """Raises PipelineError: a value does not fit."""
        try:
            table = encode_table(dict(headers) | stamps)[4:] + _ROW
        except ValueError as error:
            raise PipelineError(f"column 'headers': {error}") from error
        values = {"delivery_mode": options.delivery_mode, "content_type": options.content_type}
        values |= {name: value for name, value in given.items() if value is not None}
        flags = 1 << (15 - HEADERS)
        before: list[bytes] = []
        after: list[bytes] = []
        for name, place in sorted(PLACES.items(), key=itemgetter(1)):
            if values.get(name) is not None:
                flags |= 1 << (15 - place)
                (before if place < HEADERS else after).append(_encoded(name, values[name]))
        size = (len(table) + 8).to_bytes(4, "big")
        self._before = flags.to_bytes(2, "big") + b"".join(before) + size + table
        self._after = b"".join(after)

    def of_row(self, row: int) -> bytes:
        """Return the headers of a row."""
        return self._before + row.to_bytes(8, "big") + self._after


def _encoded(name: str, value: Any) -> bytes:
    if name in OCTETS:
        if not 0 <= value <= 255:
            raise PipelineError(f"property '{name}' is {value}; it is a number from 0 to 255")
        return bytes((value,))
    if name == TIMESTAMP:
        assert isinstance(value, datetime), "the schema says so"
        seconds = int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
        return struct.pack(">q", seconds)
    raw = str(value).encode()
    if len(raw) > 255:
        raise PipelineError(f"property '{name}' has {len(raw)} bytes; it has 255 at most")
    return bytes((len(raw),)) + raw
