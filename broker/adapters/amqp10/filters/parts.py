"""The parts of a message that filters of AMQP 1.0 read: priority, durable, and properties.

A message of AMQP 0-9-1 has the parts that a receiver of AMQP 1.0 gets.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from broker.adapters.formats.amqp091 import ContentView
from broker.adapters.formats.amqp10 import View10
from broker.core.message_view import MessageView
from protocol.amqp091 import properties as basic
from protocol.amqp091.lookup import header_at, property_at, short_string
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import NONE, STRING8
from protocol.amqp10.decoding import decode
from protocol.amqp10.entries import Entries
from protocol.amqp10.headers import PRIORITY_DEFAULT
from protocol.amqp10.properties import CORRELATION_ID, MESSAGE_ID, read_property
from protocol.conversion import names
from protocol.conversion.properties10 import ABSENT, SOURCES, property10
from protocol.conversion.values import ARRAY, BYTES, TABLE, TEXT, TableFields, encoded_value, field_value_end

_ID_HEADERS: Final = {MESSAGE_ID: names.MESSAGE_ID, CORRELATION_ID: names.CORRELATION_ID}
_TIMESTAMP_BYTES: Final = 8
SEARCHES_MAX: Final = 8  # searches for single application properties


class Parts:
    """The values of a message, as `decode` returns them; None for null, absent and malformed values."""

    def __init__(self) -> None:
        self._searches: i64 = 0
        self._places: dict[bytes, int] | None = None

    def property(self, place: i64) -> object:
        """Return the property at this place of the properties section."""
        raise NotImplementedError

    def application_property(self, name: bytes) -> object:
        """Return the application property of this name.

        The first LOOKS_MAX names are searched one by one. For further names, the places of all properties are
        collected once.
        """
        places = self._places
        if places is None:
            self._searches += 1
            if self._searches <= SEARCHES_MAX:
                return self._value(self._place(name))
            places = self._all_places()
            self._places = places
        return self._value(places.get(name, NONE))

    def _place(self, name: bytes) -> i64:
        """Return the place of the application property of this name, NONE if it is absent."""
        raise NotImplementedError

    def _all_places(self) -> dict[bytes, int]:
        """Return the places of all application properties, by their names."""
        raise NotImplementedError

    def _value(self, place: i64) -> object:
        """Return the application property at this place; None for NONE."""
        raise NotImplementedError

    def priority(self) -> int:
        """Return the priority, 4 by default."""
        raise NotImplementedError

    def durable(self) -> bool:
        """Whether the message is durable."""
        raise NotImplementedError


def parts_of(view: MessageView) -> Parts:
    """Return the parts of a stored message."""
    if isinstance(view, View10):
        return Parts10(view)
    assert isinstance(view, ContentView), "a stored message is of AMQP 1.0 or 0-9-1"
    return Parts091(view)


@final
class Parts10(Parts):
    """The parts of a message of AMQP 1.0."""

    def __init__(self, view: View10) -> None:
        super().__init__()
        self._view = view
        self._content = view.content
        self._layout = view.layout

    def property(self, place: i64) -> object:
        """Return the property at this place."""
        layout = self._layout
        if layout.properties == NONE:
            return None
        try:
            raw = read_property(self._content, layout.properties, layout.properties_end, place)
        except DecodeError:
            return None
        return None if raw is None else _decoded(raw, 0, len(raw))

    def _place(self, name: bytes) -> i64:
        """Return the place of the property, the first of several."""
        entries = self._entries()
        while entries.advance():
            if entries.has_key(name):
                return entries.key_end
        return NONE

    def _all_places(self) -> dict[bytes, int]:
        """Return all places, for each name the first."""
        places: dict[bytes, int] = {}
        content = self._content
        entries = self._entries()
        while entries.advance():
            places.setdefault(content[entries.key : entries.key_end], entries.key_end)
        return places

    def _entries(self) -> Entries:
        layout = self._layout
        return Entries(
            self._content, layout.application_properties, layout.application_properties_end, STRING8
        )

    def _value(self, place: i64) -> object:
        """Return the value at this place."""
        return (
            None if place == NONE else _decoded(self._content, place, self._layout.application_properties_end)
        )

    def priority(self) -> int:
        """The priority."""
        return int(self._view.header().priority)

    def durable(self) -> bool:
        """Whether the message is durable."""
        return self._view.header().durable


@final
class Parts091(Parts):
    """The parts of a message of AMQP 0-9-1, as `protocol.conversion` converts them."""

    def __init__(self, view: ContentView) -> None:
        super().__init__()
        self._view = view
        self._content = view.content

    def property(self, place: i64) -> object:
        """Return the property at this place."""
        source: i64 = SOURCES[place]
        if source == ABSENT:
            return None
        content = self._content
        start = property_at(content, source)
        if start >= 0:
            if source == basic.TIMESTAMP:
                raw = content[start : start + _TIMESTAMP_BYTES]
            else:
                raw = short_string(content, start)
            encoded = property10(place, raw)
            return None if encoded is None else _decoded(encoded, 0, len(encoded))
        if place in (MESSAGE_ID, CORRELATION_ID):
            start = header_at(content, _ID_HEADERS[place])
            if start >= 0 and content[start] in (TEXT, BYTES):
                return self._header(start)
        return None

    def _place(self, name: bytes) -> i64:
        """Return the place of the header, the last of several; NONE for x- headers."""
        return NONE if name.startswith(b"x-") else header_at(self._content, name)

    def _all_places(self) -> dict[bytes, int]:
        """Return all places."""
        places: dict[bytes, int] = {}
        content = self._content
        start = property_at(content, basic.HEADERS)
        if start >= 0:
            length: int = read_i32_be(content, start)
            fields = TableFields(content, start + 4, start + 4 + length)
            while fields.advance():
                if not fields.name.startswith(b"x-"):
                    places[fields.name] = fields.value
            if fields.malformed:
                places.clear()
        return places

    def _value(self, place: i64) -> object:
        """Return the header at this place, unless it is an array or a table."""
        if place == NONE or self._content[place] in (ARRAY, TABLE):
            return None
        return self._header(place)

    def priority(self) -> int:
        """The priority."""
        priority = self._view.property("priority")
        return priority if isinstance(priority, int) else PRIORITY_DEFAULT

    def durable(self) -> bool:
        """Whether the message is durable."""
        return self._view.property("delivery_mode") == 2

    def _header(self, start: i64) -> object:
        content = self._content
        encoded = encoded_value(content, start, field_value_end(content, start, len(content)))
        return None if encoded is None else _decoded(encoded, 0, len(encoded))


def _decoded(data: bytes, start: i64, end: i64) -> object:
    """Return the value at this place, None if it does not decode."""
    try:
        value, _ = decode(data, start, end)
    except DecodeError:
        return None
    return value
