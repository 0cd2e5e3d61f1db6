"""Streams of any broker that offers streams over AMQP 0-9-1. Consuming finds their offsets.

[RabbitMQ streams, "Consuming"]
"""

from __future__ import annotations

import struct
import time
from collections.abc import Generator, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

import pyarrow as pa
from pamqp import base, commands, common

from pipeline.connector.choices import OptionError
from pipeline.connector.columns import Columns
from pipeline.connector.link import (
    ConnectionLostError,
    Link,
    connect,
    encode_method,
    parse_method,
    unexpected_method_error,
)
from pipeline.connector.messages import Details, Message
from pipeline.connector.offsets import NOTHING, Offsets, Partition, Place, Range
from pipeline.connector.options import SourceOptions
from pipeline.connector.server import Retry, Server, ServerError
from pipeline.connector.streams import DataLossError
from protocol.amqp091 import constants as c
from protocol.amqp091.properties import Properties
from protocol.streams.chunk import BASIC
from protocol.streams.rows import content_of

PREFETCH: Final = 5000
ROWS: Final = 5000  # rows of a batch, unless the byte limit is reached first
QUIET_S: Final = 0.25  # a stream without a further message for so long has been read to its end
LOOK_S: Final = 1.0  # limit of this look-up; also the wait for messages that may not exist
EMPTY_S: Final = 5.0  # a stream without any message for so long is empty
PART_S: Final = 30.0  # maximum wait for the rest of a message
OFFSET: Final = "x-stream-offset"
PARTITION: Final = "x-stream-partition"
OURS: Final = "amqpd"  # the broker whose streams may have partitions; a header names the partition
_OFFSET_FIELD: Final = bytes((len(OFFSET),)) + OFFSET.encode() + b"l"
_BODY_SIZE: Final = struct.Struct(">4xQ")


class Delivery(NamedTuple):
    """A delivery: its offset in the stream, and the message's property list and body."""

    offset: int
    deliver: commands.Basic.Deliver
    properties: bytes
    body: bytes


