"""A publisher in confirm mode with many unconfirmed messages. [RabbitMQ publisher confirms]"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final

from pamqp import commands

from pipeline.connector.link import (
    CHANNEL,
    ConnectionLostError,
    Link,
    connect,
    encode_method,
    parse_method,
    unexpected_method_error,
)
from pipeline.connector.rows import OutgoingMessage
from pipeline.connector.server import Retry, Server, ServerError
from protocol.amqp091 import constants as c

WRITE_BYTES: Final = 64 * 1024
UNCONFIRMED_BYTES: Final = 64 * 2**20  # approximate limit of the bodies kept until they are confirmed
_FRAME_HEAD: Final = struct.Struct(">BHI")
_CONTENT: Final = struct.Struct(">HHQ")
_SETTLE: Final = struct.Struct(">IQB")


class MessageRejectedError(ServerError):
    """The broker has rejected a message."""


class Publisher:
    """Publishes messages and waits for their confirms.

    Unconfirmed messages are kept. If the connection breaks, the publisher connects again, for the server's
    `patience`, and publishes the unconfirmed messages again; the broker may then have them twice. All
    functions raise ServerError: unconfirmed messages may be lost or stored then.
    """

    def __init__(self, server: Server, mandatory: bool, in_flight: int, timeout: float) -> None:
        """`in_flight`: limit of unconfirmed messages. `timeout`: seconds for a confirm."""
        self._server = server
        self._mandatory = mandatory
        self._most = in_flight
        self._timeout = timeout
        self._retry = Retry(server)
        self._routes: dict[tuple[str, str], bytes] = {}
        self._unconfirmed: deque[OutgoingMessage] = deque()  # oldest first
        self._unconfirmed_bytes = 0
        self._confirmed = 0  # all delivery tags up to this one are confirmed,
        self._early: set[int] = set()  # and these
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._link = self._connected()

    def publish(self, message: OutgoingMessage) -> None:
        """Publish a message."""
        self._unconfirmed.append(message)
        self._unconfirmed_bytes += len(message.body)
        try:
            self._write(message)
        except ConnectionLostError as error:
            self._resume(error)
        while len(self._unconfirmed) - len(self._early) >= self._most or (
            self._unconfirmed_bytes >= UNCONFIRMED_BYTES and len(self._unconfirmed) > 1
        ):
            self._wait()

    def flush(self) -> None:
        """Send the buffered messages."""
        try:
            self._flush()
        except ConnectionLostError as error:
            self._resume(error)

    def finish(self) -> None:
        """Wait until all messages are confirmed, and close the connection."""
        while self._unconfirmed:
            self._wait()
        self._link.close()

    def drop(self) -> None:
        """Close the connection without waiting for confirms."""
        self._link.drop()

    def _connected(self) -> Link:
        link = connect(self._server)
        try:
            link.call(commands.Confirm.Select())
        except BaseException:
            link.drop()
            raise
        return link

    def _resume(self, error: ConnectionLostError) -> None:
        """Connect again and publish the unconfirmed messages. Raises `error` after the server's patience."""
        while True:
            self._link.drop()
            self._retry.fail(error)
            first = self._confirmed + 1
            left = [each for tag, each in enumerate(self._unconfirmed, first) if tag not in self._early]
            self._unconfirmed = deque(left)
            self._unconfirmed_bytes = sum(len(each.body) for each in left)
            self._confirmed = 0
            self._early = set()
            self._waiting, self._waiting_bytes = [], 0
            try:
                self._link = self._connected()
                for each in left:
                    self._write(each)
                self._flush()
            except ConnectionLostError as another:
                error = another
            else:
                return

    def _write(self, message: OutgoingMessage) -> None:
        exchange, routing_key, properties, body = message
        route = self._routes.get((exchange, routing_key)) or self._route(exchange, routing_key)
        head = _CONTENT.pack(c.CLASS_BASIC, 0, len(body)) + properties
        parts = self._waiting
        parts.append(route)
        parts.append(_FRAME_HEAD.pack(c.FRAME_HEADER, CHANNEL, len(head)))
        parts.append(head)
        step = self._link.frame_max - c.FRAME_OVERHEAD
        for start in range(0, len(body), step):
            piece = body[start : start + step] if len(body) > step else body
            parts.append(b"\xce" + _FRAME_HEAD.pack(c.FRAME_BODY, CHANNEL, len(piece)))
            parts.append(piece)
        parts.append(b"\xce")
        self._waiting_bytes += len(body) + 200
        if self._waiting_bytes >= WRITE_BYTES:
            self._flush()
            if self._link.pending():
                self._take(0)

    def _flush(self) -> None:
        if self._waiting:
            self._link.send(b"".join(self._waiting))
            self._waiting, self._waiting_bytes = [], 0

    def _wait(self) -> None:
        """Wait for a confirm."""
        try:
            self._flush()
            self._take(self._timeout)
        except ConnectionLostError as error:
            self._resume(error)

    def _route(self, exchange: str, routing_key: str) -> bytes:
        for name, value in (("exchange", exchange), ("routing key", routing_key)):
            if len(value.encode()) > 255:
                raise MessageRejectedError(f"{name} '{value[:50]}...' has more than 255 bytes")
        frame = encode_method(commands.Basic.Publish(0, exchange, routing_key, self._mandatory, False))
        if len(self._routes) >= 10_000:
            self._routes.clear()
        self._routes[exchange, routing_key] = frame
        return frame

    def _take(self, timeout: float) -> None:
        """Handle methods of the broker that arrive within `timeout` seconds."""
        frame = self._link.frame(timeout)
        if frame is None and timeout > 0:
            missing = len(self._unconfirmed) - len(self._early)
            raise ServerError(f"{missing} messages are not confirmed within {self._timeout:g} s")
        while frame is not None:
            if frame[0] == c.FRAME_METHOD:
                self._heard(frame[1])
            frame = self._link.frame(0)

    def _heard(self, payload: bytes) -> None:
        """Handle a method of the broker."""
        method = int.from_bytes(payload[:4], "big")
        if method in (c.BASIC_ACK, c.BASIC_NACK):
            _, tag, bits = _SETTLE.unpack_from(payload)
            if method == c.BASIC_NACK:
                raise MessageRejectedError(f"the broker has rejected message {tag} of this task (basic.nack)")
            self._settle(tag, bool(bits & 1))
            return
        parsed = parse_method(payload)
        if isinstance(parsed, commands.Basic.Return):
            raise MessageRejectedError(
                f"no queue for exchange '{parsed.exchange}' and routing key '{parsed.routing_key}': "
                f"{parsed.reply_code} {parsed.reply_text}"
            )
        if not isinstance(parsed, commands.Connection.Blocked | commands.Connection.Unblocked):
            raise unexpected_method_error(parsed)

    def _settle(self, tag: int, multiple: bool) -> None:
        self._retry.succeed()
        early = self._early
        if multiple:
            while self._confirmed < tag:
                self._forget()
        else:
            early.add(tag)
        while self._confirmed + 1 in early:
            self._forget()

    def _forget(self) -> None:
        """Drop confirmed messages, oldest first."""
        if not self._unconfirmed:
            raise ServerError("the broker has confirmed more messages than were published")
        self._confirmed += 1
        self._early.discard(self._confirmed)
        self._unconfirmed_bytes -= len(self._unconfirmed.popleft().body)
