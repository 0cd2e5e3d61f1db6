"""Look up a single header or property of a content, without decoding the rest. [amqp-0-9-1 4.2.5, 4.2.6]

A malformed header or property counts as absent. No function raises for bytes that a publisher sent.
"""

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from protocol.amqp091.content import HEADER_PREFIX_BYTES, behind_value
from protocol.amqp091.fields import Reader
from protocol.amqp091.properties import DELIVERY_MODE, HEADERS, PRIORITY, TIMESTAMP

NOWHERE: Final[i64] = -1
NO_INTEGER: Final[i64] = -0x7FFFFFFFFFFFFFFF

_LONG_STRING: Final = 0x53  # S
_SIGNED_8: Final = 0x62  # b
_UNSIGNED_8: Final = 0x42  # B
_SIGNED_16: Final = 0x73  # s
_UNSIGNED_16: Final = 0x75  # u
_SIGNED_32: Final = 0x49  # I
_UNSIGNED_32: Final = 0x69  # i
_SIGNED_64: Final = 0x6C  # l
_ALSO_64: Final = 0x4C  # L
_BOOLEAN: Final = 0x74  # t
_VOID: Final = 0x56  # V


def property_at(content: bytes, index: i64) -> i64:
    """Return the offset of the property with this index in a content; NOWHERE if absent.

    `content.scan` has checked the property list.
    """
    p: i64 = HEADER_PREFIX_BYTES
    flags = i64(read_i16_be(content, p))
    p += 2
    if not flags >> (15 - index) & 1:
        return NOWHERE
    for before in range(index):
        if flags >> (15 - before) & 1:
            if before == HEADERS:
                p += 4 + i64(read_i32_be(content, p))
            elif before in (DELIVERY_MODE, PRIORITY):
                p += 1
            elif before == TIMESTAMP:
                p += 8
            else:
                p += 1 + i64(content[p])
    return p


def header_at(content: bytes, name: bytes) -> i64:
    """Return the offset of the type of the last header with this name; NOWHERE if absent."""
    p = property_at(content, HEADERS)
    return header_in(content, p, name) if p >= 0 else NOWHERE


def header_in(content: bytes, p: i64, name: bytes) -> i64:
    """Return the offset of the type of the last header with this name, in the headers at offset `p`."""
    wanted: i64 = len(name)
    end: i64 = p + 4 + i64(read_i32_be(content, p))
    p += 4
    position: i64 = NOWHERE
    while p < end:
        size: i64 = content[p]
        value = p + 1 + size
        if value >= end:
            return NOWHERE
        if size == wanted and content[p + 1 : value] == name:
            position = value
        p = behind_value(content, value, end)
        if p < 0:
            return NOWHERE
    return position if p == end else NOWHERE


def string_octets(content: bytes, start: i64) -> bytes | None:
    """Return the octets of a long string at the offset from `header_at`; None: a value of another type."""
    if content[start] != _LONG_STRING:
        return None
    return content[start + 5 : start + 5 + i64(read_i32_be(content, start + 1))]


def header_value(content: bytes, start: i64) -> object:
    """Return the header's value at the offset from `header_at`; None also if the value does not decode."""
    kind: i64 = content[start]
    p = start + 1
    if kind == _LONG_STRING:
        raw = content[p + 4 : p + 4 + i64(read_i32_be(content, p))]
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw
    integer = integer_at(content, start)
    if integer != NO_INTEGER:
        return integer
    if kind == _BOOLEAN:
        return content[p] != 0
    if kind == _VOID:
        return None
    try:
        return Reader(content, start).value()
    except ValueError:
        return None


def integer_at(content: bytes, start: i64) -> i64:
    """Return the integer of any type at this offset; NO_INTEGER for other values.

    The integer may also be NO_INTEGER itself.
    """
    kind: i64 = content[start]
    p = start + 1
    if kind == _SIGNED_32:
        return i64(read_i32_be(content, p))
    if kind in (_SIGNED_64, _ALSO_64):
        return read_i64_be(content, p)
    if kind == _SIGNED_8:
        octet: i64 = content[p]
        return octet if octet < 0x80 else octet - 0x100
    if kind == _SIGNED_16:
        return i64(read_i16_be(content, p))
    if kind == _UNSIGNED_8:
        return content[p]
    if kind == _UNSIGNED_16:
        return i64(read_i16_be(content, p)) & 0xFFFF
    if kind == _UNSIGNED_32:
        return i64(read_i32_be(content, p)) & 0xFFFFFFFF
    return NO_INTEGER


def short_string(content: bytes, start: i64) -> bytes:
    """Return the short string at this offset."""
    return content[start + 1 : start + 1 + i64(content[start])]


def number(content: bytes, start: i64, index: i64) -> int:
    """Return the property `index` at this offset: delivery mode, priority or timestamp (seconds)."""
    return int.from_bytes(content[start : start + 8], "big") if index == TIMESTAMP else content[start]
