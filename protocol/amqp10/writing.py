"""Fields of performatives and states as bytes, each in one of its allowed encodings. [amqp-1.0 1.6]"""

from typing import Final

from librt.strings import BytesWriter, write_i32_be
from mypy_extensions import i64

from protocol.amqp10.constructors import (
    BINARY8,
    BINARY32,
    FALSE,
    LIST8,
    LIST32,
    NONE,
    NULL,
    SMALL_UINT,
    SMALL_ULONG,
    TRUE,
    UINT,
    UINT0,
)

NULL_VALUE: Final = b"\x40"

_OCTET_MAX: Final = 255


def write_u32(out: BytesWriter, number: i64) -> None:
    """Write four octets."""
    signed: int = number if number < 0x80000000 else number - 0x100000000
    write_i32_be(out, signed)


def write_u16(out: BytesWriter, number: i64) -> None:
    """Write two octets."""
    high: int = number >> 8 & 0xFF
    low: int = number & 0xFF
    out.append(high)
    out.append(low)


def write_uint(out: BytesWriter, number: i64) -> None:
    """Write a uint in its smallest encoding; null for NONE."""
    if number == 0:
        out.append(UINT0)
    elif number == NONE:
        out.append(NULL)
    elif number <= _OCTET_MAX:
        octet: int = number
        out.append(SMALL_UINT)
        out.append(octet)
    else:
        out.append(UINT)
        write_u32(out, number)


def write_boolean(out: BytesWriter, value: bool) -> None:
    """Write a boolean, one octet."""
    out.append(TRUE if value else FALSE)


def sized(content: bytes, short: int, long: int) -> bytes:
    """Return an encoded binary, string or symbol with the constructor `short` or, if necessary, `long`."""
    if len(content) <= _OCTET_MAX:
        return bytes((short, len(content))) + content
    return bytes((long,)) + len(content).to_bytes(4, "big") + content


def binary(content: bytes) -> bytes:
    """Return an encoded binary."""
    return sized(content, BINARY8, BINARY32)


def compound(short: int, items: list[bytes]) -> bytes:
    """Return an encoded list or map of encoded values; `short`: its constructor with a size of one octet."""
    content = b"".join(items)
    if len(content) < _OCTET_MAX and len(items) <= _OCTET_MAX:
        return bytes((short, len(content) + 1, len(items))) + content
    sizes = (len(content) + 4).to_bytes(4, "big") + len(items).to_bytes(4, "big")
    return bytes((short + (LIST32 - LIST8),)) + sizes + content


def composite(code: int, fields: list[bytes]) -> bytes:
    """Return an encoded composite of encoded fields."""
    return bytes((0, SMALL_ULONG, code)) + compound(LIST8, fields)
