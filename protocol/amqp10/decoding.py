"""Decode any AMQP 1.0 value from bytes, within limits. [amqp-1.0 types 1.1-1.6]

Constructor and size give the end of a value. Each value is checked against the end of the value that
contains it before it is decoded. Time and memory are in proportion to the bytes. The caller limits the number
of bytes. Only DecodeError is raised, whatever the bytes.
"""

from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.scalars import SCALARS, TYPES
from protocol.amqp10.types import Array, Char, Described, Map, Symbol, Timestamp

DEPTH_MAX: Final = 32
COUNT_MAX: Final = 65536

# The width of the value after a constructor, in bytes, by the upper half of the constructor. [types 1.2]
_WIDTHS_BY_KIND: Final = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}
_SIZE8: Final = 17  # a size of 8 bits precedes the value
_SIZE32: Final = 18
_UNKNOWN: Final = 19

_DESCRIBED: Final = 0x00
_LIST32: Final = 0xD0
_MAP32: Final = 0xD1
_ARRAY32: Final = 0xF0

# The types of keys that a dict may have. Values of other types have no hash, or a hash that a peer can
# choose: a frame of 7,000 UUIDs with the same hash would take seconds.
_KEYS: Final = frozenset([type(None), bool, int, float, str, bytes, Symbol, Char, Timestamp])


def _widths() -> bytes:
    """Return for each constructor the width of its value in bytes, or _SIZE8, _SIZE32 or _UNKNOWN."""
    widths = [_UNKNOWN] * 256
    for code in range(256):
        if SCALARS[code] is not None and code < 0xA0:
            widths[code] = _WIDTHS_BY_KIND[code >> 4]
        elif SCALARS[code] is not None or code | 0x10 in (_LIST32, _MAP32, _ARRAY32):
            widths[code] = _SIZE32 if code & 0x10 else _SIZE8
    return bytes(widths)


_WIDTHS: Final = _widths()


def decode(data: bytes, offset: i64 = 0, end: i64 = -1) -> tuple[object, int]:
    """Return the value at `offset` and the offset after the value, which must end by `end`.

    `end`: -1 means the end of `data`. Integers are ints. Maps are dicts, or a Map if a dict cannot have all
    its entries. Raises DecodeError.
    """
    return _decode(data, offset, end, False)


def decode_typed(data: bytes, offset: i64 = 0, end: i64 = -1) -> tuple[object, int]:
    """Decode with types that encode to the same type again: an integer is a Uint, ..., a map is a Map."""
    return _decode(data, offset, end, True)


def skip(data: bytes, offset: i64 = 0, end: i64 = -1) -> i64:
    """Return the offset after the value at `offset`, which must end by `end`. Raises DecodeError.

    The values in a list, map or array are not checked.
    """
    return _values_end(data, offset, _limit(data, end), 1)


def _decode(data: bytes, offset: i64, end: i64, typed: bool) -> tuple[object, int]:
    stop = _values_end(data, offset, _limit(data, end), 1)
    return _value(data[offset], data, offset + 1, stop, 0, typed), stop


def _limit(data: bytes, end: i64) -> i64:
    size: i64 = len(data)
    return size if end < 0 or end > size else end


def _values_end(data: bytes, p: i64, end: i64, values: i64) -> i64:
    """Return the offset after so many values, the first at `p`; a descriptor counts as one value more."""
    described: i64 = 0
    while values > 0:
        if p >= end:
            raise _truncated(p)
        code: i64 = data[p]
        p += 1
        if code == _DESCRIBED:
            described += 1
            if described > DEPTH_MAX:
                raise _too_deep()
            values += 1
        else:
            p = _value_end(code, data, p, end)
            values -= 1
    return p


def _value_end(code: i64, data: bytes, p: i64, end: i64) -> i64:
    """Return the offset after the value whose constructor is before `p`; not for described values."""
    width: i64 = _WIDTHS[code]
    if width < _SIZE8:
        p += width
    elif width == _SIZE8:
        if p >= end:
            raise _truncated(p)
        p += 1 + data[p]
    elif width == _SIZE32:
        if p + 4 > end:
            raise _truncated(p)
        p += 4 + _u32(data, p)
    else:
        raise DecodeError(f"unknown constructor 0x{int(code):02x}")
    if p > end:
        raise _truncated(end)
    return p


