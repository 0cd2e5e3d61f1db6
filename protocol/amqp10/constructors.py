"""Constructors, and the ends of values, which are found without decoding the values. [amqp-1.0 1.2, 1.6]"""

from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from protocol.amqp10.conditions import DecodeError

NONE: Final = -1  # instead of an unsigned value or an offset: null or absent

NULL: Final = 0x40
TRUE: Final = 0x41
FALSE: Final = 0x42
UINT0: Final = 0x43
ULONG0: Final = 0x44
LIST0: Final = 0x45
UBYTE: Final = 0x50
SMALL_UINT: Final = 0x52
SMALL_ULONG: Final = 0x53
BOOLEAN: Final = 0x56
UINT: Final = 0x70
ULONG: Final = 0x80
TIMESTAMP: Final = 0x83
UUID: Final = 0x98
BINARY8: Final = 0xA0
STRING8: Final = 0xA1
SYMBOL8: Final = 0xA3
BINARY32: Final = 0xB0
STRING32: Final = 0xB1
SYMBOL32: Final = 0xB3
LIST8: Final = 0xC0
MAP8: Final = 0xC1
LIST32: Final = 0xD0
MAP32: Final = 0xD1

DEPTH_MAX: Final = 32  # nested descriptors

_SIZE8: Final = 17  # an octet has the number of bytes that follow; kinds up to 16 are this number themselves
_SIZE32: Final = 18
_DESCRIBED: Final = 19
_UNDEFINED: Final = 20
_KINDS: Final = {
    0: "40 41 42 43 44 45",
    1: "50 51 52 53 54 55 56",
    2: "60 61",
    4: "70 71 72 73 74",
    8: "80 81 82 83 84",
    16: "94 98",
    _SIZE8: "a0 a1 a3 c0 c1 e0",
    _SIZE32: "b0 b1 b3 d0 d1 f0",
    _DESCRIBED: "00",
}


def _kinds_by_constructor() -> bytes:
    kinds = bytearray([_UNDEFINED] * 256)
    for kind, constructors in _KINDS.items():
        for constructor in bytes.fromhex(constructors):
            kinds[constructor] = kind
    return bytes(kinds)


_KIND: Final = _kinds_by_constructor()


def value_end(data: bytes, p: i64, end: i64, what: str, field: str = "") -> i64:
    """Return the offset after the value at `p`; only its constructor and its size are read.

    Raises DecodeError if the value does not end by `end`. The error names `what` and `field`.
    """
    end_offset = find_value_end(data, p, end, what, field)
    if end_offset == NONE or end_offset > end:
        raise truncated_error(what, field)
    return end_offset


def find_value_end(data: bytes, p: i64, end: i64, what: str, field: str = "") -> i64:
    """Return the offset after the value at `p`, as `value_end` does; the value may continue after `end`.

    NONE if the bytes before `end` do not include the size. Raises DecodeError if they are no value.
    """
    pending: i64 = 1
    while pending > 0:
        if p >= end:
            return NONE
        kind: i64 = _KIND[data[p]]
        p += 1
        if kind < _SIZE8:
            p += kind
        elif kind == _SIZE8:
            if p >= end:
                return NONE
            p += 1 + data[p]
        elif kind == _SIZE32:
            if end - p < 4:
                return NONE
            size: int = read_i32_be(data, p)
            if size < 0:
                raise truncated_error(what, field)
            p += 4 + size
        elif kind == _DESCRIBED:
            pending += 2
            if pending > DEPTH_MAX:
                raise DecodeError(f"{_place(what, field)}: more than {DEPTH_MAX} nested descriptors")
        else:
            raise undefined_error(data[p - 1], what, field)
        pending -= 1
    return p


def truncated_error(what: str, field: str = "") -> DecodeError:
    """Return the error for a value with fewer bytes than its constructor or size demands."""
    return DecodeError(f"{_place(what, field)} is truncated")


def undefined_error(constructor: int, what: str, field: str = "") -> DecodeError:
    """Return the error for a constructor that does not exist, or that is not allowed at this place."""
    fault = "does not exist" if _KIND[constructor] == _UNDEFINED else "is not allowed here"
    return DecodeError(f"{_place(what, field)}: constructor 0x{constructor:02x} {fault}")


def _place(what: str, field: str) -> str:
    return f"{what}.{field}" if field else what
