"""The primitive types that fields of composites may have, decoded leniently and encoded exactly."""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple
from uuid import UUID

from protocol.amqp10.restricted import RESTRICTED
from protocol.amqp10.types import Char, Map, Symbol, Timestamp, Ubyte, Uint, Ulong, Ushort

WRONG: Final = object()
"""The result of `Kind.read` for a value of another kind."""


class Kind(NamedTuple):
    """A primitive type: its name, and the conversions of a decoded value and of a value to be encoded."""

    name: str
    read: Callable[[object], object]
    write: Callable[[Any], object]


def _integers(name: str, bits: int, write: Callable[[Any], object]) -> Kind:
    def read(value: object) -> object:
        if not isinstance(value, int) or isinstance(value, bool | Timestamp) or not 0 <= value < 1 << bits:
            return WRONG
        return int(value)

    return Kind(name, read, write)


def _boolean(value: object) -> object:
    return value if isinstance(value, bool) else WRONG


def _timestamp(value: object) -> object:
    return value if isinstance(value, Timestamp) else WRONG


def _uuid(value: object) -> object:
    return value if isinstance(value, UUID) else WRONG


def _binary(value: object) -> object:
    return value if isinstance(value, bytes) else WRONG


def _string(value: object) -> object:
    return str(value) if isinstance(value, str) and not isinstance(value, Char) else WRONG


def _symbol(value: object) -> object:
    if not isinstance(value, str) or isinstance(value, Char) or not value.isascii():
        return WRONG
    return Symbol(value)


def _read_map(value: object, read_key: Callable[[object], object]) -> object:
    """Return the entries of a map as a dict; WRONG unless all keys are of one kind and differ."""
    pairs: Iterable[tuple[object, object]]
    if isinstance(value, Map):
        pairs = value.pairs
    elif isinstance(value, dict):
        pairs = value.items()
    else:
        return WRONG
    result: dict[object, object] = {}
    for key, item in pairs:
        read = read_key(key)
        if read is WRONG or read in result:
            return WRONG
        result[read] = item
    return result


def _fields(value: object) -> object:
    return _read_map(value, _symbol)


def _tags(value: object) -> object:
    return _read_map(value, _binary)


_KINDS: Final = {
    "boolean": Kind("boolean", _boolean, bool),
    "ubyte": _integers("ubyte", 8, Ubyte),
    "ushort": _integers("ushort", 16, Ushort),
    "uint": _integers("uint", 32, Uint),
    "ulong": _integers("ulong", 64, Ulong),
    "timestamp": Kind("timestamp", _timestamp, _timestamp),
    "uuid": Kind("uuid", _uuid, _uuid),
    "binary": Kind("binary", _binary, bytes),
    "string": Kind("string", _string, str),
    "symbol": Kind("symbol", _symbol, Symbol),
    "map": Kind("map of binary keys, each once", _tags, _tags),  # only attach.unsettled is such a field
}
_FIELDS: Final = Kind("map of symbols, each once", _fields, _fields)
_SOURCES: Final = {restricted.name: restricted.source for restricted in RESTRICTED}


def kind_of(name: str) -> Kind:
    """Return the kind of a primitive or restricted type; restricted types of maps have symbols as keys."""
    source = name
    while source in _SOURCES:
        source = _SOURCES[source]
    return _FIELDS if source == "map" != name else _KINDS[source]
