"""Convert field values of AMQP 0-9-1 to values of AMQP 1.0. [amqp-0-9-1 4.2.5.5, amqp-1.0 types 1.6]"""

from typing import Final, final

from mypy_extensions import i64

from protocol.amqp10.constructors import (
    DEPTH_MAX,
    FALSE,
    LIST8,
    MAP8,
    NONE,
    STRING8,
    STRING32,
    TRUE,
)
from protocol.amqp10.writing import NULL_VALUE, binary, compound, sized
from protocol.conversion.octets import is_text, unsigned32

ARRAY: Final = ord("A")
TABLE: Final = ord("F")
TEXT: Final = ord("S")
BYTES: Final = ord("x")
_BOOLEAN: Final = ord("t")
_DECIMAL: Final = ord("D")
_TIME: Final = ord("T")
_VOID: Final = ord("V")

_COPIED: Final = {
    "b": (0x51, 1),
    "B": (0x50, 1),
    "s": (0x61, 2),
    "u": (0x60, 2),
    "I": (0x71, 4),
    "i": (0x70, 4),
    "l": (0x81, 8),
    "L": (0x81, 8),
    "f": (0x72, 4),
    "d": (0x82, 8),
}
"""The constructors for the values after these octets, and the number of the values' bytes."""

_SIZED: Final = 255  # a length of four octets follows; smaller numbers are the number of octets themselves
_UNKNOWN: Final = 254
_DEPTH: Final = 2  # the depth of a value in the map of a section
_DECIMAL_BIAS: Final = 6176  # the bias of a decimal128's exponent


def _widths() -> bytes:
    widths = bytearray([_UNKNOWN] * 256)
    for octet, (_, width) in _COPIED.items():
        widths[ord(octet)] = width
    for kind, width in ((_BOOLEAN, 1), (_TIME, 8), (_DECIMAL, 5), (_VOID, 0), (0, 0)):
        widths[kind] = width
    for kind in (ARRAY, TABLE, TEXT, BYTES):
        widths[kind] = _SIZED
    return bytes(widths)


def _constructors() -> list[bytes | None]:
    constructors: list[bytes | None] = [None] * 256
    for octet, (code, _) in _COPIED.items():
        constructors[ord(octet)] = bytes((code,))
    return constructors


_WIDTHS: Final = _widths()
_CONSTRUCTORS: Final[list[bytes | None]] = _constructors()


@final
class TableFields:
    """The fields of the table that lies from `start` to `end`, without its length.

    After each `advance` that returned True, the field's value lies from `value` to `end`; the octet of its
    type is the first. `malformed`: the next bytes are no field.
    """

    def __init__(self, data: bytes, start: i64, end: i64) -> None:
        self.name = b""
        self.value: i64 = start
        self.end: i64 = start
        self.malformed = False
        self._data = data
        self._limit: i64 = end

    def advance(self) -> bool:
        """Go to the next field; False after the last field."""
        p = self.end
        if p >= self._limit:
            return False
        data = self._data
        value: i64 = p + 1 + data[p]
        after = field_value_end(data, value, self._limit)
        if after == NONE:
            self.malformed = True
            self.end = self._limit
            return False
        self.name = data[p + 1 : value]
        self.value = value
        self.end = after
        return True


def field_value_end(data: bytes, p: i64, end: i64) -> i64:
    """Return the offset after the field value at `p`; NONE if it is of no known type, or overruns `end`."""
    if p >= end:
        return NONE
    width: i64 = _WIDTHS[data[p]]
    p += 1
    if width == _UNKNOWN:
        return NONE
    if width == _SIZED:
        if end - p < 4:
            return NONE
        width = 4 + unsigned32(data, p)
    return p + width if p + width <= end else NONE


def encoded_value(data: bytes, p: i64, end: i64) -> bytes | None:
    """Return the encoded value for the field value from `p` to `end`; None if it does not decode."""
    return _encoded(data, p, end, _DEPTH)


def milliseconds(raw: bytes) -> bytes | None:
    """Return the encoded timestamp for eight octets of seconds; None if it is out of a timestamp's range."""
    number = int.from_bytes(raw, "big") * 1000
    return b"\x83" + number.to_bytes(8, "big") if number < 1 << 63 else None


def _encoded(data: bytes, p: i64, end: i64, depth: i64) -> bytes | None:
    kind: i64 = data[p]
    p += 1
    if kind == TEXT:
        raw = data[p + 4 : end]
        if b"\0" not in raw and is_text(raw):
            return sized(raw, STRING8, STRING32)
        return binary(raw)
    constructor = _CONSTRUCTORS[kind]
    if constructor is not None:
        return constructor + data[p:end]
    if kind == _BOOLEAN:
        return bytes((FALSE if data[p] == 0 else TRUE,))
    if kind == _TIME:
        return milliseconds(data[p:end])
    if kind == BYTES:
        return binary(data[p + 4 : end])
    if kind == _DECIMAL:
        exponent: int = _DECIMAL_BIAS - data[p]
        return b"\x94" + (exponent << 113 | int.from_bytes(data[p + 1 : end], "big")).to_bytes(16, "big")
    if kind in (ARRAY, TABLE):
        if depth >= DEPTH_MAX:
            return None
        if kind == ARRAY:
            return _list(data, p + 4, end, depth + 1)
        return _map(data, p + 4, end, depth + 1)
    return NULL_VALUE


def _list(data: bytes, p: i64, end: i64, depth: i64) -> bytes | None:
    """Convert an array to a list, without values that have no counterpart; None if it is malformed."""
    items: list[bytes] = []
    while p < end:
        after = field_value_end(data, p, end)
        if after == NONE:
            return None
        item = _encoded(data, p, after, depth)
        if item is not None:
            items.append(item)
        p = after
    return compound(LIST8, items)


def _map(data: bytes, p: i64, end: i64, depth: i64) -> bytes | None:
    """Convert a table to a map; of several fields with the same name the last one counts."""
    entries: dict[bytes, bytes] = {}
    fields = TableFields(data, p, end)
    while fields.advance():
        if not is_text(fields.name):
            continue
        value = _encoded(data, fields.value, fields.end, depth)
        if value is not None:
            entries[fields.name] = value
    return None if fields.malformed else string_map(entries)


def string_map(entries: dict[bytes, bytes]) -> bytes:
    """Return an encoded map of encoded values with strings as keys."""
    items: list[bytes] = []
    for name, value in entries.items():
        items.append(sized(name, STRING8, STRING32))
        items.append(value)
    return compound(MAP8, items)
