"""One header of messages, as queues need it that keep an order or tell messages apart by it."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, final

from broker.core.field_values import encode, type_name
from broker.core.message import Message
from broker.core.ports import MessageStore
from broker.core.view import Views

SortKey = tuple[int, Any]

ABSENT: Final[SortKey] = (0, 0)
_NUMBER: Final = 1
_NO_NUMBER: Final[SortKey] = (2, 0)  # NaN, which is neither more nor less than anything
_OCTETS: Final = 3
_BOOLEAN: Final = 4
_TIME: Final = 5
_ANYTHING_ELSE: Final[SortKey] = (6, 0)


@final
class Headers:
    """Reads headers of messages in memory or on disk."""

    def __init__(self, views: Views, store: MessageStore) -> None:
        self._views = views
        self._store = store

    def value(self, message: Message, name: str) -> object | None:
        """The header of this name; None if the message has it not, if it is void, or if it cannot be read.

        To enqueue is not to judge: headers that do not decode are their consumers' trouble, and so is content
        that the disk does not give back.
        """
        try:
            return self._views(message, self._store).headers().get(name)
        except Exception:
            return None

    def has_priority(self, message: Message) -> bool:
        """Whether the message says what its priority is; false if that cannot be read."""
        try:
            return self._views(message, self._store).property("priority") is not None
        except Exception:
            return False


def sort_key(value: object | None) -> SortKey:
    """What values of a header are ordered by, whatever their types.

    First those that are absent or void, then numbers, whatever their types, by value, and NaN; then strings
    and binaries by their octets, false, true, times; then arrays and tables, among which there is no order.
    """
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return _BOOLEAN, value
    if isinstance(value, (int, float, Decimal)):
        return (_NUMBER, value) if value == value else _NO_NUMBER
    if isinstance(value, (str, bytes, bytearray)):
        return _OCTETS, _octets(value)
    if isinstance(value, datetime):
        return _TIME, value.timestamp()
    return _ANYTHING_ELSE


def key_text(key: SortKey) -> str:
    """A text that `key_of_text` makes the key of again."""
    kind, value = key
    if isinstance(value, bytes):
        return f"{kind} octets {value.hex()}"
    if isinstance(value, float):
        return f"{kind} float {value.hex()}"
    return f"{kind} {type(value).__name__} {value}"


def key_of_text(text: str) -> SortKey:
    """The key that `key_text` has made this text of. Raises ValueError."""
    kind, name, value = [*text.split(" "), "", ""][:3]
    if name not in _READERS or not kind.isdecimal() or not 0 <= int(kind) <= _ANYTHING_ELSE[0]:
        raise ValueError(f"'{text}' names no value")
    try:
        found = _READERS[name](value)
    except ArithmeticError as error:
        raise ValueError(f"'{text}' names no value") from error
    if (int(kind) == _OCTETS) != isinstance(found, bytes) or found != found:
        raise ValueError(f"'{text}' names no value")
    return int(kind), found


_READERS: Final[dict[str, Any]] = {
    "octets": bytes.fromhex,
    "float": float.fromhex,
    "int": int,
    "Decimal": Decimal,
    "bool": lambda value: value == "True",
}


def identity(value: object) -> object:
    """Something that can be a key of a dict, and is the same for the same values of a header.

    Values are the same within one type only, as for headers exchanges: 1 is not 1.0, and not true.
    """
    if isinstance(value, (str, bytes, bytearray)):
        return _octets(value)
    if isinstance(value, bool) or not isinstance(value, (int, list, tuple, dict)):
        return type_name(value), value
    if isinstance(value, int):
        return value
    return json.dumps(encode(value), sort_keys=True)


def _octets(value: str | bytes | bytearray) -> bytes:
    """A string that is not UTF-8 arrives as bytes and is still a string."""
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)
