"""Messages of AMQP 1.0 as they are stored: views, headers and dead letters.

The headers of a message are its annotations that begin with x- and its application properties. If
several have the same name, the first counts. An annotation counts before an application property, because
application properties are part of the bare message and never change. x-opt-delivery-delay and
x-opt-delivery-time are also the headers x-delay and x-delivery-time. Malformed headers count as absent.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, final
from uuid import UUID

from mypy_extensions import i64

from broker.core.message import Message
from broker.core.message_view import (
    JMS_DELIVERY_MODE,
    JMS_FIELDS,
    PREFIX,
    PROPERTIES,
    MessageView,
    delivery_mode_name,
    plain,
)
from broker.core.names import is_short
from broker.core.publishing.delay import DELIVERY_TIME
from broker.core.queues.death import DeadLetter, Notice, Past
from broker.core.routing.kinds import DELAY
from protocol.amqp10 import properties as p
from protocol.amqp10.annotations import annotate_message, replace_annotations
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import NONE, STRING8, SYMBOL8
from protocol.amqp10.deaths import DEATHS, FIRST, LAST, Death, add_death, decode_deaths, encode_deaths
from protocol.amqp10.decoding import decode
from protocol.amqp10.encoding import encode
from protocol.amqp10.entries import Entries
from protocol.amqp10.headers import Header, header_section, read_priority
from protocol.amqp10.properties import read_property
from protocol.amqp10.sections import Layout, scan_preamble
from protocol.amqp10.types import Array, Map, Timestamp
from protocol.conversion.names import BASIC_TYPE, X_CC

NOTHING: Final[object] = object()
"""The result for an absent value, because None is a value: null."""

_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


def simple_value(value: object) -> object:
    """Return a decoded value as headers have it; NOTHING for a compound, which no application property is.

    Symbols and characters become strings, UUIDs their text, and binaries bytearrays. Timestamps become
    datetimes, or milliseconds if no datetime can hold them. Decimals are NOTHING.
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
    """As `simple_value`, but lists and arrays become lists, and maps become dicts.

    Elements without such a value, and pairs whose key is no string, are left out. An array of values without
    width is NOTHING.
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


_ANNOTATED: Final = "x-"  # the beginning of the names of annotations that are headers
_SCHEDULED: Final = {DELAY: b"x-opt-delivery-delay", DELIVERY_TIME: b"x-opt-delivery-time"}


def all_headers(content: bytes, layout: Layout) -> dict[str, object]:
    """Return the headers with their values."""
    headers: dict[str, object] = {}
    entries = _annotations(content, layout)
    while entries.advance():
        name = _key(entries)
        if name is not None and name.isascii() and name.startswith(_ANNOTATED) and name not in headers:
            value = header_value(_decoded(entries))
            if value is not NOTHING:
                headers[name] = value
    for known, other in _SCHEDULED.items():
        if known not in headers and other.decode() in headers:
            headers[known] = headers[other.decode()]
    entries = _application_properties(content, layout)
    while entries.advance():
        name = _key(entries)
        if name is not None and name not in headers:
            value = simple_value(_decoded(entries))
            if value is not NOTHING:
                headers[name] = value
    return headers


def header_named(content: bytes, layout: Layout, name: str) -> object:
    """Return the header of this name, NOTHING if there is none."""
    try:
        key = name.encode()
    except UnicodeEncodeError:
        return NOTHING
    if name.startswith(_ANNOTATED) and key.isascii():
        value = annotation(content, layout, annotation_name(content, layout, name))
        if value is not NOTHING:
            return value
    entries = _application_properties(content, layout)
    while entries.advance():
        if entries.has_key(key):
            value = simple_value(_decoded(entries))
            if value is not NOTHING:
                return value
    return NOTHING


def annotation_name(content: bytes, layout: Layout, name: str) -> bytes:
    """Return the name of the annotation that is this header, if there is one."""
    key = name.encode()
    if name in _SCHEDULED and annotation(content, layout, key) is NOTHING:
        other = _SCHEDULED[name]
        if annotation(content, layout, other) is not NOTHING:
            return other
    return key


def annotation(content: bytes, layout: Layout, name: bytes) -> object:
    """Return the annotation of this name as a header, NOTHING if there is none."""
    entries = _annotations(content, layout)
    while entries.advance():
        if entries.has_key(name):
            value = header_value(_decoded(entries))
            if value is not NOTHING:
                return value
    return NOTHING


def raw_annotation(content: bytes, layout: Layout, name: bytes) -> object:
    """Return the decoded annotation of this name, NOTHING if there is none."""
    entries = _annotations(content, layout)
    while entries.advance():
        if entries.has_key(name):
            return _decoded(entries)
    return NOTHING


def _annotations(content: bytes, layout: Layout) -> Entries:
    return Entries(content, layout.annotations, layout.annotations_end, SYMBOL8)


def _application_properties(content: bytes, layout: Layout) -> Entries:
    return Entries(content, layout.application_properties, layout.application_properties_end, STRING8)


def _key(entries: Entries) -> str | None:
    try:
        return entries.name().decode()
    except UnicodeDecodeError:
        return None


def _decoded(entries: Entries) -> object:
    """Return the value of an entry, NOTHING if it does not decode."""
    try:
        value, _ = decode(entries.data, entries.key_end, entries.end)
    except DecodeError:
        return NOTHING
    return value


_PLACES: Final = {
    "content_type": p.CONTENT_TYPE,
    "content_encoding": p.CONTENT_ENCODING,
    "correlation_id": p.CORRELATION_ID,
    "reply_to": p.REPLY_TO,
    "message_id": p.MESSAGE_ID,
    "timestamp": p.CREATION_TIME,
    "user_id": p.USER_ID,
    "app_id": p.GROUP_ID,
}
_NAMED: Final = {PREFIX + name.replace("-", "_"): index for index, name in enumerate(p.NAMES)}
_JMS_PLACES: Final = {
    "JMSXGroupID": p.GROUP_ID,
    "JMSXGroupSeq": p.GROUP_SEQUENCE,
    "JMSXUserID": p.USER_ID,
}


@final
class View10(MessageView):
    """A view of the sections before the body of a stored message. Malformed values count as absent.

    The module's docstring defines the headers. No error is raised, whatever the content is.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.layout: Layout = scan_preamble(content)
        self._header: Header | None = None
        self._headers: dict[str, object] | None = None

    def headers(self) -> dict[str, object]:
        """The headers."""
        headers = self._headers
        if headers is None:
            headers = all_headers(self.content, self.layout)
            self._headers = headers
        return headers

    def header_named(self, name: str) -> object | None:
        """The header of this name. The other headers are not decoded."""
        if self._headers is not None:
            return self._headers.get(name)
        value = header_named(self.content, self.layout, name)
        return None if value is NOTHING else value

    def group_id(self) -> object | None:
        """The property group-id, else the header for it."""
        value = self._place(p.GROUP_ID)
        return super().group_id() if value is None else value

    def group_sequence(self) -> object | None:
        """The property group-sequence, else the header for it."""
        value = self._sequence()
        return super().group_sequence() if value is None else value

    def further_keys(self) -> list[str]:
        """The routing keys in the annotation x-cc. [RabbitMQ sender-selected distribution]"""
        value = annotation(self.content, self.layout, X_CC)
        return [key for key in value if isinstance(key, str)] if isinstance(value, list) else []

    def released_content(self, name: str) -> bytes:
        """Return the content with an annotation that has the number negated.

        If an application property has the number, the annotation is added and counts, because the bare
        message stays unchanged.
        """
        number = header_named(self.content, self.layout, name)
        assert isinstance(number, int | float | str), "the header of a delayed message is a number"
        key = annotation_name(self.content, self.layout, name)
        return annotate_message(self.content, self.layout, [], [key], [encode(-int(number))])

    def property(self, name: str) -> object | None:
        """Return a property as AMQP 0-9-1 has it: of at most 255 bytes.

        Ids are text: a UUID with urn:uuid: before it, a number in decimal and a binary in hexadecimal digits.
        `type` is the annotation x-basic-type, `app_id` the group-id, `expiration` the ttl.
        """
        value = self._property(name)
        return None if isinstance(value, str) and not is_short(value) else value

    def lookup(self, name: str) -> object | None:
        """Return the value of an identifier of a selector.

        Fields of JMS follow the JMS mapping to AMQP 1.0. With the prefix `properties.`, all properties also
        have their names of AMQP 1.0, with underscores.
        """
        value = header_named(self.content, self.layout, name)
        if value is not NOTHING:
            return plain(value)
        if name in _NAMED:
            return self._place(_NAMED[name])
        if name.startswith("JMS"):
            return self._jms(name)
        if name.startswith(PREFIX):
            name = name[len(PREFIX) :]
        return self._property(name) if name in PROPERTIES else None

    def header(self) -> Header:
        """Return the header; a malformed header has no fields."""
        header = self._header
        if header is None:
            header = Header()
            layout = self.layout
            if layout.header != NONE:
                try:
                    header.read(self.content, layout.header, layout.header_end)
                except DecodeError:
                    header = Header()
            self._header = header
        return header

    def priority(self) -> i64:
        """Return the priority in the header, NONE if the header has none."""
        layout = self.layout
        if layout.header == NONE:
            return NONE
        try:
            return read_priority(self.content, layout.header, layout.header_end)
        except DecodeError:
            return NONE

    def _property(self, name: str) -> object | None:
        """A property by its name in AMQP 0-9-1, of any length."""
        if name == "delivery_mode":
            return 2 if self.header().durable else 1
        if name == "priority":
            priority = self.priority()
            return None if priority == NONE else int(priority)
        if name == "expiration":
            ttl = self.header().ttl
            return None if ttl == NONE else str(int(ttl))
        if name == "type":
            value = annotation(self.content, self.layout, BASIC_TYPE)
            return value if isinstance(value, str) else None
        return self._place(_PLACES[name]) if name in _PLACES else None

    def _jms(self, name: str) -> object | None:
        """A field by its name in JMS. [AMQP JMS mapping]"""
        if name == JMS_DELIVERY_MODE:
            return delivery_mode_name(self._property("delivery_mode"))
        if name == "JMSPriority":
            return int(self.header().priority)
        if name == "JMSXGroupSeq":
            return self._sequence()
        if name in _JMS_PLACES:
            return self._place(_JMS_PLACES[name])
        value = self._property(JMS_FIELDS[name]) if name in JMS_FIELDS else None
        return self._place(p.SUBJECT) if value is None and name == "JMSType" else value

    def _sequence(self) -> int | None:
        """Return the group-sequence as a serial number: numbers of the upper half are negative."""
        value = self._place(p.GROUP_SEQUENCE)
        if not isinstance(value, int):
            return None
        return value - (1 << 32) if value >= 1 << 31 else value

    def _place(self, index: int) -> object | None:
        """The property at this place, a string or an integer."""
        layout = self.layout
        if layout.properties == NONE:
            return None
        try:
            raw = read_property(self.content, layout.properties, layout.properties_end, index)
            if raw is None:
                return None
            value, _ = decode(raw)
        except DecodeError:
            return None
        if isinstance(value, bytes):
            return _text(value) if index == p.USER_ID else value.hex()
        if isinstance(value, UUID):
            return f"urn:uuid:{value}"
        if isinstance(value, int):
            return str(value) if index in (p.MESSAGE_ID, p.CORRELATION_ID) else int(value)
        return str(value)


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


