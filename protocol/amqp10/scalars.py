"""Decoders of values that contain no other values, by their constructors. [amqp-1.0 types 1.6]"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from librt.strings import read_f32_be, read_f64_be

from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.types import (
    Byte,
    Char,
    Decimal,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)

Scalar = Callable[[bytes, int, int], object]
"""A decoder of the bytes from one offset to another, whose number the constructor or the size gives."""


def _null(data: bytes, p: int, stop: int) -> object:
    return None


def _true(data: bytes, p: int, stop: int) -> object:
    return True


def _false(data: bytes, p: int, stop: int) -> object:
    return False


def _boolean(data: bytes, p: int, stop: int) -> object:
    octet = data[p]
    if octet > 1:
        raise DecodeError(f"boolean of octet 0x{octet:02x}")
    return octet == 1


def _unsigned(data: bytes, p: int, stop: int) -> object:
    return int.from_bytes(data[p:stop], "big")


def _octet(data: bytes, p: int, stop: int) -> object:
    return data[p]


def _signed(data: bytes, p: int, stop: int) -> object:
    return int.from_bytes(data[p:stop], "big", signed=True)


def _float(data: bytes, p: int, stop: int) -> object:
    return read_f32_be(data, p)


def _double(data: bytes, p: int, stop: int) -> object:
    return read_f64_be(data, p)


def _decimal32(data: bytes, p: int, stop: int) -> object:
    return Decimal(0x74, data[p:stop])


def _decimal64(data: bytes, p: int, stop: int) -> object:
    return Decimal(0x84, data[p:stop])


def _decimal128(data: bytes, p: int, stop: int) -> object:
    return Decimal(0x94, data[p:stop])


def _char(data: bytes, p: int, stop: int) -> object:
    number = int.from_bytes(data[p:stop], "big")
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise DecodeError(f"char 0x{number:x}, which is no character of Unicode")
    return Char(chr(number))


def _timestamp(data: bytes, p: int, stop: int) -> object:
    return Timestamp(int.from_bytes(data[p:stop], "big", signed=True))


def _uuid(data: bytes, p: int, stop: int) -> object:
    return UUID(bytes=data[p:stop])


def _string(data: bytes, p: int, stop: int) -> object:
    try:
        return data[p:stop].decode("utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"string that is not valid UTF-8 at byte {p + error.start}") from None


def _symbol(data: bytes, p: int, stop: int) -> object:
    try:
        return Symbol(data[p:stop].decode("ascii"))
    except UnicodeDecodeError as error:
        raise DecodeError(f"symbol that is not ASCII at byte {p + error.start}") from None


def _binary8(data: bytes, p: int, stop: int) -> object:
    return data[p + 1 : stop]


def _binary32(data: bytes, p: int, stop: int) -> object:
    return data[p + 4 : stop]


def _string8(data: bytes, p: int, stop: int) -> object:
    return _string(data, p + 1, stop)


def _string32(data: bytes, p: int, stop: int) -> object:
    return _string(data, p + 4, stop)


def _symbol8(data: bytes, p: int, stop: int) -> object:
    return _symbol(data, p + 1, stop)


def _symbol32(data: bytes, p: int, stop: int) -> object:
    return _symbol(data, p + 4, stop)


def _empty(data: bytes, p: int, stop: int) -> object:
    empty: list[object] = []
    return empty


_BY_CODE: Final[dict[int, tuple[Scalar, type | None]]] = {
    0x40: (_null, None),
    0x41: (_true, None),
    0x42: (_false, None),
    0x43: (_unsigned, Uint),
    0x44: (_unsigned, Ulong),
    0x45: (_empty, None),
    0x50: (_octet, Ubyte),
    0x51: (_signed, Byte),
    0x52: (_octet, Uint),
    0x53: (_octet, Ulong),
    0x54: (_signed, Int),
    0x55: (_signed, Long),
    0x56: (_boolean, None),
    0x60: (_unsigned, Ushort),
    0x61: (_signed, Short),
    0x70: (_unsigned, Uint),
    0x71: (_signed, Int),
    0x72: (_float, Float),
    0x73: (_char, None),
    0x74: (_decimal32, None),
    0x80: (_unsigned, Ulong),
    0x81: (_signed, Long),
    0x82: (_double, None),
    0x83: (_timestamp, None),
    0x84: (_decimal64, None),
    0x94: (_decimal128, None),
    0x98: (_uuid, None),
    0xA0: (_binary8, None),
    0xA1: (_string8, None),
    0xA3: (_symbol8, None),
    0xB0: (_binary32, None),
    0xB1: (_string32, None),
    0xB3: (_symbol32, None),
}

SCALARS: Final[list[Scalar | None]] = [_BY_CODE[code][0] if code in _BY_CODE else None for code in range(256)]
"""The decoders by constructors; the bytes include the size. None for compound and unknown constructors."""

TYPES: Final[list[type | None]] = [_BY_CODE[code][1] if code in _BY_CODE else None for code in range(256)]
"""The types of `decode_typed` by constructors; None where the decoded value has its own type."""
