"""Messages as rows of a stream, and back. A row keeps the message as its publisher sent it."""

from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i64

from protocol.amqp091.constants import CLASS_BASIC, FRAME_END, FRAME_HEADER, FRAME_MIN_SIZE
from protocol.amqp091.content import HEADER_PREFIX_BYTES, body, header_frame_bytes, write_body
from protocol.amqp10.constructors import NONE
from protocol.amqp10.sections import is_sections, scan
from protocol.streams.chunk import BASIC, SECTIONS

CHANNEL: Final = 1  # used by most clients, which get these frames unchanged


def columns_of(content: bytes) -> tuple[int, bytes, bytes]:
    """Return kind, properties and body of a stored content. Raises DecodeError."""
    if is_sections(content):
        start = scan(content, 0, len(content)).body
        if start == NONE:
            return SECTIONS, content, b""
        return SECTIONS, content[:start], content[start:]
    end: i64 = header_frame_bytes(content) - 1
    return BASIC, content[HEADER_PREFIX_BYTES:end], body(content)


def content_of(kind: int, properties: bytes, payload: bytes) -> bytes:
    """Return the content with these columns: sections, or a content header and body frames of channel 1."""
    if kind == SECTIONS:
        return properties + payload
    out = BytesWriter()
    out.append(FRAME_HEADER)
    out.append(0)
    out.append(CHANNEL)
    write_i32_be(out, HEADER_PREFIX_BYTES - 7 + len(properties))
    write_i32_be(out, CLASS_BASIC << 16)
    write_i64_be(out, len(payload))
    out.write(properties)
    out.append(FRAME_END)
    write_body(out, payload, CHANNEL, FRAME_MIN_SIZE)
    return out.getvalue()