_ACQUIRED: Final = b"x-acquired-count"
_RETURNED: Final = b"x-delivery-count"
_EXPIRED_BY: Final = b"x-expired-by"
_EXPIRED_WHILE: Final = b"x-expired-while"
_DEATH_FACTS: Final = (b"reason", b"queue", b"exchange")  # the facts of the first and of the last death


def letter_of(message: Message, content: bytes, notice: Notice) -> DeadLetter:
    """Return the dead letter of a message with this content (LetterWriter).

    The history is written into the annotations, by the names of AMQP 0-9-1's headers except x-opt-deaths. The
    ttl is removed from the header, so that the dead letter does not expire again. The further routing keys
    are removed from the annotations unless they are kept. Deaths that a publisher wrote are ignored.
    Annotations that do not decode are of no use, and are removed. The bare message stays unchanged.
    """
    view = View10(content)
    copies = view.further_keys()
    exchange = message.address.exchange
    death = Death(
        notice.queue,
        notice.reason,
        notice.date,
        notice.date,
        exchange,
        [message.address.routing_key, *copies],
        _ttl(message, view),
    )
    deaths = add_death(deaths_of(content) if message.died else [], death)
    facts: dict[bytes, object] = {}
    for prefix in (LAST,) if message.died else (FIRST, LAST):
        for fact, text in zip(_DEATH_FACTS, (death.reason, death.queue, exchange), strict=True):
            facts[prefix + fact] = text
    _add_past(facts, notice.past)
    without = [name for name in (_EXPIRED_BY, _EXPIRED_WHILE) if name not in facts]
    if not notice.keeps_keys:
        copies = []
        without.append(X_CC)
    written = _write_sections(message, view, without, deaths, facts)
    return DeadLetter(written, copies, [(each.queue, each.reason) for each in deaths], View10(written))


