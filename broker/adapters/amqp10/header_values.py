"""Values of AMQP 1.0 as those of the core's headers, which are the same whatever the protocol."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from protocol.amqp10.types import Array, Map, Timestamp

NOTHING: Final[object] = object()
"""Instead of a value: there is none. None is a value, null."""

_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


def simple_value(value: object) -> object:
    """A decoded value as headers have it; NOTHING for a compound, which no application property may be.

    Symbols and characters become strings, UUIDs their text, binaries bytearrays and timestamps datetimes,
    or milliseconds if they are too far away for that. Decimals are NOTHING.
    """
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, Timestamp):
        return _time(value)
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return bytearray(value)
    if isinstance(value, UUID):
        return str(value)
    return NOTHING


def header_value(value: object) -> object:
    """As `simple_value`, but lists and arrays become lists, and maps dicts of what has a string for its key.

    What is in them and has no such value is left out. An array of values without width is NOTHING.
    """
    if isinstance(value, list):
        return _values(value)
    if isinstance(value, Array):
        if value.descriptors or value.count != len(value.items):
            return NOTHING
        return _values(value.items)
    if isinstance(value, dict):
        return _table(list(value.items()))
    if isinstance(value, Map):
        return _table(value.pairs)
    return simple_value(value)


def _values(items: list[object]) -> list[object]:
    values = [header_value(item) for item in items]
    return [value for value in values if value is not NOTHING]


def _table(pairs: list[tuple[object, object]]) -> dict[str, object]:
    table: dict[str, object] = {}
    for key, item in pairs:
        if isinstance(key, str) and key not in table:
            value = header_value(item)
            if value is not NOTHING:
                table[str(key)] = value
    return table


def _time(value: int) -> object:
    try:
        return _BEGINNING + timedelta(milliseconds=value)
    except OverflowError:
        return int(value)
