"""What filters of AMQP 1.0 are asked about: the header and the bare message, one value at a time.

A message of AMQP 0-9-1 is as a consumer of AMQP 1.0 gets it.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.view import View10
from broker.adapters.view091 import ContentView
from broker.core.view import MessageView
from protocol.amqp091 import properties as basic
from protocol.amqp091.lookup import header_at, property_at, short_string
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import NONE, STRING8
from protocol.amqp10.decoding import decode
from protocol.amqp10.entries import Entries
from protocol.amqp10.headers import PRIORITY_DEFAULT
from protocol.amqp10.properties import CORRELATION_ID, MESSAGE_ID, read_property
from protocol.conversion import names
from protocol.conversion.properties10 import NOT_THERE, SOURCES, property10
from protocol.conversion.values import ARRAY, BYTES, TABLE, TEXT, encoded_value, value_behind

_ID_HEADERS: Final = {MESSAGE_ID: names.MESSAGE_ID, CORRELATION_ID: names.CORRELATION_ID}
_TIMESTAMP_BYTES: Final = 8


class Parts:
    """Some values of one message, as `decode` has them; None is null, not there, or malformed."""

    def property(self, place: i64) -> object:
        """The property at this place."""
        raise NotImplementedError

    def application_property(self, name: bytes) -> object:
        """The application property of this name."""
        raise NotImplementedError

    def priority(self) -> int:
        """The priority, which is 4 if the message says nothing else."""
        raise NotImplementedError

    def durable(self) -> bool:
        """Whether it is to survive."""
        raise NotImplementedError


def parts_of(view: MessageView) -> Parts:
    """The parts of a message that is kept."""
    if isinstance(view, View10):
        return Parts10(view)
    assert isinstance(view, ContentView), "there are no other messages"
    return Parts091(view)


@final
class Parts10(Parts):
    """Of a message of AMQP 1.0."""

    def __init__(self, view: View10) -> None:
        self._view = view
        self._content = view.content
        self._layout = view.layout

    def property(self, place: i64) -> object:
        """The property at this place (Parts)."""
        layout = self._layout
        if layout.properties == NONE:
            return None
        try:
            raw = read_property(self._content, layout.properties, layout.properties_end, place)
        except DecodeError:
            return None
        return None if raw is None else _decoded(raw, 0, len(raw))

    def application_property(self, name: bytes) -> object:
        """The application property of this name (Parts), of several the first."""
        layout = self._layout
        content = self._content
        start, end = layout.application_properties, layout.application_properties_end
        entries = Entries(content, start, end, STRING8)
        while entries.advance():
            if entries.is_for(name):
                return _decoded(content, entries.key_end, entries.end)
        return None

    def priority(self) -> int:
        """The priority (Parts)."""
        return int(self._view.header().priority)

    def durable(self) -> bool:
        """Whether it is to survive (Parts)."""
        return self._view.header().durable


@final
class Parts091(Parts):
    """Of a message of AMQP 0-9-1, by the rules of `protocol.conversion`."""

    def __init__(self, view: ContentView) -> None:
        self._view = view
        self._content = view.content

    def property(self, place: i64) -> object:
        """The property at this place (Parts)."""
        source: i64 = SOURCES[place]
        if source == NOT_THERE:
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

    def application_property(self, name: bytes) -> object:
        """The application property of this name (Parts): no array, no table, and no x- in front."""
        if name.startswith(b"x-"):
            return None
        content = self._content
        start = header_at(content, name)
        if start < 0 or content[start] in (ARRAY, TABLE):
            return None
        return self._header(start)

    def priority(self) -> int:
        """The priority (Parts)."""
        priority = self._view.property("priority")
        return priority if isinstance(priority, int) else PRIORITY_DEFAULT

    def durable(self) -> bool:
        """Whether it is to survive (Parts)."""
        return self._view.property("delivery_mode") == 2

    def _header(self, start: i64) -> object:
        content = self._content
        encoded = encoded_value(content, start, value_behind(content, start, len(content)))
        return None if encoded is None else _decoded(encoded, 0, len(encoded))


def _decoded(data: bytes, start: i64, end: i64) -> object:
    """The value that lies there, None if it does not decode."""
    try:
        value, _ = decode(data, start, end)
    except DecodeError:
        return None
    return value
