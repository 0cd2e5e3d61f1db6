"""Convert a content of AMQP 0-9-1 to the sections of AMQP 1.0. [amqp-0-9-1 4.2.6, amqp-1.0 messaging 3.2]"""

from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from protocol.amqp091 import properties as basic
from protocol.amqp091.constants import FRAME_OVERHEAD
from protocol.amqp091.content import HEADER_PREFIX_BYTES
from protocol.amqp091.deaths import X_DEATH
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import (
    BINARY32,
    MAP8,
    NONE,
    SMALL_ULONG,
    STRING8,
    STRING32,
    SYMBOL8,
    SYMBOL32,
)
from protocol.amqp10.deaths import DEATHS
from protocol.amqp10.descriptors import APPLICATION_PROPERTIES, DATA, MESSAGE_ANNOTATIONS, PROPERTIES
from protocol.amqp10.headers import header_section
from protocol.amqp10.properties import CORRELATION_ID, GROUP_ID, MESSAGE_ID
from protocol.amqp10.sections import scan
from protocol.amqp10.writing import NULL_VALUE, binary, composite, compound, sized
from protocol.conversion import names
from protocol.conversion.deaths import opt_deaths
from protocol.conversion.octets import is_text
from protocol.conversion.properties10 import ABSENT, SOURCES, property10
from protocol.conversion.values import (
    ARRAY,
    BYTES,
    TABLE,
    TEXT,
    TableFields,
    encoded_value,
    string_map,
)

_SHORT: Final = -1  # a short string
_TABLE: Final = -2
_SIZES: Final[tuple[int, ...]] = (
    _SHORT,
    _SHORT,
    _TABLE,
    1,
    1,
    _SHORT,
    _SHORT,
    _SHORT,
    _SHORT,
    8,
    _SHORT,
    _SHORT,
    _SHORT,
    _SHORT,
)  # bytes of the properties by their places [amqp-0-9-1 1.8]

_PERSISTENT: Final = b"\x02"
_UINT_MAX: Final = 0xFFFFFFFF
_DATA: Final = bytes((0, SMALL_ULONG, DATA))


def content10(content: bytes, exchange: str, routing_key: str) -> bytes:
    """Return the sections for a content header and body frames of a message published to `exchange`.

    The header section comes first, then the message-annotations, which name `exchange` and `routing_key`, and
    the bare message. The body becomes a data section, unless it already consists of sections.
    """
    properties = _properties(content)
    body = _body(content)
    sections = b""
    if properties[basic.TYPE] == names.ENCODED_BODY:
        sections = _body_sections(body)
        if sections:
            properties[basic.TYPE] = None
    return _preamble(properties, exchange, routing_key) + (sections or _DATA + binary(body))


def preamble10(content: bytes, exchange: str, routing_key: str, size: int) -> bytes:
    """Return the sections before a body of `size` bytes, more than 255, and the head of its data section.

    The sections are those of `content10`. The body becomes a single data section, whatever its bytes are.
    """
    preamble = _preamble(_properties(content), exchange, routing_key)
    return preamble + _DATA + bytes((BINARY32,)) + size.to_bytes(4, "big")


def _preamble(properties: list[bytes | None], exchange: str, routing_key: str) -> bytes:
    """Return the sections before a body."""
    headers = _Headers(properties[basic.HEADERS])
    annotations: dict[bytes, bytes] = {
        names.EXCHANGE: sized(exchange.encode(), STRING8, STRING32),
        names.ROUTING_KEY: sized(routing_key.encode(), STRING8, STRING32),
    }
    kind = properties[basic.TYPE]
    if kind is not None and is_text(kind):
        annotations[names.BASIC_TYPE] = sized(kind, STRING8, STRING32)
    annotations.update(headers.annotations)
    parts = [_header(properties), _annotations(annotations), _properties_section(properties, headers)]
    if headers.properties:
        parts.append(bytes((0, SMALL_ULONG, APPLICATION_PROPERTIES)))
        parts.append(string_map(headers.properties))
    return b"".join(parts)


def _properties(content: bytes) -> list[bytes | None]:
    """Return the properties by their places, short strings and the headers without their lengths.

    A property that overruns the frame is absent, with all properties after it.
    """
    values: list[bytes | None] = [None] * len(_SIZES)
    end: i64 = len(content)
    if end < HEADER_PREFIX_BYTES + 2:
        return values
    payload: int = read_i32_be(content, 3)
    if 7 + payload < end:
        end = 7 + payload
    p: i64 = HEADER_PREFIX_BYTES
    high: i64 = content[p]
    flags: i64 = high << 8 | content[p + 1]
    p += 2
    for index in range(len(_SIZES)):
        if flags & 0x8000:
            size: i64 = _SIZES[index]
            if p >= end:
                break
            if size == _SHORT:
                size = content[p]
                p += 1
            elif size == _TABLE:
                if end - p < 4:
                    break
                length: int = read_i32_be(content, p)
                size = length
                p += 4
            if size < 0 or p + size > end:
                break
            values[index] = content[p : p + size]
            p += size
        flags <<= 1
    return values


