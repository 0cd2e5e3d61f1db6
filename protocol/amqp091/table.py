"""The encoder of field tables: Python values in the types that clients use. [amqp-0-9-1 4.2.5.5]"""

import struct
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Final

_I64: Final = struct.Struct(">q")
_I32: Final = struct.Struct(">i")
_F64: Final = struct.Struct(">d")
_LENGTH: Final = struct.Struct(">I")
_TIME: Final = struct.Struct(">Q")
_I32_MAX: Final = 2**31 - 1

EMPTY_TABLE: Final = b"\0\0\0\0"


def encode_table(table: Mapping[str, object]) -> bytes:
    """Return the encoded table with its length.

    Integers have type I if they fit into 32 bits, l otherwise. Floats have type d, texts and bytes type S,
    byte arrays type x, decimals type D. Times have type T, in whole seconds. Raises ValueError for a name
    that is not 1 to 255 bytes long, a number that does not fit, and a value of any other type.
    """
    return _counted(b"".join(_name(name) + _value(value) for name, value in table.items()))


def _name(name: str) -> bytes:
    raw = name.encode(errors="surrogateescape")
    if not 0 < len(raw) <= 255:
        raise ValueError(f"the name {name!r} has {len(raw)} bytes, allowed are 1 to 255")
    return bytes([len(raw)]) + raw


def _value(value: object) -> bytes:
    if value is None:
        return b"V"
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, int):
        if -_I32_MAX - 1 <= value <= _I32_MAX:
            return b"I" + _I32.pack(value)
        return b"l" + _number(_I64, value)
    if isinstance(value, float):
        return b"d" + _F64.pack(value)
    if isinstance(value, str):
        return b"S" + _counted(value.encode())
    if isinstance(value, Mapping):
        return b"F" + encode_table(value)
    if isinstance(value, list):
        return b"A" + _counted(b"".join(_value(item) for item in value))
    if isinstance(value, bytearray):
        return b"x" + _counted(bytes(value))
    if isinstance(value, bytes):
        return b"S" + _counted(value)
    if isinstance(value, datetime):
        return b"T" + _number(_TIME, int(value.timestamp()))
    if isinstance(value, Decimal):
        scale = -int(value.as_tuple().exponent) if value.is_finite() else -1
        if not 0 <= scale <= 255:
            raise ValueError(f"a field table cannot hold {value!r}")
        return b"D" + bytes([scale]) + _number(_LENGTH, int(value.scaleb(scale)))
    raise ValueError(f"a field table cannot hold {value!r}")


def _number(form: struct.Struct, number: int) -> bytes:
    try:
        return form.pack(number)
    except struct.error as error:
        raise ValueError(f"{number} does not fit into {form.size * 8} bits") from error


def _counted(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data
