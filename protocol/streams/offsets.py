"""The offset of a message in its stream, as consumers are told it: a header, or an annotation.

[RabbitMQ streams]
"""

from typing import Final

from protocol.amqp091.content import HEADER_PREFIX_BYTES
from protocol.amqp091.properties import Properties
from protocol.amqp10.annotations import with_annotations
from protocol.amqp10.sections import scan_front
from protocol.streams.chunk import SECTIONS
from protocol.streams.rows import content_of

OFFSET: Final = b"x-stream-offset"
_FIELD: Final = bytes([len(OFFSET)]) + OFFSET + b"l"
_CONTENT_TYPE: Final = 1 << 15
_CONTENT_ENCODING: Final = 1 << 14
_HEADERS: Final = 1 << 13


def content_at(offset: int, kind: int, properties: bytes, payload: bytes) -> bytes:
    """The content of a row (`content_of`) that says its offset. What said so before is replaced."""
    if kind == SECTIONS:
        content = content_of(kind, properties, payload)
        return with_annotations(content, scan_front(content), [], [OFFSET], [_ulong(offset)])
    if OFFSET in properties:
        changed = Properties(content_of(kind, properties, b""))
        changed.set_fields([field for field in changed.fields() if field[0] != OFFSET])
        content = changed.content()
        properties = content[HEADER_PREFIX_BYTES : len(content) - 1]
    return content_of(kind, _with_field(properties, _FIELD + offset.to_bytes(8, "big")), payload)


def _with_field(properties: bytes, field: bytes) -> bytes:
    """A property list with one field more at the end of its headers. [amqp-0-9-1 4.2.6.1]"""
    flags = int.from_bytes(properties[:2], "big")
    position = 2
    for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if flags & flag:
            position += 1 + properties[position]
    if not flags & _HEADERS:
        flags |= _HEADERS
        before = flags.to_bytes(2, "big") + properties[2:position]
        return before + len(field).to_bytes(4, "big") + field + properties[position:]
    length = int.from_bytes(properties[position : position + 4], "big")
    start = position + 4
    end = start + length
    size = (length + len(field)).to_bytes(4, "big")
    return properties[:position] + size + properties[start:end] + field + properties[end:]


def _ulong(offset: int) -> bytes:
    return b"\x80" + offset.to_bytes(8, "big")
