"""AMQP 1.0 values as bytes, each in its smallest encoding. [amqp-1.0 types 1.2-1.6]

The values are the broker's own or have been decoded before, so an error is a mistake of the caller.
TypeError: the value has no encoding. ValueError or OverflowError: the value is out of its type's range.
"""

from collections.abc import Callable, Iterable
from struct import pack
from typing import Any, Final
from uuid import UUID

from protocol.amqp10.types import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Long,
    Map,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)

_INTEGERS: Final[dict[int, tuple[int, bool]]] = {
    0x50: (1, False),
    0x51: (1, True),
    0x52: (1, False),
    0x53: (1, False),
    0x54: (1, True),
    0x55: (1, True),
    0x60: (2, False),
    0x61: (2, True),
    0x70: (4, False),
    0x71: (4, True),
    0x80: (8, False),
    0x81: (8, True),
    0x83: (8, True),
}
"""The constructors of integers: how many bytes follow, and whether they have a sign."""

_DECIMALS: Final = {0x74: 4, 0x84: 8, 0x94: 16}


def encode(value: object) -> bytes:
    """Encode a value with its constructor. An int is a long, or a ulong if it is too large for a long."""
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        raise TypeError(f"{type(value).__name__} has no encoding")
    return encoder(value)


def encode_list(items: Iterable[bytes]) -> bytes:
    """Encode a list of encoded values, with a size and a count even if the list is empty."""
    encoded = list(items)
    return _compound(0xC0, len(encoded), b"".join(encoded))


def encode_described(descriptor: int, value: bytes) -> bytes:
    """Encode a described value: a numeric descriptor and an encoded value."""
    return b"\x00" + _ulong(descriptor) + value


def _integer(code: int, value: int) -> bytes:
    width, signed = _INTEGERS[code]
    return bytes([code]) + value.to_bytes(width, "big", signed=signed)


def _null(value: None) -> bytes:
    return b"\x40"


def _boolean(value: bool) -> bytes:
    return b"\x41" if value else b"\x42"


def _ubyte(value: int) -> bytes:
    return _integer(0x50, value)


def _ushort(value: int) -> bytes:
    return _integer(0x60, value)


def _uint(value: int) -> bytes:
    if value == 0:
        return b"\x43"
    return _integer(0x52 if 0 < value < 256 else 0x70, value)


def _ulong(value: int) -> bytes:
    if value == 0:
        return b"\x44"
    return _integer(0x53 if 0 < value < 256 else 0x80, value)


def _byte(value: int) -> bytes:
    return _integer(0x51, value)


def _short(value: int) -> bytes:
    return _integer(0x61, value)


def _int(value: int) -> bytes:
    return _integer(0x54 if -128 <= value < 128 else 0x71, value)


def _long(value: int) -> bytes:
    return _integer(0x55 if -128 <= value < 128 else 0x81, value)


def _any_int(value: int) -> bytes:
    return _long(value) if value < 1 << 63 else _ulong(value)


def _float(value: float) -> bytes:
    return pack(">Bf", 0x72, value)


def _double(value: float) -> bytes:
    return pack(">Bd", 0x82, value)


def _decimal(value: Decimal) -> bytes:
    return bytes([value.code]) + _exactly(_DECIMALS[value.code], value.raw)


def _char(value: str) -> bytes:
    return pack(">BI", 0x73, ord(value))


def _timestamp(value: int) -> bytes:
    return _integer(0x83, value)


def _uuid(value: UUID) -> bytes:
    return b"\x98" + value.bytes


def _binary(value: bytes) -> bytes:
    return _sized(0xA0, value)


def _string(value: str) -> bytes:
    return _sized(0xA1, value.encode("utf-8"))


def _symbol(value: str) -> bytes:
    return _sized(0xA3, value.encode("ascii"))


def _list(value: Iterable[object]) -> bytes:
    items = [encode(item) for item in value]
    return _compound(0xC0, len(items), b"".join(items)) if items else b"\x45"


