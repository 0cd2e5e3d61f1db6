"""Edit messages of AMQP 1.0 by AMQP 0-9-1's names of properties and headers.

Parts that an edition does not name keep their bytes, except the sizes of the changed sections.
"""

from typing import Final, final

from mypy_extensions import i64

from protocol.amqp091 import properties as basic
from protocol.amqp091.deaths import X_DEATH
from protocol.amqp091.properties import Properties
from protocol.amqp10 import properties as places
from protocol.amqp10.annotations import replace_annotations
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import NONE, SMALL_ULONG, STRING8, SYMBOL8
from protocol.amqp10.deaths import DEATHS
from protocol.amqp10.descriptors import APPLICATION_PROPERTIES, DATA, HEADER, MESSAGE_ANNOTATIONS, PROPERTIES
from protocol.amqp10.entries import Entries
from protocol.amqp10.fields import Fields
from protocol.amqp10.headers import Header, header_section, read_priority
from protocol.amqp10.sections import Layout, Sections, scan_preamble
from protocol.amqp10.writing import NULL_VALUE, binary, composite
from protocol.conversion import names
from protocol.conversion.to10 import content10
from protocol.conversion.values import string_map

_PLACES: Final = {
    basic.CONTENT_TYPE: places.CONTENT_TYPE,
    basic.CONTENT_ENCODING: places.CONTENT_ENCODING,
    basic.CORRELATION_ID: places.CORRELATION_ID,
    basic.REPLY_TO: places.REPLY_TO,
    basic.MESSAGE_ID: places.MESSAGE_ID,
    basic.TIMESTAMP: places.CREATION_TIME,
    basic.USER_ID: places.USER_ID,
    basic.APP_ID: places.GROUP_ID,
}
_IN_HEADER: Final = (basic.DELIVERY_MODE, basic.PRIORITY, basic.EXPIRATION)
_ANNOTATIONS: Final = {names.CC: names.X_CC, X_DEATH: DEATHS}  # by the headers that become these


@final
class _Preamble:
    """The sections before a body, with the decoded parts that an edition can change. Raises DecodeError."""

    def __init__(self, content: bytes) -> None:
        self.sections: dict[int, bytes] = {}  # by their descriptors
        self.layout: Layout = scan_preamble(content)
        self.content = content
        end: i64 = 0
        sections = Sections(content, 0, len(content))
        while sections.advance() and sections.code < DATA:
            self.sections[sections.code] = content[sections.start : sections.end]
            end = sections.end
        self.rest = content[end:]
        self.header = Header()
        self.priority: i64 = NONE
        layout = self.layout
        if layout.header != NONE:
            self.header.read(content, layout.header, layout.header_end)
            self.priority = read_priority(content, layout.header, layout.header_end)
        self.fields = property_fields(content, layout)
        self.annotations = map_entries(content, layout.annotations, layout.annotations_end, SYMBOL8)
        self.application = map_entries(
            content, layout.application_properties, layout.application_properties_end, STRING8
        )


