"""Methods off the hot path, decoded into pamqp's classes; the broker's methods, encoded. [amqp-0-9-1 1]"""

import struct
from collections.abc import Mapping
from typing import Final

from pamqp import base, commands, encode

from protocol.amqp091 import constants as c
from protocol.amqp091.fields import Reader
from protocol.errors import COMMAND_INVALID, SYNTAX_ERROR, ProtocolError

_FRAME: Final = struct.Struct(">BHI")


class AccessRequest(base.Frame):
    """access.request of AMQP 0-9, which pamqp does not know; the arguments are ignored."""

    name = "Access.Request"


def decode_method(method: int, payload: bytes) -> base.Frame:
    """Return the method in `payload`, which begins with class and method id.

    Raises ProtocolError: COMMAND_INVALID for an unknown method, SYNTAX_ERROR for arguments that do not
    decode.
    """
    if method == c.ACCESS_REQUEST:
        return AccessRequest()
    kind: type[base.Frame] | None = commands.INDEX_MAPPING.get(method & 0xFFFFFFFF)
    if kind is None:
        class_id, method_id = method >> 16 & 0xFFFF, method & 0xFFFF
        raise ProtocolError(COMMAND_INVALID, f"unknown method {method_id} of class {class_id}", method)
    frame = kind()
    try:
        Reader(payload, 4).arguments(frame)
    except ValueError as e:
        raise ProtocolError(SYNTAX_ERROR, f"malformed arguments of {kind.name}: {e}", method) from e
    return frame


def short_string(text: str) -> bytes:
    """Return a short string; a text of more than 255 bytes is cut at a character."""
    raw = text.encode()
    if len(raw) > 255:
        raw = raw[:255].decode(errors="ignore").encode()
    return bytes([len(raw)]) + raw


def method_frame(channel: int, method: int, arguments: bytes = b"") -> bytes:
    """Return a whole method frame."""
    return b"".join(
        (
            _FRAME.pack(c.FRAME_METHOD, channel, len(arguments) + 4),
            struct.pack(">I", method),
            arguments,
            b"\xce",
        )
    )


def connection_start(properties: Mapping[str, object], mechanisms: str, locales: str = "en_US") -> bytes:
    """connection.start 0-9. [amqp-0-9-1 1.4.2.1]"""
    arguments = b"".join(
        (
            b"\x00\x09",
            encode.field_table(dict(properties)),  # type: ignore[arg-type]  # pamqp's recursive value type
            encode.long_string(mechanisms),
            encode.long_string(locales),
        )
    )
    return method_frame(0, c.CONNECTION_START, arguments)


def connection_secure(challenge: bytes) -> bytes:
    """connection.secure. [amqp-0-9-1 1.4.2.3]"""
    return method_frame(0, c.CONNECTION_SECURE, struct.pack(">I", len(challenge)) + challenge)


def connection_tune(channel_max: int, frame_max: int, heartbeat: int) -> bytes:
    """connection.tune; heartbeat in seconds. [amqp-0-9-1 1.4.2.5]"""
    return method_frame(0, c.CONNECTION_TUNE, struct.pack(">HIH", channel_max, frame_max, heartbeat))


def connection_open_ok() -> bytes:
    """connection.open-ok. [amqp-0-9-1 1.4.2.8]"""
    return method_frame(0, c.CONNECTION_OPEN_OK, b"\0")


def connection_blocked(reason: str) -> bytes:
    """connection.blocked. [RabbitMQ connection.blocked]"""
    return method_frame(0, c.CONNECTION_BLOCKED, short_string(reason))


def connection_unblocked() -> bytes:
    """connection.unblocked. [RabbitMQ connection.blocked]"""
    return method_frame(0, c.CONNECTION_UNBLOCKED)


def close(channel: int, code: int, text: str, method: int) -> bytes:
    """connection.close when `channel` is 0, else channel.close. [amqp-0-9-1 1.4.2.9, 1.5.2.5]"""
    arguments = struct.pack(">H", code) + short_string(text) + struct.pack(">I", method & 0xFFFFFFFF)
    return method_frame(channel, c.CHANNEL_CLOSE if channel else c.CONNECTION_CLOSE, arguments)


def channel_open_ok(channel: int) -> bytes:
    """channel.open-ok. [amqp-0-9-1 1.5.2.2]"""
    return method_frame(channel, c.CHANNEL_OPEN_OK, b"\0\0\0\0")


def channel_flow_ok(channel: int, active: bool) -> bytes:
    """channel.flow-ok. [amqp-0-9-1 1.5.2.4]"""
    return method_frame(channel, c.CHANNEL_FLOW_OK, bytes([active]))


def access_request_ok(channel: int) -> bytes:
    """access.request-ok with ticket 1. [RabbitMQ]"""
    return method_frame(channel, c.ACCESS_REQUEST_OK, b"\0\1")


def queue_declare_ok(channel: int, name: str, messages: int, consumers: int) -> bytes:
    """queue.declare-ok; `messages` is the ready count. [amqp-0-9-1 1.7.2.2]"""
    return method_frame(
        channel, c.QUEUE_DECLARE_OK, short_string(name) + struct.pack(">II", messages, consumers)
    )


def message_count(channel: int, method: int, count: int) -> bytes:
    """queue.purge-ok or queue.delete-ok. [amqp-0-9-1 1.7.2.8, 1.7.2.10]"""
    return method_frame(channel, method, struct.pack(">I", count))


def consumer_tag(channel: int, method: int, tag: str) -> bytes:
    """basic.consume-ok or basic.cancel-ok. [amqp-0-9-1 1.8.3.4, 1.8.3.6]"""
    return method_frame(channel, method, short_string(tag))


def basic_cancel(channel: int, tag: str) -> bytes:
    """basic.cancel to the client, nowait, for a deleted queue. [RabbitMQ consumer cancel notification]"""
    return method_frame(channel, c.BASIC_CANCEL, short_string(tag) + b"\x01")


def basic_return(channel: int, code: int, text: str, address: bytes) -> bytes:
    """basic.return; `address` is exchange and routing key, encoded. [amqp-0-9-1 1.8.3.8]"""
    return method_frame(channel, c.BASIC_RETURN, struct.pack(">H", code) + short_string(text) + address)


def basic_deliver(channel: int, consumer: str, tag: int, redelivered: bool, address: bytes) -> bytes:
    """basic.deliver; `address` is exchange and routing key, encoded. [amqp-0-9-1 1.8.3.9]"""
    arguments = short_string(consumer) + struct.pack(">QB", tag, redelivered) + address
    return method_frame(channel, c.BASIC_DELIVER, arguments)


def basic_get_ok(channel: int, tag: int, redelivered: bool, address: bytes, messages: int) -> bytes:
    """basic.get-ok; `messages` is the ready count after this message. [amqp-0-9-1 1.8.3.11]"""
    arguments = struct.pack(">QB", tag, redelivered) + address + struct.pack(">I", messages)
    return method_frame(channel, c.BASIC_GET_OK, arguments)


def settle(channel: int, method: int, tag: int, bits: int) -> bytes:
    """basic.ack or basic.nack to a publisher. [amqp-0-9-1 1.8.3.13, RabbitMQ confirms]"""
    return method_frame(channel, method, struct.pack(">QB", tag, bits))