def deaths_of(content: bytes) -> list[Death]:
    """Return the history in a dead letter, the latest death first."""
    return decode_deaths(raw_annotation(content, scan_preamble(content), DEATHS))


def first_queue(content: bytes) -> str:
    """Return the queue in which a dead letter died first, "" if the letter does not name it."""
    queue = raw_annotation(content, scan_preamble(content), FIRST + b"queue")
    return queue if isinstance(queue, str) else ""


def without_history(content: bytes) -> bytes:
    """Return a dead letter without its history of deaths."""
    facts = [prefix + fact for prefix in (FIRST, LAST) for fact in _DEATH_FACTS]
    return annotate_message(content, scan_preamble(content), [DEATHS, *facts], [], [])


def _add_past(facts: dict[bytes, object], past: Past | None) -> None:
    """Add the queue's counts and the expired lease."""
    if past is None:
        return
    if past.deliveries > 0:
        facts[_ACQUIRED] = int(past.deliveries)
        facts[_RETURNED] = int(past.returns)
    if past.expired_by:
        facts[_EXPIRED_BY] = past.expired_by
        facts[_EXPIRED_WHILE] = past.expired_while


def _write_sections(
    message: Message, view: View10, without: list[bytes], deaths: list[Death], facts: dict[bytes, object]
) -> bytes:
    """Return the content with a header without ttl, and with the history in its annotations."""
    layout = view.layout
    header = view.header()
    durable = message.persistent if layout.header == NONE else header.durable
    section = replace_annotations(
        view.content,
        layout.annotations,
        layout.annotations_end,
        without,
        [DEATHS, *facts],
        [encode_deaths(deaths), *[encode(value) for value in facts.values()]],
    )
    return b"".join(
        (
            header_section(durable, view.priority(), NONE, header.first_acquirer, header.delivery_count),
            section,
            view.content[layout.bare :],
        )
    )


def _ttl(message: Message, view: View10) -> int:
    """Return the milliseconds, NONE if the message has none."""
    return int(message.expiration if message.expiration >= 0 else view.header().ttl)