def _body(content: bytes) -> bytes:
    """Return the payloads of the body frames, joined."""
    n: i64 = len(content)
    parts: list[bytes] = []
    p: i64 = 0
    while n - p >= FRAME_OVERHEAD:
        size: int = read_i32_be(content, p + 3)
        if size < 0 or size > n - p - FRAME_OVERHEAD:
            break
        if p > 0:
            parts.append(content[p + 7 : p + 7 + size])
        p += size + FRAME_OVERHEAD
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _body_sections(body: bytes) -> bytes:
    """Return the body if it consists of the sections of a body, and perhaps a footer; b"" if not."""
    try:
        layout = scan(body, 0, len(body))
    except DecodeError:
        return b""
    return body if layout.body == 0 and layout.body_code != 0 else b""


def _header(properties: list[bytes | None]) -> bytes:
    priority = properties[basic.PRIORITY]
    level: i64 = NONE
    if priority is not None:
        level = priority[0]
    ttl: i64 = NONE
    expiration = properties[basic.EXPIRATION]
    if expiration is not None and expiration.isdigit() and len(expiration) <= len(str(_UINT_MAX)):
        number = int(expiration)
        if number <= _UINT_MAX:
            ttl = number
    return header_section(properties[basic.DELIVERY_MODE] == _PERSISTENT, level, ttl, True, 0)


def _annotations(entries: dict[bytes, bytes]) -> bytes:
    items: list[bytes] = []
    for key, value in entries.items():
        items.append(sized(key, SYMBOL8, SYMBOL32))
        items.append(value)
    return bytes((0, SMALL_ULONG, MESSAGE_ANNOTATIONS)) + compound(MAP8, items)


@final
class _Headers:
    """The headers by their places in AMQP 1.0: annotations, application properties, and ids."""

    def __init__(self, table: bytes | None) -> None:
        self.annotations: dict[bytes, bytes] = {}
        self.properties: dict[bytes, bytes] = {}
        self.message_id: bytes | None = None
        self.correlation_id: bytes | None = None
        if table is None:
            return
        fields = TableFields(table, 0, len(table))
        while fields.advance():
            name = fields.name
            if name.startswith(b"x-"):
                self._annotation(name, table, fields.value, fields.end)
            elif name == names.CC and table[fields.value] == ARRAY:
                self._annotation(names.X_CC, table, fields.value, fields.end)
            elif table[fields.value] != ARRAY and table[fields.value] != TABLE and is_text(name):
                value = encoded_value(table, fields.value, fields.end)
                if value is not None:
                    self.properties[name] = value

    def _annotation(self, name: bytes, table: bytes, p: i64, end: i64) -> None:
        if not name.isascii():
            return
        if not names.is_internal(name):
            value = encoded_value(table, p, end)
        elif name == X_DEATH:
            name = DEATHS
            value = opt_deaths(table[p:end])
        else:
            value = None
            if name == names.MESSAGE_ID:
                self.message_id = _text_or_bytes(table, p, end)
            elif name == names.CORRELATION_ID:
                self.correlation_id = _text_or_bytes(table, p, end)
        if value is not None:
            self.annotations[name] = value


def _text_or_bytes(table: bytes, p: i64, end: i64) -> bytes | None:
    """Return the encoded field value from `p` to `end` if an id may have its type."""
    return encoded_value(table, p, end) if table[p] == TEXT or table[p] == BYTES else None


def _properties_section(properties: list[bytes | None], headers: _Headers) -> bytes:
    """Return the properties section; b"" without any property."""
    values: list[bytes | None] = []
    for place in range(GROUP_ID + 1):  # the places after it have no counterpart
        source = SOURCES[place]
        raw = None if source == ABSENT else properties[source]
        values.append(None if raw is None else property10(place, raw))
    if properties[basic.MESSAGE_ID] is None:
        values[MESSAGE_ID] = headers.message_id
    if properties[basic.CORRELATION_ID] is None:
        values[CORRELATION_ID] = headers.correlation_id
    fields: list[bytes] = []
    empty = True
    for value in values:
        fields.append(NULL_VALUE if value is None else value)
        empty = empty and value is None
    return b"" if empty else composite(PROPERTIES, fields)