def _u32(data: bytes, p: i64) -> i64:
    number: int = read_i32_be(data, p)
    return number & 0xFFFFFFFF


def _value(code: i64, data: bytes, p: i64, stop: i64, depth: i64, typed: bool) -> object:
    """Return the value whose constructor is before `p`, and which is known to end at `stop`."""
    scalar = SCALARS[code]
    if scalar is not None:
        value = scalar(data, p, stop)
        if typed:
            kind = TYPES[code]
            return value if kind is None else kind(value)
        return value
    if depth >= DEPTH_MAX:
        raise _too_deep()
    if code == _DESCRIBED:
        descriptor_stop = _values_end(data, p, stop, 1)
        descriptor = _value(data[p], data, p + 1, descriptor_stop, depth + 1, typed)
        value = _value(data[descriptor_stop], data, descriptor_stop + 1, stop, depth + 1, typed)
        return Described(descriptor, value)
    wide = code & 0x10 != 0
    head: i64 = 8 if wide else 2
    if p + head > stop:
        raise DecodeError("compound without a count")
    count: i64 = _u32(data, p + 4) if wide else data[p + 1]
    if count > COUNT_MAX:
        raise DecodeError(f"compound of {int(count)} values, at most {COUNT_MAX} are allowed")
    p += head
    wider: i64 = code | 0x10
    if wider == _LIST32:
        return _values(data, p, stop, count, depth + 1, typed)
    if wider == _MAP32:
        return _map(_values(data, p, stop, count, depth + 1, typed), typed)
    return _array(data, p, stop, count, depth + 1, typed)


def _values(data: bytes, p: i64, stop: i64, count: i64, depth: i64, typed: bool) -> list[object]:
    """Return `count` values, which must fill the bytes from `p` to `stop`."""
    if count > stop - p:
        raise DecodeError(f"compound of {int(count)} values in {int(stop - p)} bytes")
    values: list[object] = []
    for _ in range(count):
        after = _values_end(data, p, stop, 1)
        values.append(_value(data[p], data, p + 1, after, depth, typed))
        p = after
    _check_full(p, stop)
    return values


def _map(values: list[object], typed: bool) -> object:
    if len(values) % 2 != 0:
        raise DecodeError(f"map of {len(values)} values, expected an even number")
    keys = values[::2]
    if not typed and all(type(key) in _KEYS for key in keys):
        result = dict(zip(keys, values[1::2], strict=True))
        if len(result) == len(keys):
            return result
    return Map(list(zip(keys, values[1::2], strict=True)))


def _array(data: bytes, p: i64, stop: i64, count: i64, depth: i64, typed: bool) -> Array:
    descriptors: list[object] = []
    while p < stop and data[p] == _DESCRIBED:
        depth += 1
        if depth > DEPTH_MAX:
            raise _too_deep()
        after = _values_end(data, p + 1, stop, 1)
        if after >= stop:
            raise _truncated(after)
        descriptors.append(_value(data[p + 1], data, p + 2, after, depth, typed))
        p = after
    if p >= stop:
        raise DecodeError("array without a constructor")
    code: i64 = data[p]
    p += 1
    width: i64 = _WIDTHS[code]
    if width == _UNKNOWN:
        raise DecodeError(f"unknown constructor 0x{int(code):02x}")
    items: list[object] = []
    if width > 0:
        if count > stop - p:
            raise DecodeError(f"array of {int(count)} values in {int(stop - p)} bytes")
        for _ in range(count):
            after = _value_end(code, data, p, stop)
            items.append(_value(code, data, p, after, depth, typed))
            p = after
    _check_full(p, stop)
    return Array(int(code), items, tuple(descriptors), int(count))


def _check_full(p: i64, stop: i64) -> None:
    if p != stop:
        raise DecodeError(f"compound with {int(stop - p)} bytes after its last value")


def _truncated(p: i64) -> DecodeError:
    return DecodeError(f"value continues after byte {int(p)}, the end of the enclosing value")


def _too_deep() -> DecodeError:
    return DecodeError(f"values nested more than {DEPTH_MAX} deep")
