"""Publishes over one link in confirm mode, with many messages under way. [RabbitMQ publisher confirms]"""

from __future__ import annotations

import struct
from typing import Final

from pamqp import commands

from pipeline.connector.link import CHANNEL, Link, framed, method_of, refusal
from pipeline.connector.server import Server, ServerError
from protocol.amqp091 import constants as c

WRITE_BYTES: Final = 64 * 1024
_FRAME_HEAD: Final = struct.Struct(">BHI")
_CONTENT: Final = struct.Struct(">HHQ")
_SETTLE: Final = struct.Struct(">IQB")


class NotTakenError(ServerError):
    """The broker has not taken a message."""


class Publisher:
    """Raises ServerError everywhere: what has not been confirmed then may be there, or not."""

    def __init__(self, server: Server, mandatory: bool, in_flight: int, timeout: float) -> None:
        """`in_flight`: messages that are not confirmed yet, at most. `timeout`: seconds for a confirm."""
        self._link = Link(server)
        self._mandatory = mandatory
        self._most = in_flight
        self._timeout = timeout
        self._published = 0
        self._confirmed = 0  # all up to this one,
        self._early: set[int] = set()  # and these
        self._waiting: list[bytes] = []
        self._size = 0
        self._routes: dict[tuple[str, str], bytes] = {}
        try:
            self._link.call(commands.Confirm.Select())
        except BaseException:
            self._link.drop()
            raise

    def publish(self, exchange: str, routing_key: str, properties: bytes, body: bytes) -> None:
        """Publish a message. `properties`: as they stand in a content header."""
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
        self._published += 1
        self._size += len(body) + 200
        if self._size >= WRITE_BYTES:
            self.flush()
            if self._link.pending():
                self._take(0)
        while self._published - self._confirmed - len(self._early) >= self._most:
            self.flush()
            self._take(self._timeout)

    def flush(self) -> None:
        """Send what waits for more."""
        if self._waiting:
            self._link.send(b"".join(self._waiting))
            self._waiting = []
            self._size = 0

    def finish(self) -> None:
        """Wait until all is confirmed, and close."""
        self.flush()
        while self._confirmed < self._published:
            self._take(self._timeout)
        self._link.close()

    def drop(self) -> None:
        """Go, whatever has become of the messages."""
        self._link.drop()

    def _route(self, exchange: str, routing_key: str) -> bytes:
        for name, value in (("exchange", exchange), ("routing key", routing_key)):
            if len(value.encode()) > 255:
                raise NotTakenError(f"{name} '{value[:50]}...' has more than 255 bytes")
        made = framed(commands.Basic.Publish(0, exchange, routing_key, self._mandatory, False))
        if len(self._routes) >= 10_000:
            self._routes.clear()
        self._routes[exchange, routing_key] = made
        return made

    def _take(self, timeout: float) -> None:
        """Take what the broker says, and wait for it for a time."""
        found = self._link.frame(timeout)
        if found is None and timeout > 0:
            missing = self._published - self._confirmed - len(self._early)
            raise ServerError(f"{missing} messages are not confirmed within {self._timeout:g} s")
        while found is not None:
            if found[0] == c.FRAME_METHOD:
                self._heard(found[1])
            found = self._link.frame(0)

    def _heard(self, payload: bytes) -> None:
        """Take what a method says."""
        method = int.from_bytes(payload[:4], "big")
        if method in (c.BASIC_ACK, c.BASIC_NACK):
            _, tag, bits = _SETTLE.unpack_from(payload)
            if method == c.BASIC_NACK:
                raise NotTakenError(f"the broker has not taken message {tag} of this task (basic.nack)")
            self._settle(tag, bool(bits & 1))
            return
        said = method_of(payload)
        if isinstance(said, commands.Basic.Return):
            raise NotTakenError(
                f"no queue for exchange '{said.exchange}' and routing key '{said.routing_key}': "
                f"{said.reply_code} {said.reply_text}"
            )
        if not isinstance(said, commands.Connection.Blocked | commands.Connection.Unblocked):
            raise refusal(said)

    def _settle(self, tag: int, multiple: bool) -> None:
        early = self._early
        if multiple:
            self._confirmed = max(self._confirmed, tag)
            if early:
                self._early = early = {each for each in early if each > tag}
        else:
            early.add(tag)
        while self._confirmed + 1 in early:
            self._confirmed += 1
            early.discard(self._confirmed)