class ForeignStreams:
    """The streams that options name, in any broker, which are read over AMQP."""

    def __init__(self, options: SourceOptions) -> None:
        """Raises OptionError: the options select streams in a way that only amqpd supports."""
        if options.pattern is not None:
            raise OptionError(
                "option 'subscribePattern' is not for transport 'amqp', which cannot list streams"
            )
        if options.limits.size is not None:
            raise OptionError(
                "option 'maxBytesPerTrigger' is not for transport 'amqp', which cannot tell sizes"
            )
        if options.reader is not None:
            raise OptionError("option 'readerName' is not for transport 'amqp', which keeps no offsets")
        for place in options.assigned:
            if place.number:
                raise OptionError(
                    f"'{place.queue}' has one partition with transport 'amqp': name the streams themselves"
                )
        self._server = options.server
        self._names = options.names or tuple(place.queue for place in options.assigned)
        self._patience: dict[str, float] = {}  # wait for a stream's first message, from the last lookup

    def partitions(self, known: Mapping[Place, int] = NOTHING) -> list[Partition]:
        """Return the streams, each as one partition. Raises ServerError.

        `known`: offsets that they had reached; earlier messages are awaited with the timeout of an answer.
        """
        return [self._partition(name, known.get(Place(name, 0), 0)) for name in self._names]

    def at_time(self, place: Place, moment: int) -> int:
        """Return the offset where delivery for a time begins, perhaps with earlier messages. [RabbitMQ]"""
        offset = self._first_of(place.queue, datetime.fromtimestamp(moment / 1e6, UTC), EMPTY_S)
        return 1 << 62 if offset is None else offset

    def reach(self, place: Place, start: int, size: int) -> int:
        """Raise OptionError: the sizes of messages are unknown. The options were checked before."""
        raise OptionError(f"the sizes of messages of '{place.queue}' are not known")

    def keep(self, reader: str, offsets: Offsets) -> None:
        """Raise OptionError: no offsets are stored. The options were checked before."""
        raise OptionError(f"where '{reader}' is, is not kept")

    def _partition(self, name: str, known: int) -> Partition:
        """Return the partition with its bounds. A slow stream is not taken for an empty one."""
        place, timeout = Place(name, 0), self._server.timeout
        count = self._count_of(name)
        patience = timeout if count or known > 0 else self._patience.get(name, EMPTY_S)
        first = self._first_of(name, "first", patience)
        self._patience[name] = QUIET_S if first is None else timeout
        if first is not None:
            return Partition(place, "", first, self._next_of(name, known, first + count))
        if count:
            raise ServerError(f"stream '{name}' has {count} messages, and gave none within {timeout:g} s")
        return Partition(place, "", 0, 0)

    def _count_of(self, name: str) -> int:
        """Return the number of messages of a stream, if the broker reports it.

        RabbitMQ reports 0 or an outdated number. Retention may have removed messages since.
        """
        link = connect(self._server)
        try:
            answer = link.call(commands.Queue.Declare(queue=name, passive=True))
        finally:
            link.drop()
        assert isinstance(answer, commands.Queue.DeclareOk), "nothing else was waited for"
        return answer.message_count or 0

    def _first_of(self, name: str, spec: common.FieldValue, patience: float) -> int | None:
        consumer = _Consumer(connect(self._server), name, spec, 1)
        try:
            for each in consumer.deliveries(patience):
                return each.offset
        finally:
            consumer.close()
        return None

    def _next_of(self, name: str, known: int, reported: int) -> int:
        """Return the offset behind the last message of a stream with messages.

        The first message, and messages up to `known`, are awaited with the timeout of an answer; `reported`
        may be wrong.
        """
        timeout = self._server.timeout
        consumer = _Consumer(connect(self._server), name, "last", PREFETCH)
        try:
            behind = consumer.followed(0, max(known, 1), timeout, time.monotonic() + timeout)
            until = time.monotonic() + LOOK_S
            behind = consumer.followed(behind, reported, LOOK_S, until)
            behind = consumer.followed(behind, 1 << 62, QUIET_S, until)
        finally:
            consumer.close()
        if not behind:
            raise ServerError(f"stream '{name}' gave no message within {timeout:g} s")
        return behind