def _dict(value: dict[object, object]) -> bytes:
    return _pairs(value.items())


def _map(value: Map) -> bytes:
    return _pairs(value.pairs)


def _pairs(pairs: Iterable[tuple[object, object]]) -> bytes:
    items = [encode(item) for pair in pairs for item in pair]
    return _compound(0xC1, len(items), b"".join(items))


def _array(value: Array) -> bytes:
    return _compound(0xE0, value.count, _elements(value))


def _described(value: Described) -> bytes:
    return b"\x00" + encode(value.descriptor) + encode(value.value)


def _sized(code: int, raw: bytes) -> bytes:
    """Encode `raw` with a size of one byte after `code`, or of four bytes after the long constructor."""
    size = len(raw)
    return (pack(">BB", code, size) if size < 256 else pack(">BI", code | 0x10, size)) + raw


def _compound(code: int, count: int, raw: bytes) -> bytes:
    if count < 256 and len(raw) < 255:
        return bytes([code]) + _counted(code, count, raw)
    return bytes([code | 0x10]) + _counted(code | 0x10, count, raw)


def _counted(code: int, count: int, raw: bytes) -> bytes:
    size = len(raw)
    return (pack(">II", size + 4, count) if code & 0x10 else pack(">BB", size + 1, count)) + raw


def _after_size(code: int, raw: bytes) -> bytes:
    return (pack(">I", len(raw)) if code & 0x10 else bytes([len(raw)])) + raw


def _exactly(width: int, raw: bytes) -> bytes:
    if len(raw) != width:
        raise ValueError(f"{len(raw)} bytes instead of {width}")
    return raw


def _elements(array: Array) -> bytes:
    """Return the constructor of an array, followed by the values of the array."""
    constructor = [b"\x00" + encode(descriptor) for descriptor in array.descriptors]
    return b"".join([*constructor, bytes([array.code]), *[_body(array.code, item) for item in array.items]])


def _body(code: int, value: Any) -> bytes:
    """Return the bytes of a value after its constructor `code`, which need not be its smallest one."""
    if code in _INTEGERS:
        width, signed = _INTEGERS[code]
        return int(value).to_bytes(width, "big", signed=signed)
    match code:
        case 0x56:
            return b"\x01" if value else b"\x00"
        case 0x72:
            return pack(">f", value)
        case 0x82:
            return pack(">d", value)
        case 0x73:
            return pack(">I", ord(value))
        case 0x74 | 0x84 | 0x94:
            return _exactly(_DECIMALS[code], value.raw)
        case 0x98:
            return _exactly(16, value.bytes)
        case 0xA0 | 0xB0:
            return _after_size(code, value)
        case 0xA1 | 0xB1:
            return _after_size(code, value.encode("utf-8"))
        case 0xA3 | 0xB3:
            return _after_size(code, value.encode("ascii"))
        case 0xC0 | 0xD0:
            return _counted(code, len(value), b"".join([encode(item) for item in value]))
        case 0xC1 | 0xD1:
            pairs = value.pairs if isinstance(value, Map) else value.items()
            items = [encode(item) for pair in pairs for item in pair]
            return _counted(code, len(items), b"".join(items))
        case 0xE0 | 0xF0:
            return _counted(code, value.count, _elements(value))
    raise ValueError(f"no array has values with constructor 0x{code:02x}")


_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): _null,
    bool: _boolean,
    int: _any_int,
    Ubyte: _ubyte,
    Ushort: _ushort,
    Uint: _uint,
    Ulong: _ulong,
    Byte: _byte,
    Short: _short,
    Int: _int,
    Long: _long,
    float: _double,
    Float: _float,
    Decimal: _decimal,
    Char: _char,
    Timestamp: _timestamp,
    UUID: _uuid,
    bytes: _binary,
    str: _string,
    Symbol: _symbol,
    list: _list,
    tuple: _list,
    dict: _dict,
    Map: _map,
    Array: _array,
    Described: _described,
}
