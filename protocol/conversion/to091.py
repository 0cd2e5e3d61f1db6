"""Convert the sections of AMQP 1.0 to a content of AMQP 0-9-1. [amqp-1.0 messaging 3.2, amqp-0-9-1 4.2.6]"""

from typing import Final, final

from mypy_extensions import i64

from protocol.amqp091 import properties as basic
from protocol.amqp091.constants import CLASS_BASIC, FRAME_BODY, FRAME_END, FRAME_HEADER
from protocol.amqp091.deaths import X_DEATH
from protocol.amqp10.addresses import AddressError, unquote
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import (
    BINARY8,
    BINARY32,
    NONE,
    SMALL_ULONG,
    STRING8,
    STRING32,
    SYMBOL8,
    TIMESTAMP,
    ULONG,
    ULONG0,
    UUID,
)
from protocol.amqp10.deaths import DEATHS
from protocol.amqp10.descriptors import AMQP_VALUE, DATA, HEADER
from protocol.amqp10.entries import Entries
from protocol.amqp10.fields import Fields
from protocol.amqp10.properties import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    CREATION_TIME,
    GROUP_ID,
    MESSAGE_ID,
    NAMES,
    REPLY_TO,
    USER_ID,
)
from protocol.amqp10.sections import Layout, Sections, scan
from protocol.conversion import names
from protocol.conversion.deaths import x_death
from protocol.conversion.field_values import (
    SHORT_BYTES_MAX,
    field_value,
    seconds,
    table,
    uuid_text,
)
from protocol.conversion.octets import is_text

_QUEUES: Final = b"/queues/"
_TEXT_PLAIN: Final = b"\x0atext/plain"
_ENCODED_BODY: Final = bytes((len(names.ENCODED_BODY),)) + names.ENCODED_BODY
_PERSISTENT: Final = b"\x02"
_TRANSIENT: Final = b"\x01"
_COUNT: Final = 14
_FIXED_BYTES: Final = 14  # the payload of a content header frame before the property values
_HEADER_START: Final = bytes((FRAME_HEADER, 0, 0))
_BODY_START: Final = bytes((FRAME_BODY, 0, 0))
_END: Final = bytes((FRAME_END,))
_CLASS: Final = bytes((0, CLASS_BASIC, 0, 0))
_HEADER_FIELDS: Final = 5


def content091(content: bytes, opaque: bool = False, value_as_text: bool = False, ttl: i64 = NONE) -> bytes:
    """Return the content header and body frames, of channel 0 and any size, for the sections of a message.

    `opaque`: the whole message becomes the body, and only its header section is read.
    `ttl`: the remaining time to live, in ms; NONE: the header has it.
    `value_as_text`: the body of a message with a string or binary as amqp-value is this text or these bytes,
    instead of the section. [RabbitMQ conversions]
    """
    properties = _Properties()
    layout: Layout | None = None
    if not opaque:
        try:
            layout = scan(content, 0, len(content))
        except DecodeError:
            layout = None  # the whole message becomes the body, so that no part of it is lost
    if layout is None:
        properties.read_first_header(content)
        properties.expire(ttl)
        properties.values[basic.TYPE] = _ENCODED_BODY
        return _frames(properties, content)
    if layout.header != NONE:
        properties.read_header(content, layout.header, layout.header_end)
    properties.expire(ttl)
    if layout.application_properties != NONE:
        properties.read_application(content, layout.application_properties, layout.application_properties_end)
    if layout.annotations != NONE:
        properties.read_annotations(content, layout.annotations, layout.annotations_end)
    if layout.properties != NONE:
        properties.read_list(content, layout.properties, layout.properties_end)
    return _frames(properties, _body(content, layout, properties, value_as_text))


