"""The offsets of messages in their streams, as consumers receive them: headers or annotations.

x-stream-offset, and x-stream-partition if the stream has several partitions. [RabbitMQ streams]
"""

from typing import Final

from protocol.amqp091.content import HEADER_PREFIX_BYTES
from protocol.amqp091.properties import Properties
from protocol.amqp10.annotations import with_annotations
from protocol.amqp10.sections import scan_front
from protocol.streams.chunk import SECTIONS
from protocol.streams.rows import content_of

OFFSET: Final = b"x-stream-offset"
PARTITION: Final = b"x-stream-partition"
_CONTENT_TYPE: Final = 1 << 15
_CONTENT_ENCODING: Final = 1 << 14
_HEADERS: Final = 1 << 13


def content_at(offset: int, partition: int, kind: int, properties: bytes, payload: bytes) -> bytes:
    """Return the content of a row (`content_of`) with its offset, in place of an offset that it had before.

    `partition`: below 0 for none.
    """
    if kind == SECTIONS:
        content = content_of(kind, properties, payload)
        keys, values = [OFFSET], [_ulong(offset)]
        if partition >= 0:
            keys.append(PARTITION)
            values.append(_ulong(partition))
        return with_annotations(content, scan_front(content), [], keys, values)
    if OFFSET in properties or PARTITION in properties:
        changed = Properties(content_of(kind, properties, b""))
        changed.set_fields([field for field in changed.fields() if field[0] not in (OFFSET, PARTITION)])
        content = changed.content()
        properties = content[HEADER_PREFIX_BYTES : len(content) - 1]
    fields = _field(OFFSET, offset)
    if partition >= 0:
        fields += _field(PARTITION, partition)
    return content_of(kind, _with_fields(properties, fields), payload)


def _field(name: bytes, value: int) -> bytes:
    return bytes([len(name)]) + name + b"l" + value.to_bytes(8, "big")


def _with_fields(properties: bytes, fields: bytes) -> bytes:
    """Return a property list with more fields at the end of its headers. [amqp-0-9-1 4.2.6.1]"""
    flags = int.from_bytes(properties[:2], "big")
    position = 2
    for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if flags & flag:
            position += 1 + properties[position]
    if not flags & _HEADERS:
        flags |= _HEADERS
        before = flags.to_bytes(2, "big") + properties[2:position]
        return before + len(fields).to_bytes(4, "big") + fields + properties[position:]
    length = int.from_bytes(properties[position : position + 4], "big")
    start = position + 4
    end = start + length
    size = (length + len(fields)).to_bytes(4, "big")
    return properties[:position] + size + properties[start:end] + fields + properties[end:]


def _ulong(offset: int) -> bytes:
    return b"\x80" + offset.to_bytes(8, "big")
