"""Payloads of unknown message formats, stored as messages of format 0. [amqp-1.0 2.8.11]

Such a payload becomes a data section after an annotation with its format. Whether the payload is durable
cannot be read, so it counts as durable.
"""

from typing import Final

from mypy_extensions import i64

from protocol.amqp10.annotations import annotations_section
from protocol.amqp10.constructors import BINARY8, BINARY32, NONE, SMALL_ULONG, SYMBOL8, UINT
from protocol.amqp10.descriptors import DATA
from protocol.amqp10.encoding import encode
from protocol.amqp10.entries import Entries
from protocol.amqp10.headers import header_section
from protocol.amqp10.sections import Layout
from protocol.conversion.names import BASIC_FORMAT, BASIC_TYPE, ENCODED_BODY

_DATA: Final = bytes((0, SMALL_ULONG, DATA))
_NAMES: Final = [BASIC_FORMAT, BASIC_TYPE]
_TYPE: Final = encode(ENCODED_BODY.decode())


def enclose_payload(payload: bytes, message_format: i64) -> bytes:
    """Return the sections in which a payload of this format, which is not 0, is stored."""
    number: int = message_format
    annotations = [bytes((UINT,)) + number.to_bytes(4, "big"), _TYPE]
    return b"".join(
        [
            header_section(True, NONE, NONE, False, 0),
            annotations_section(b"", 0, 0, _NAMES, annotations),
            _DATA,
            encode(payload),
        ]
    )


def format_of(content: bytes, layout: Layout) -> i64:
    """Return the format of the payload that `enclose_payload` has stored; 0 for an ordinary message.

    The message must have annotations.
    """
    if content.find(BASIC_FORMAT, layout.annotations, layout.annotations_end) < 0:
        return 0
    entries = Entries(content, layout.annotations, layout.annotations_end, SYMBOL8)
    while entries.advance():
        p = entries.key_end
        if entries.name() == BASIC_FORMAT and content[p] == UINT:
            message_format: int = int.from_bytes(content[p + 1 : p + 5], "big")
            return message_format if _start(content, layout.annotations_end) != NONE else 0
    return 0


def payload_of(content: bytes, layout: Layout) -> bytes:
    """Return the payload that `enclose_payload` has stored, if `format_of` is not 0."""
    return content[_start(content, layout.annotations_end) :]


def _start(content: bytes, p: i64) -> i64:
    """Return the offset of the payload in the data section at `p`; NONE if this is not the last section."""
    if content[p : p + 3] != _DATA or p + 5 > len(content):
        return NONE
    if content[p + 3] == BINARY8:
        start, size = p + 5, int(content[p + 4])
    elif content[p + 3] == BINARY32:
        start, size = p + 8, int.from_bytes(content[p + 4 : p + 8], "big")
    else:
        return NONE
    return start if start + size == len(content) else NONE
