"""The filters that compare properties with reference values. [filtex-v1.0 4.1.1, 4.2.4, 4.2.5]"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final
from uuid import UUID

from mypy_extensions import i64

from broker.adapters.amqp10.filters.parts import parts_of
from broker.core.message_view import Criterion, MessageView
from protocol.amqp10 import properties as p
from protocol.amqp10.types import Char, Decimal, Map, Symbol, Timestamp

_EQUAL: Final = 0
_PRESENT: Final = 1
_BEGINNING: Final = 2
_END: Final = 3
_OTHERS: Final = (bool, Timestamp, bytes, UUID, Decimal)


@final
class Reference:
    """The value that a filter demands of a property.

    A string that begins with `&p:` demands a prefix, and with `&s:` a suffix. `&&` at the beginning means an
    `&`. In a symbol these have no meaning. Null demands any value. `text`: references with the same text
    match the same values.

    Raises:
        ValueError: no property can have such a value.
    """

    def __init__(self, value: object) -> None:
        self._comparison: i64 = _EQUAL
        self._value: object = value
        if value is None:
            self._comparison = _PRESENT
        elif isinstance(value, str):
            self._value = str(value)
            if value.startswith("&") and not isinstance(value, (Symbol, Char)):
                self._parse_prefix(value)
        elif isinstance(value, float):
            self._value = float(value)
        elif isinstance(value, int) and not isinstance(value, (bool, Timestamp)):
            self._value = int(value)
        elif not isinstance(value, _OTHERS):
            raise ValueError("is not a simple value")
        self.text = f"{int(self._comparison)} {type(self._value).__name__} {self._value!r}"

    def _parse_prefix(self, value: str) -> None:
        if value.startswith("&p:"):
            self._comparison = _BEGINNING
            self._value = value[3:]
        elif value.startswith("&s:"):
            self._comparison = _END
            self._value = value[3:]
        elif value.startswith("&&"):
            self._value = value[1:]
        else:
            raise ValueError("begins with an & that is followed by neither &, p: nor s:")

    def exact_value(self) -> str | int | None:
        """The demanded string or integer; None for any other demand."""
        value = self._value
        if self._comparison != _EQUAL or isinstance(value, (bool, Timestamp)):
            return None
        return value if isinstance(value, (str, int)) else None

    def matches_value(self, value: object) -> bool:
        """Whether a property's value matches; None for an absent property.

        Numbers of all types are compared as numbers, strings with symbols, other types with themselves.
        """
        if value is None:
            return False
        wanted = self._value
        if isinstance(wanted, str):
            if not isinstance(value, str):
                return False
            if self._comparison == _EQUAL:
                return value == wanted
            return value.startswith(wanted) if self._comparison == _BEGINNING else value.endswith(wanted)
        if self._comparison == _PRESENT:
            return True
        if isinstance(wanted, (bool, Timestamp)) or isinstance(value, (bool, Timestamp)):
            return type(wanted) is type(value) and wanted == value
        if isinstance(wanted, (int, float)):
            return isinstance(value, (int, float)) and wanted == value
        return type(wanted) is type(value) and wanted == value


FIELDS_MAX: Final = 16  # properties in a filter [filtex-v1.0 7.1]

_ID: Final = "a string, a ulong, a UUID or a binary"
_EXPECTED: Final = {
    p.MESSAGE_ID: _ID,
    p.USER_ID: "a binary",
    p.CORRELATION_ID: _ID,
    p.ABSOLUTE_EXPIRY_TIME: "a timestamp",
    p.CREATION_TIME: "a timestamp",
    p.GROUP_SEQUENCE: "an integer",
}
_STRING: Final = "a string"  # or a symbol


@final
class PropertiesFilter(Criterion):
    """The demand that properties match references, by names; an absent property does not match.

    Raises:
        ValueError: the filter is no map of at most FIELDS_MAX properties with values that they can have.
    """

    def __init__(self, value: object) -> None:
        self._fields: list[tuple[int, Reference]] = []
        for name, wanted in _pairs(value):
            if name not in p.NAMES:
                raise ValueError(f"'{name}' is not a property")
            place = p.NAMES.index(name)
            expected = _EXPECTED.get(place, _STRING)
            if wanted is not None and not _is_expected(wanted, expected):
                raise ValueError(f"'{name}' is not {expected}")
            self._fields.append((place, _reference(name, wanted)))
        texts = sorted(f"{p.NAMES[place]} {reference.text}" for place, reference in self._fields)
        super().__init__(f"properties: {texts}", [])

    def matches(self, view: MessageView) -> bool:
        """Whether all properties match."""
        parts = parts_of(view)
        return all(reference.matches_value(parts.property(place)) for place, reference in self._fields)


@final
class ApplicationPropertiesFilter(Criterion):
    """The demand that application properties match references; an absent property does not match.

    Raises:
        ValueError: the filter is no map of at most FIELDS_MAX strings and simple values.
    """

    def __init__(self, value: object) -> None:
        self._fields: list[tuple[bytes, Reference]] = []
        demands: list[tuple[str, str | int]] = []
        texts: list[str] = []
        for name, wanted in _pairs(value):
            reference = _reference(name, wanted)
            self._fields.append((name.encode(), reference))
            texts.append(f"{name!r} {reference.text}")
            exact_value = reference.exact_value()
            if exact_value is not None and is_header(name):
                demands.append((name, exact_value))
        super().__init__(f"application-properties: {sorted(texts)}", demands)

    def matches(self, view: MessageView) -> bool:
        """Whether all application properties match."""
        parts = parts_of(view)
        return all(
            reference.matches_value(parts.application_property(name)) for name, reference in self._fields
        )


def is_header(name: str) -> bool:
    """Whether selectors read this name from the application properties first."""
    return not name.startswith("x-")


def _pairs(value: object) -> list[tuple[str, object]]:
    pairs: Iterable[tuple[object, object]]
    if isinstance(value, Map):
        pairs = value.pairs
    elif isinstance(value, dict):
        pairs = value.items()
    else:
        raise ValueError("is not a map")
    values: dict[str, object] = {}
    for name, wanted in pairs:
        if not isinstance(name, str) or isinstance(name, Char):
            raise ValueError("has a key that is not a string")
        if name in values:
            raise ValueError(f"has '{name}' twice")
        values[str(name)] = wanted
        if len(values) > FIELDS_MAX:
            raise ValueError(f"has more than {FIELDS_MAX} fields")
    return list(values.items())


def _is_expected(value: object, expected: str) -> bool:
    """Whether the value has the type that is `expected` of the property."""
    if expected == "a timestamp":
        return isinstance(value, Timestamp)
    integer = isinstance(value, int) and not isinstance(value, (bool, Timestamp))
    if expected == "an integer":
        return integer
    if expected == "a binary":
        return isinstance(value, bytes)
    string = isinstance(value, str) and not isinstance(value, Char)
    return string or (expected == _ID and (integer or isinstance(value, (bytes, UUID))))


def _reference(name: str, wanted: object) -> Reference:
    try:
        return Reference(wanted)
    except ValueError as error:
        raise ValueError(f"'{name}' {error}") from error