@final
class _Properties:
    """The values of the property list by their places, encoded, and the headers.

    After a value that does not decode, the values that were read before from its section are kept.
    """

    def __init__(self) -> None:
        self.values: list[bytes | None] = [None] * _COUNT
        self.values[basic.DELIVERY_MODE] = _TRANSIENT
        self.headers: dict[bytes, bytes] = {}

    def read_first_header(self, content: bytes) -> None:
        """Read the header section, if the content begins with it."""
        sections = Sections(content, 0, len(content))
        try:
            if sections.advance() and sections.code == HEADER:
                self.read_header(content, sections.value, sections.end)
        except DecodeError:
            return

    def read_header(self, content: bytes, value: i64, end: i64) -> None:
        """Read the header section. Null fields stay unset, because AMQP 0-9-1 has other defaults."""
        fields = Fields()
        try:
            fields.open_list(content, value, end, "header", _HEADER_FIELDS)
            if fields.boolean("durable"):
                self.values[basic.DELIVERY_MODE] = _PERSISTENT
            priority = fields.ubyte("priority")
            if priority != NONE:
                octet: int = priority
                self.values[basic.PRIORITY] = bytes((octet,))
            self.expire(fields.uint("ttl"))
        except DecodeError:
            return

    def expire(self, ttl: i64) -> None:
        """Set the expiration, in ms, unless it is NONE."""
        if ttl != NONE:
            self.values[basic.EXPIRATION] = _short(str(ttl).encode())

    def read_application(self, content: bytes, value: i64, end: i64) -> None:
        """Read the application-properties section: all properties become headers."""
        entries = Entries(content, value, end, STRING8)
        while entries.advance():
            self._header(entries.name(), field_value(content, entries.key_end, entries.end))

    def read_annotations(self, content: bytes, value: i64, end: i64) -> None:
        """Read the message-annotations: names with x- become headers, and replace application properties."""
        entries = Entries(content, value, end, SYMBOL8)
        while entries.advance():
            if content.startswith(b"x-", entries.key):
                self._annotation(entries.name(), content, entries.key_end, entries.end)

    def _annotation(self, key: bytes, content: bytes, p: i64, end: i64) -> None:
        if key == names.BASIC_TYPE:
            self.values[basic.TYPE] = _short(_text(content, p, end, STRING8))
        elif key == DEATHS:
            self._header(X_DEATH, x_death(content, p, end))
        elif not names.is_internal(key):
            value = field_value(content, p, end)
            if key == names.X_CC and value is not None and value.startswith(b"A"):
                key = names.CC
            self._header(key, value)

    def _header(self, name: bytes, value: bytes | None) -> None:
        if value is not None and len(name) <= SHORT_BYTES_MAX and is_text(name):
            self.headers[name] = value

    def read_list(self, content: bytes, value: i64, end: i64) -> None:
        """Read the properties section."""
        fields = Fields()
        try:
            fields.open_list(content, value, end, "properties", len(NAMES))
            for index in range(GROUP_ID + 1):
                start = fields.raw(NAMES[index])
                if start >= 0:
                    self._property(index, content, start, fields.p)
        except DecodeError:
            return

    def _property(self, index: int, content: bytes, p: i64, end: i64) -> None:
        """Convert the property at place `index`, the encoded value from `p` to `end`."""
        values = self.values
        if index == MESSAGE_ID:
            values[basic.MESSAGE_ID] = self._id(names.MESSAGE_ID, content, p, end)
        elif index == CORRELATION_ID:
            values[basic.CORRELATION_ID] = self._id(names.CORRELATION_ID, content, p, end)
        elif index == USER_ID:
            values[basic.USER_ID] = _short(_text(content, p, end, BINARY8))
        elif index == REPLY_TO:
            values[basic.REPLY_TO] = _short(_reply_to(_text(content, p, end, STRING8)))
        elif index == CONTENT_TYPE:
            values[basic.CONTENT_TYPE] = _short(_text(content, p, end, SYMBOL8))
        elif index == CONTENT_ENCODING:
            values[basic.CONTENT_ENCODING] = _short(_text(content, p, end, SYMBOL8))
        elif index == CREATION_TIME and content[p] == TIMESTAMP:
            values[basic.TIMESTAMP] = seconds(content, p + 1)
        elif index == GROUP_ID:
            values[basic.APP_ID] = _short(_text(content, p, end, STRING8))

    def _id(self, name: bytes, content: bytes, p: i64, end: i64) -> bytes | None:
        """Return an id as a short string; an id that is too long or no text becomes the header `name`."""
        constructor: i64 = content[p]
        if constructor == UUID:
            return _short(uuid_text(content[p + 1 : end]))
        if constructor in (ULONG0, SMALL_ULONG, ULONG):
            return _short(str(int.from_bytes(content[p + 1 : end], "big")).encode())
        value = _short(_text(content, p, end, STRING8))
        if value is None and constructor in (BINARY8, BINARY32, STRING8, STRING32):
            self._header(name, field_value(content, p, end))
        return value