@final
class Edition:
    """The changes to make in messages.

    `new`: a content of AMQP 0-9-1 with the new properties and headers. `changed`: the places, by names, of
    the properties to set as in `new`, or to remove if `new` lacks them. `headers`: the names of the headers
    to set or remove likewise. `bare`: messages keep no other headers. `payload`: the new body, None to keep
    the old body.

    Raises ValueError for a value that no message of AMQP 1.0 can have.
    """

    def __init__(
        self, new: bytes, changed: dict[str, int], headers: list[bytes], bare: bool, payload: bytes | None
    ) -> None:
        self._new = _Preamble(content10(new, "", ""))
        self._places = list(changed.values())
        self._bare = bare
        self._payload = payload
        self._headers = headers
        self._annotations = {
            name: value
            for name, value in self._new.annotations.items()
            if name not in (names.EXCHANGE, names.ROUTING_KEY)
        }
        self._without = [_ANNOTATIONS.get(name, name) for name in headers]
        if basic.TYPE in self._places:
            self._without.append(names.BASIC_TYPE)
        self._check(Properties(new), changed)

    def _check(self, new: Properties, changed: dict[str, int]) -> None:
        """Raise ValueError for a new value that has no counterpart in AMQP 1.0."""
        for name, _ in new.fields():
            if _ANNOTATIONS.get(name, name) not in self._annotations and name not in self._new.application:
                text = name.decode(errors="backslashreplace")
                raise ValueError(f"header '{text}' has a value that a message of AMQP 1.0 cannot have")
        for property_name, place in changed.items():
            if new.octets(place) is not None and not self._has(place):
                raise ValueError(
                    f"property {property_name} has a value that a message of AMQP 1.0 cannot have"
                )

    def _has(self, place: int) -> bool:
        if place in _PLACES:
            return self._new.fields[_PLACES[place]] != NULL_VALUE
        if place == basic.TYPE:
            return names.BASIC_TYPE in self._annotations
        if place == basic.EXPIRATION:
            return self._new.header.ttl != NONE
        return place in _IN_HEADER

    def content(self, content: bytes) -> bytes:
        """Return the changed content of a message. Raises DecodeError for a malformed message."""
        old = _Preamble(content)
        return b"".join(
            (
                self._header(old),
                self._annotation_section(old),
                self._property_section(old),
                self._application_section(old),
                old.rest if self._payload is None else data_section(self._payload),
            )
        )

    def _header(self, old: _Preamble) -> bytes:
        if not any(place in _IN_HEADER for place in self._places):
            return old.sections.get(HEADER, b"")
        new = self._new
        return header_section(
            (new if basic.DELIVERY_MODE in self._places else old).header.durable,
            (new if basic.PRIORITY in self._places else old).priority,
            (new if basic.EXPIRATION in self._places else old).header.ttl,
            old.header.first_acquirer,
            old.header.delivery_count,
        )

    def _annotation_section(self, old: _Preamble) -> bytes:
        without = list(self._without)
        if self._bare:
            without += [name for name in old.annotations if _is_header(name)]
        if not self._annotations and not any(name in old.annotations for name in without):
            return old.sections.get(MESSAGE_ANNOTATIONS, b"")
        layout = old.layout
        values = list(self._annotations.values())
        return replace_annotations(
            old.content, layout.annotations, layout.annotations_end, without, list(self._annotations), values
        )

    def _property_section(self, old: _Preamble) -> bytes:
        fields = list(old.fields)
        for place in self._places:
            if place in _PLACES:
                fields[_PLACES[place]] = self._new.fields[_PLACES[place]]
        if fields == old.fields:
            return old.sections.get(PROPERTIES, b"")
        return composite(PROPERTIES, fields)

    def _application_section(self, old: _Preamble) -> bytes:
        entries: dict[bytes, bytes] = {}
        if not self._bare:
            entries = {name: value for name, value in old.application.items() if name not in self._headers}
        entries.update(self._new.application)
        if entries == old.application:
            return old.sections.get(APPLICATION_PROPERTIES, b"")
        return bytes((0, SMALL_ULONG, APPLICATION_PROPERTIES)) + string_map(entries) if entries else b""


def data_section(payload: bytes) -> bytes:
    """Return a body of a single data section."""
    return bytes((0, SMALL_ULONG, DATA)) + binary(payload)


def _is_header(annotation: bytes) -> bool:
    """Whether clients of AMQP 0-9-1 get the annotation as a header."""
    return annotation.startswith(b"x-") and not names.is_internal(annotation)


def property_fields(content: bytes, layout: Layout) -> list[bytes]:
    """Return the encoded properties by their places. Raises DecodeError."""
    values = [NULL_VALUE] * len(places.NAMES)
    if layout.properties != NONE:
        fields = Fields()
        fields.open_list(content, layout.properties, layout.properties_end, "properties", len(places.NAMES))
        for place, name in enumerate(places.NAMES):
            start = fields.raw(name)
            if start != NONE:
                values[place] = content[start : fields.p]
    return values


def map_entries(content: bytes, value: i64, end: i64, kind: i64) -> dict[bytes, bytes]:
    """Return the entries of a map with encoded values. Raises DecodeError if any entry is malformed."""
    by_key: dict[bytes, bytes] = {}
    entries = Entries(content, value, end, kind)
    while entries.advance():
        by_key[entries.name()] = content[entries.key_end : entries.end]
    if entries.malformed:
        raise DecodeError("malformed map")
    return by_key
