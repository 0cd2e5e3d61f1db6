"""Values of AMQP 1.0 as field values of AMQP 0-9-1. [amqp-1.0 types 1.6, amqp-0-9-1 4.2.5.5]"""

from math import isfinite
from typing import Final
from uuid import UUID

from librt.strings import read_f32_be, read_f64_be, read_i64_be
from mypy_extensions import i64

from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import DEPTH_MAX, LIST32, truncated_error, undefined_error, value_end
from protocol.amqp10.entries import NAMED, Entries
from protocol.conversion.octets import check_text, unsigned32

SECONDS_MAX: Final = 253402300799  # the last second of the year 9999: clients fail at later times
SHORT_BYTES_MAX: Final = 255

_COPIED: Final[dict[int, bytes]] = {
    0x40: b"V",
    0x41: b"t\x01",
    0x42: b"t\x00",
    0x43: b"i" + bytes(4),
    0x44: b"l" + bytes(8),
    0x45: b"A" + bytes(4),
    0x50: b"B",
    0x51: b"b",
    0x52: b"i" + bytes(3),
    0x53: b"l" + bytes(7),
    0x60: b"u",
    0x61: b"s",
    0x70: b"i",
    0x71: b"I",
    0x81: b"l",
}
"""The prefixes of field values whose further bytes are those after these constructors."""

_WIDE: Final = frozenset(bytes.fromhex("505152535455566061707172737480818283849498a0a1a3b0b1b3c0c1d0d1e0f0"))
"""The constructors of values that have a width."""


def _prefixes() -> list[bytes | None]:
    return [_COPIED.get(code) for code in range(256)]


_PREFIXES: Final[list[bytes | None]] = _prefixes()


def field_value(data: bytes, p: i64, end: i64) -> bytes | None:
    """Return the field value for the value from `p` to `end`; None if there is none, or it does not decode.

    Decimals, described values, NaN, infinities, and times at which clients fail have no counterpart.
    """
    if p >= end:
        return None
    try:
        return _converted(data[p], data, p + 1, end, 0)
    except DecodeError:
        return None


def long_string(raw: bytes) -> bytes:
    """Return the field value of a text, as a long string."""
    return b"S" + len(raw).to_bytes(4, "big") + raw


def byte_array(raw: bytes) -> bytes:
    """Return the field value of bytes, as a byte array."""
    return b"x" + len(raw).to_bytes(4, "big") + raw


def table(fields: dict[bytes, bytes]) -> bytes:
    """Return a table of field values, with its length."""
    parts: list[bytes] = []
    size: i64 = 0
    for name, value in fields.items():
        parts.append(bytes((len(name),)))
        parts.append(name)
        parts.append(value)
        size += 1 + len(name) + len(value)
    length: int = size
    return length.to_bytes(4, "big") + b"".join(parts)


def uuid_text(raw: bytes) -> bytes:
    """Return the URN of the 16 bytes of a UUID. [RFC 4122 3]"""
    return f"urn:uuid:{UUID(bytes=raw)}".encode()


def seconds(data: bytes, p: i64) -> bytes | None:
    """Convert the timestamp at `p`, in ms, to eight octets of seconds; None if clients would fail at it."""
    milliseconds = read_i64_be(data, p)
    if milliseconds < 0 or milliseconds // 1000 > SECONDS_MAX:
        return None
    number: int = milliseconds // 1000
    return number.to_bytes(8, "big")


def _converted(code: i64, data: bytes, p: i64, end: i64, depth: i64) -> bytes | None:
    """Convert the value whose constructor `code` is before `p`, and which ends at `end`."""
    prefix = _PREFIXES[code]
    if prefix is not None:
        return prefix + data[p:end]
    if code >= 0xC0:
        return None if depth >= DEPTH_MAX else _compound(code, data, p, end, depth + 1)
    if code >= 0xA0:
        raw = data[p + 4 : end] if code >= 0xB0 else data[p + 1 : end]
        if code & 0x0F == 0:
            return byte_array(raw)
        check_text(raw)
        if code & 0x0F == 3 and not raw.isascii():
            raise DecodeError("symbol that is not ASCII")
        return long_string(raw)
    return _number(code, data, p, end)