def consume_range(options: SourceOptions, columns: Columns, wanted: Range) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range; without `failOnDataLoss` as many as arrive.

    Raises DataLossError, ServerError.
    """
    details = Details(options.properties, options.headers)
    deliveries = _resume_deliveries(options.server, wanted)
    messages: list[Message] = []
    offsets: list[int] = []
    size = 0
    following = wanted.start
    try:
        for each in deliveries:
            if each.offset > following and options.fail_on_loss:
                raise DataLossError(
                    f"stream '{wanted.place.queue}' has no message {following}, but {each.offset}"
                )
            if each.offset >= wanted.end:
                break
            following = each.offset + 1
            messages.append(_message(each, details))
            offsets.append(each.offset)
            size += len(each.body)
            if len(messages) >= ROWS or size >= options.fetch_bytes:
                yield columns.batch_of(messages, offsets)
                messages, offsets, size = [], [], 0
            if following == wanted.end:
                break
        else:
            if options.fail_on_loss:
                seconds = options.server.timeout
                raise ServerError(
                    f"stream '{wanted.place.queue}' gave no message {following} within {seconds:g} s"
                )
        if messages:
            yield columns.batch_of(messages, offsets)
    finally:
        deliveries.close()


def _resume_deliveries(server: Server, wanted: Range) -> Generator[Delivery, None, None]:
    """Yield the deliveries from a range's start on, until the stream is silent.

    A broken connection is opened again. Raises ServerError.
    """
    following = wanted.start
    retry = Retry(server)
    while True:
        consumer: _Consumer | None = None
        try:
            consumer = _Consumer(connect(server), wanted.place.queue, following, PREFETCH)
            for each in consumer.deliveries(server.timeout):
                if each.offset >= following:
                    following = each.offset + 1
                    retry.succeed()
                    yield each
            return
        except ConnectionLostError as error:
            retry.fail(error)
        finally:
            if consumer is not None:
                consumer.close()


def _message(each: Delivery, details: Details) -> Message:
    message = details.read(BASIC, each.properties, each.body)
    headers = message.headers and {name: value for name, value in message.headers.items() if name != OFFSET}
    deliver = each.deliver
    return message._replace(
        headers=headers,
        exchange=deliver.exchange or "",
        routing_key=deliver.routing_key or "",
        redelivered=bool(deliver.redelivered),
    )


class _Consumer:
    """Consumes a stream from an offset on, over its own connection."""

    def __init__(self, link: Link, queue: str, spec: common.FieldValue, prefetch: int) -> None:
        self._link = link
        self._queue = queue
        self._prefetch = prefetch
        self._unsettled = 0
        try:
            link.call(commands.Basic.Qos(0, prefetch, False))
            arguments: common.FieldTable = {OFFSET: spec}
            link.call(commands.Basic.Consume(0, queue, "", False, False, False, False, arguments))
        except BaseException:
            link.drop()
            raise

    def close(self) -> None:
        """Close the connection without reading the deliveries that have arrived."""
        self._link.drop()

    def deliveries(self, quiet: float) -> Iterator[Delivery]:
        """Yield deliveries until none has come for `quiet` seconds. Raises ServerError."""
        while (each := self._delivery(quiet)) is not None:
            self._unsettled += 1
            if self._unsettled * 2 >= self._prefetch:
                tag = each.deliver.delivery_tag
                self._link.send(encode_method(commands.Basic.Ack(tag or 0, True)))
                self._unsettled = 0
            yield each

    def followed(self, behind: int, goal: int, quiet: float, until: float) -> int:
        """Return the offset behind the last delivery.

        Stops at the offset `goal`, at the time `until`, or after `quiet` seconds without a delivery.
        """
        if behind < goal:
            for each in self.deliveries(quiet):
                behind = each.offset + 1
                if behind >= goal or time.monotonic() > until:
                    break
        return behind

    def _delivery(self, quiet: float) -> Delivery | None:
        method = self._method(quiet)
        if method is None:
            return None
        if not isinstance(method, commands.Basic.Deliver):
            raise unexpected_method_error(method)
        header = self._part(c.FRAME_HEADER)
        (size,) = _BODY_SIZE.unpack_from(header)
        parts: list[bytes] = []
        while size > 0:
            parts.append(self._part(c.FRAME_BODY))
            size -= len(parts[-1])
        properties = header[12:]
        if self._link.product == OURS and _is_of_partition(properties):
            raise ServerError(
                f"'{self._queue}' has partitions, whose messages transport 'amqp' cannot tell apart: "
                "transport 'chunk' reads them"
            )
        return Delivery(_offset(properties), method, properties, b"".join(parts))

    def _method(self, quiet: float) -> base.Frame | None:
        while (frame := self._link.frame(quiet)) is not None:
            kind, payload = frame
            if kind == c.FRAME_METHOD:
                return parse_method(payload)
            if kind != c.FRAME_HEARTBEAT:
                raise ServerError(f"the broker sent an unexpected frame of type {kind}")
        return None

    def _part(self, kind: int) -> bytes:
        """Return the next frame of an incomplete message."""
        frame = self._link.frame(PART_S)
        if frame is None or frame[0] != kind:
            raise ServerError("the broker began a message and did not end it")
        return frame[1]


def _is_of_partition(properties: bytes) -> bool:
    return PARTITION.encode() in properties and PARTITION in _headers(properties)


def _headers(properties: bytes) -> dict[str, object]:
    return Properties(content_of(BASIC, properties, b"")).headers()


def _offset(properties: bytes) -> int:
    """Return the offset in the headers of a delivery.

    Raises ServerError: no offset, so the queue is no stream.
    """
    at = properties.find(_OFFSET_FIELD)
    if at >= 0:
        start = at + len(_OFFSET_FIELD)
        return int.from_bytes(properties[start : start + 8], "big")
    offset = _headers(properties).get(OFFSET)
    if not isinstance(offset, int):
        raise ServerError("the broker delivers messages without offsets: the queue is no stream")
    return offset