def _text(content: bytes, p: i64, end: i64, short: i64) -> bytes | None:
    """Return the text from `p` to `end` if its constructor is `short` or the long one for the same type."""
    constructor: i64 = content[p]
    if constructor == short:
        raw = content[p + 2 : end]
    elif constructor == short + (STRING32 - STRING8):
        raw = content[p + 5 : end]
    else:
        return None
    return raw if is_text(raw) and (short != SYMBOL8 or raw.isascii()) else None


def _short(raw: bytes | None) -> bytes | None:
    """Return a short string; None without text, or if the text is too long."""
    return bytes((len(raw),)) + raw if raw is not None and len(raw) <= SHORT_BYTES_MAX else None


def _reply_to(address: bytes | None) -> bytes | None:
    """Return the queue name in an address of a queue; any other address unchanged."""
    if address is None or not address.startswith(_QUEUES) or address.find(b"/", len(_QUEUES)) >= 0:
        return address
    text = address.decode()
    try:
        return unquote(text, text[len(_QUEUES) :]).encode() or address
    except AddressError:
        return address


def _body(content: bytes, layout: Layout, properties: _Properties, value_as_text: bool) -> bytes:
    """Return the body, and set the properties that describe its kind."""
    if layout.body_code == 0:
        return b""
    sections = Sections(content, layout.body, layout.body_end)
    if layout.body_code == DATA:
        parts: list[bytes] = []
        while sections.advance():
            p = sections.value
            parts.append(content[p + 2 if content[p] == BINARY8 else p + 5 : sections.end])
        return parts[0] if len(parts) == 1 else b"".join(parts)
    if value_as_text and layout.body_code == AMQP_VALUE and sections.advance():
        p = sections.value
        code: i64 = content[p]
        if code in (STRING8, STRING32) and properties.values[basic.CONTENT_TYPE] is None:
            properties.values[basic.CONTENT_TYPE] = _TEXT_PLAIN
        if code in (STRING8, BINARY8):
            return content[p + 2 : sections.end]
        if code in (STRING32, BINARY32):
            return content[p + 5 : sections.end]
    properties.values[basic.TYPE] = _ENCODED_BODY
    return content[layout.body :]


def _frames(properties: _Properties, body: bytes) -> bytes:
    """Return the content header frame, followed by a body frame if the body is not empty."""
    if properties.headers:
        properties.values[basic.HEADERS] = table(properties.headers)
    flags = 0
    size = _FIXED_BYTES
    bit = 0x8000
    values: list[bytes] = []
    for value in properties.values:
        if value is not None:
            flags |= bit
            size += len(value)
            values.append(value)
        bit >>= 1
    parts = [
        _HEADER_START,
        size.to_bytes(4, "big"),
        _CLASS,
        len(body).to_bytes(8, "big"),
        flags.to_bytes(2, "big"),
        b"".join(values),
        _END,
    ]
    if body:
        parts += [_BODY_START, len(body).to_bytes(4, "big"), body, _END]
    return b"".join(parts)
