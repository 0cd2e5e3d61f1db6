"""The message-annotations of a message. Entries are added, and all other entries keep their bytes.

[amqp-1.0 3.2.10, 3.2.3]
"""

from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import (
    MAP8,
    MAP32,
    NONE,
    SMALL_ULONG,
    SYMBOL8,
    SYMBOL32,
    truncated_error,
    undefined_error,
    value_end,
)
from protocol.amqp10.descriptors import MESSAGE_ANNOTATIONS
from protocol.amqp10.sections import Layout
from protocol.amqp10.writing import sized

_WHAT: Final = "message-annotations"
_START: Final = bytes((0, SMALL_ULONG, MESSAGE_ANNOTATIONS))


def check_annotations(data: bytes, value: i64, end: i64) -> None:
    """Raise DecodeError unless the map from `value` to `end` has complete entries, and symbols as keys."""
    _entries_without(data, value, end, [])


def annotations_section(data: bytes, value: i64, end: i64, keys: list[bytes], values: list[bytes]) -> bytes:
    """Return a message-annotations section with the entries of a map, and further entries.

    The map lies from `value` to `end`; an empty range means a message without annotations. `keys`: the names
    of the further entries. `values`: their values, encoded. An entry of the map with one of these names is
    replaced. All others keep their bytes and their order. Raises DecodeError.
    """
    count: i64 = len(keys)
    parts: list[bytes] = []
    if value < end:
        has_any = False
        for key in keys:
            has_any = has_any or data.find(key, value, end) >= 0
        if has_any:
            parts = _entries_without(data, value, end, keys)
            count += len(parts)
        else:
            start = _first_key(data, value, end)
            count += _entry_count(data, value)
            parts.append(data[start:end])
    return _section(parts, count, keys, values)


def decode_map(data: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the names and encoded values of an encoded map whose keys are symbols. Raises DecodeError."""
    keys: list[bytes] = []
    values: list[bytes] = []
    for entry in _entries_without(data, 0, len(data), []):
        constructor: i64 = entry[0]
        start: i64 = 2 if constructor == SYMBOL8 else 5
        after = value_end(entry, 0, len(entry), _WHAT)
        keys.append(entry[start:after])
        values.append(entry[after:])
    return keys, values


def encode_map(entries: dict[bytes, bytes]) -> bytes:
    """Return an encoded map of encoded values, which are given by their names."""
    return _section([], len(entries), list(entries), list(entries.values()))[len(_START) :]


def replace_annotations(
    data: bytes, value: i64, end: i64, without: list[bytes], keys: list[bytes], values: list[bytes]
) -> bytes:
    """Return a section as `annotations_section` does, but without the entries whose names are in `without`.

    If the map does not decode, all its entries are left out.
    """
    kept: list[bytes] = []
    try:
        if value >= 0 and value < end:
            kept = _entries_without(data, value, end, without + keys)
    except DecodeError:
        kept = []
    return _section(kept, len(kept) + len(keys), keys, values)


def annotate_message(
    data: bytes, layout: Layout, without: list[bytes], keys: list[bytes], values: list[bytes]
) -> bytes:
    """Return a message with the section that `replace_annotations` makes. `layout`: the layout of `data`."""
    section = replace_annotations(data, layout.annotations, layout.annotations_end, without, keys, values)
    if layout.annotations == NONE:
        return data[: layout.bare] + section + data[layout.bare :]
    return data[: layout.annotations_start] + section + data[layout.annotations_end :]


def _section(parts: list[bytes], count: i64, keys: list[bytes], values: list[bytes]) -> bytes:
    """Return a section of encoded entries and further entries, `count` altogether."""
    for index, key in enumerate(keys):
        parts.append(sized(key, SYMBOL8, SYMBOL32))
        parts.append(values[index])
    content = b"".join(parts)
    number: int = 2 * count
    if number <= 255 and len(content) < 255:
        return _START + bytes((MAP8, len(content) + 1, number)) + content
    sizes = (len(content) + 4).to_bytes(4, "big") + number.to_bytes(4, "big")
    return _START + bytes((MAP32,)) + sizes + content


def _first_key(data: bytes, value: i64, end: i64) -> i64:
    """Return the offset of the map's first key."""
    if value >= end:
        raise truncated_error(_WHAT)
    constructor: i64 = data[value]
    if constructor != MAP8 and constructor != MAP32:
        raise undefined_error(data[value], _WHAT)
    start = value + 3 if constructor == MAP8 else value + 9
    if start > end:
        raise truncated_error(_WHAT)
    return start


def _entry_count(data: bytes, value: i64) -> i64:
    """Return the number of entries in the head of a map."""
    count: int = data[value + 2] if data[value] == MAP8 else read_i32_be(data, value + 5)
    if count < 0 or count % 2 != 0:
        raise DecodeError(f"{_WHAT}: a map of {count} keys and values")
    return count // 2


def _entries_without(data: bytes, value: i64, end: i64, without: list[bytes]) -> list[bytes]:
    """Return the encoded entries of the map, except those with the names `without`."""
    p = _first_key(data, value, end)
    left = _entry_count(data, value)
    names = frozenset(without)
    kept: list[bytes] = []
    while left > 0:
        after = value_end(data, p, end, _WHAT)
        constructor: i64 = data[p]
        if constructor == SYMBOL8:
            key = data[p + 2 : after]
        elif constructor == SYMBOL32:
            key = data[p + 5 : after]
        else:
            raise DecodeError(f"{_WHAT}: key of constructor 0x{constructor:02x}, expected a symbol")
        if not key.isascii():
            raise DecodeError(f"{_WHAT}: key that is not ASCII")
        after = value_end(data, after, end, _WHAT, "value")
        if key not in names:
            kept.append(data[p:after])
        p = after
        left -= 1
    if p != end:
        raise DecodeError(f"{_WHAT}: bytes follow the last entry")
    return kept