def _number(code: i64, data: bytes, p: i64, end: i64) -> bytes | None:
    """Convert a value of fixed width whose bytes cannot just be copied."""
    if code == 0x54 or code == 0x55:
        sign = b"\xff" if data[p] >= 0x80 else b"\x00"
        return (b"I" + sign * 3 if code == 0x54 else b"l" + sign * 7) + data[p:end]
    if code == 0x56:
        if data[p] > 1:
            raise DecodeError("boolean that is neither true nor false")
        return b"t" + data[p:end]
    if code == 0x80:
        if data[p] < 0x80:
            return b"l" + data[p:end]
        return long_string(str(int.from_bytes(data[p:end], "big")).encode())
    if code == 0x72:
        return b"f" + data[p:end] if isfinite(read_f32_be(data, p)) else None
    if code == 0x82:
        return b"d" + data[p:end] if isfinite(read_f64_be(data, p)) else None
    if code == 0x73:
        try:
            return long_string(data[p:end].decode("utf-32-be").encode())
        except UnicodeError:
            raise DecodeError("char that is no character of Unicode") from None
    if code == 0x83:
        time = seconds(data, p)
        return None if time is None else b"T" + time
    if code == 0x98:
        return long_string(uuid_text(data[p:end]))
    return None


def _compound(code: i64, data: bytes, p: i64, end: i64, depth: i64) -> bytes | None:
    """Convert a list or array to an array, a map to a table, without values that have no counterpart."""
    values: list[bytes] = []
    if code == 0xC1 or code == 0xD1:
        return b"F" + table(_fields(data, p - 1, end, depth))
    if code >= 0xE0:
        p += 8 if code >= 0xF0 else 2
        if p >= end:
            raise truncated_error("array")
        element: i64 = data[p]
        if element < 0x50:
            return None  # described, or without width, so that a few bytes could be very many values
        if element not in _WIDE:
            raise undefined_error(data[p], "array")
        p += 1
        while p < end:
            after = _element_end(element, data, p, end)
            value = _converted(element, data, p, after, depth)
            if value is not None:
                values.append(value)
            p = after
    else:
        p += 8 if code >= LIST32 else 2
        if p > end:
            raise truncated_error("list")
        while p < end:
            after = value_end(data, p, end, "list")
            value = _converted(data[p], data, p + 1, after, depth)
            if value is not None:
                values.append(value)
            p = after
    content = b"".join(values)
    return b"A" + len(content).to_bytes(4, "big") + content


def _fields(data: bytes, p: i64, end: i64, depth: i64) -> dict[bytes, bytes]:
    """Return the entries of a map that a table can have."""
    fields: dict[bytes, bytes] = {}
    entries = Entries(data, p, end, NAMED)
    while entries.advance():
        if entries.key_end - entries.key > SHORT_BYTES_MAX:
            continue
        key = entries.name()
        check_text(key)
        value = _converted(data[entries.key_end], data, entries.key_end + 1, entries.end, depth)
        if value is not None:
            fields[key] = value
    if entries.malformed:
        raise truncated_error("map")
    return fields


def _element_end(code: i64, data: bytes, p: i64, end: i64) -> i64:
    """Return the offset after an array's value at `p`; all values share the constructor `code`."""
    kind: i64 = code >> 4
    if kind < 0xA:
        after = p + (16 if kind == 9 else 1 << (kind - 5))
    elif kind & 1 == 0:
        after = p + 1 + data[p]
    else:
        after = p + 4 + unsigned32(data, p) if end - p >= 4 else end + 1
    if after > end:
        raise truncated_error("array")
    return after
