"""Messages of AMQP 0-9-1 as they are stored: views, dead letters, receipts and filters."""

from __future__ import annotations

import re
from typing import Final, final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from broker.core.entries.entry import QueueEntry
from broker.core.errors import PreconditionFailed
from broker.core.message import Message
from broker.core.message_view import (
    JMS_DELIVERY_MODE,
    JMS_FIELDS,
    PREFIX,
    Criterion,
    HeaderReader,
    MessageView,
    Origin,
    delivery_mode_name,
    plain,
)
from broker.core.queues.death import DeadLetter, Notice, Past
from protocol.amqp091 import properties as p
from protocol.amqp091.composing import compose
from protocol.amqp091.content import header_frame_bytes
from protocol.amqp091.deaths import X_DEATH, Death, add_death, decode_deaths, long_string, write_headers
from protocol.amqp091.fields import Reader
from protocol.amqp091.lookup import (
    NO_INTEGER,
    header_at,
    header_in,
    header_value,
    integer_at,
    number,
    property_at,
    short_string,
    string_octets,
)
from protocol.amqp091.properties import EXPIRATION, Field, Properties
from protocol.amqp10.sections import is_sections
from protocol.errors import ProtocolError

_MAX: Final = 315_360_000_000  # ten years
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")


def parse_expiration(text: str) -> i64:
    """Return the milliseconds of an expiration. Raises PreconditionFailed, with RabbitMQ's reasons."""
    match = _NUMBER.match(text)
    if match is None:
        raise _invalid(text, "no_integer")
    rest = text[match.end() :]
    if rest:
        escaped = rest.replace("\\", "\\\\").replace('"', '\\"')
        raise _invalid(text, f'{{leftover_string,"{escaped}"}}')
    number = int(match.group())
    if number < 0:
        raise _invalid(text, f"{{value_negative,{number}}}")
    if number > _MAX:
        raise _invalid(text, f"{{value_too_large,{number}}}")
    return number


def _invalid(text: str, why: str) -> PreconditionFailed:
    return PreconditionFailed(f"invalid expiration '{text}': {why}")


CC: Final = "CC"
BCC: Final = "BCC"
_HIDDEN: Final = BCC.encode()


@final
class View091(MessageView):
    """A view of a content header. `headers` raises ProtocolError for headers that do not decode."""

    def __init__(self, properties: Properties) -> None:
        self._properties = properties
        self._headers: dict[str, object] | None = None

    def headers(self) -> dict[str, object]:
        """The headers."""
        headers = self._headers
        if headers is None:
            headers = self._properties.headers()
            self._headers = headers
        return headers

    def further_keys(self) -> list[str]:
        """The routing keys in CC and BCC. [RabbitMQ sender-selected distribution]"""
        headers = self.headers()
        keys: list[str] = []
        for name in (CC, BCC):
            value = headers.get(name)
            if isinstance(value, list):
                keys += [key for key in value if isinstance(key, str)]
        return keys

    def released_content(self, name: str) -> bytes:
        """The content without BCC, and with the number in this header negated."""
        number = self.headers().get(name, 0)
        assert isinstance(number, int | float | str), "the header of a delayed message is a number"
        held = (name.encode(), b"l" + (-int(number)).to_bytes(8, "big", signed=True))
        fields = [held if field[0] == held[0] else field for field in self._properties.fields()]
        return self._with([field for field in fields if field[0] != _HIDDEN])

    def public_content(self) -> bytes:
        """The content without BCC."""
        return self._with([field for field in self._properties.fields() if field[0] != _HIDDEN])

    def _with(self, fields: list[Field]) -> bytes:
        """The content with other headers."""
        properties = Properties(self._properties.original)
        properties.set_fields(fields)
        return properties.content()

    def property(self, name: str) -> object | None:
        """A property."""
        if name in p.TEXTS:
            octets = self._properties.octets(p.TEXTS[name])
            return None if octets is None else octets.decode(errors="surrogateescape")
        value = self._properties.number(p.NUMBERS[name])
        return value * 1000 if value is not None and name == "timestamp" else value


_ORIGIN: Final = b"x-origin"  # names with the octet before, and the type after, of the headers of an origin
_POSITION: Final = b"\x11x-origin-positionl"
_PRECEDING: Final = b"\x12x-origin-precedingl"


@final
class HeaderReader091(HeaderReader):
    """The reader for headers of messages that were published before."""

    def string_octets(self, content: bytes, name: bytes) -> bytes | None:
        """Return the octets of a header that is a long string."""
        if is_sections(content):
            return None
        start = header_at(content, name)
        return string_octets(content, start) if start >= 0 else None

    def read_origin(self, content: bytes, origin: Origin) -> bool:
        """Read the origin, if its headers are the last ones, as a forwarding broker writes them."""
        if is_sections(content):
            return False
        headers = property_at(content, p.HEADERS)
        start = header_in(content, headers, _ORIGIN) if headers >= 0 else headers
        octets = string_octets(content, start) if start >= 0 else None
        if not octets:
            return False
        if octets != origin.octets:
            if len(octets) > 255 or not octets.isascii():
                return False
            origin.octets = octets
            origin.producer = octets.decode("ascii")
        end: i64 = headers + 4 + i64(read_i32_be(content, headers))
        place: i64 = start + 5 + len(octets)
        if content[place : place + len(_POSITION)] != _POSITION:
            return False
        place += len(_POSITION) + 8
        origin.position = read_i64_be(content, place - 8)
        origin.preceding = -1
        if place < end and content[place : place + len(_PRECEDING)] == _PRECEDING:
            place += len(_PRECEDING) + 8
            origin.preceding = read_i64_be(content, place - 8)
            if origin.preceding < 0:
                return False
        return place == end and origin.position >= 0


READER: Final = HeaderReader091()


@final
class ContentView(MessageView):
    """A view of the content header of a message that was published before.

    `lookup` and `property` decode the requested value only. Malformed values count as absent.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._whole: View091 | None = None

    def header_named(self, name: str) -> object | None:
        """Return the value of a header."""
        start = header_at(self.content, name.encode(errors="surrogatepass"))
        return header_value(self.content, start) if start >= 0 else None

    def reader(self) -> HeaderReader:
        """Return the reader for headers of published messages."""
        return READER

    def lookup(self, name: str) -> object | None:
        """Return the value of an identifier of a selector."""
        content = self.content
        start = header_at(content, name.encode(errors="surrogatepass"))
        if start >= 0:
            return plain(header_value(content, start))
        if name == JMS_DELIVERY_MODE:
            return delivery_mode_name(self.property("delivery_mode"))
        index = _INDEXES.get(name, -1)
        return self._property(index) if index >= 0 else None

    def property(self, name: str) -> object | None:
        """A property."""
        return self._property(_INDEXES[name])

    def headers(self) -> dict[str, object]:
        """The headers. Raises ProtocolError."""
        return self.whole().headers()

    def further_keys(self) -> list[str]:
        """The routing keys in CC and BCC. Raises ProtocolError."""
        return self.whole().further_keys()

    def released_content(self, name: str) -> bytes:
        """Return the content that consumers get of a delayed message. Raises ProtocolError."""
        return self.whole().released_content(name)

    def whole(self) -> View091:
        """Return the view with all headers decoded. Raises ProtocolError."""
        if self._whole is None:
            self._whole = View091(Properties(self.content))
        return self._whole

    def _property(self, index: i64) -> object | None:
        content = self.content
        start = property_at(content, index)
        if start < 0:
            return None
        if index == p.TIMESTAMP:
            return number(content, start, index) * 1000
        if index in (p.DELIVERY_MODE, p.PRIORITY):
            return number(content, start, index)
        return short_string(content, start).decode(errors="surrogateescape")


def _indexes() -> dict[str, int]:
    """Return the properties by all names that identifiers of selectors may have for them."""
    indexes = p.TEXTS | p.NUMBERS
    indexes |= {field: indexes[name] for field, name in JMS_FIELDS.items()}
    return indexes | {PREFIX + name: index for name, index in (p.TEXTS | p.NUMBERS).items()}


_INDEXES: Final = _indexes()


def header_mark(name: str, value: object) -> bytes:
    """Return bytes that are in the header of every message for which this identifier has this value.

    b"" if no such bytes are certain.
    """
    if name == JMS_DELIVERY_MODE or isinstance(value, bool) or not isinstance(value, (str, int)):
        return b""
    try:
        raw = value.encode() if isinstance(value, str) else b""
        named = bytes([len(name.encode())]) + name.encode()
    except ValueError:  # the name is too long, or the text is not UTF-8: no message has this value
        return b""
    if name in _INDEXES:  # in a property and in a header the last octet of the length is the same
        return bytes([len(raw) & 0xFF]) + raw if isinstance(value, str) else b""
    return named + b"S" + len(raw).to_bytes(4, "big") + raw if isinstance(value, str) else named


ACQUIRED: Final = b"x-acquired-count"
RETURNED: Final = b"x-delivery-count"


def with_counts(content: bytes, entry: QueueEntry, frame_max: int) -> bytes:
    """Return the content with headers that count the entry's earlier deliveries and returns.

    Only returns that count are included. For entries of a queue that counts, after their acquisition. The
    content stays unchanged when the headers would make its header frame too long for the client, and when its
    own headers do not decode.
    """
    before: int = entry.delivery_count - 1
    returned: int = entry.counted - 1
    if before < 1:
        return content
    try:
        properties = Properties(content)
        fields = counted_fields(properties.fields(), before, returned)
    except ProtocolError:
        return content
    properties.set_fields(fields)
    counted = properties.content()
    return counted if header_frame_bytes(counted) <= frame_max else content


def counted_fields(fields: list[Field], acquired: int, returned: int) -> list[Field]:
    """Return the headers with new counts of deliveries and returns, in place of earlier counts."""
    counts = [(ACQUIRED, _number(acquired)), (RETURNED, _number(returned))]
    return [field for field in fields if field[0] != ACQUIRED and field[0] != RETURNED] + counts


def _number(value: int) -> bytes:
    return b"l" + value.to_bytes(8, "big")


_COPIES: Final = b"CC"
_EXPIRED_BY: Final = b"x-expired-by"
_EXPIRED_WHILE: Final = b"x-expired-while"
_EXPIRED: Final[tuple[bytes, ...]] = (_EXPIRED_BY, _EXPIRED_WHILE)


def letter_of(message: Message, content: bytes, notice: Notice) -> DeadLetter:
    """Return the dead letter of a message with this content (LetterWriter).

    The expiration is removed, so that the dead letter does not expire again. The further routing keys are
    removed too unless they are kept. Deaths that a publisher wrote are ignored. Headers that do not decode
    are of no use, and are removed.
    """
    properties = Properties(content)
    fields = _fields(properties)
    deaths = _deaths(fields) if message.died else []
    copies = _keys(fields)
    death = Death(
        notice.queue,
        notice.reason,
        notice.date // 1000,
        message.address.exchange,
        [message.address.routing_key, *copies],
        _expiration(message, properties),
    )
    deaths = add_death(deaths, death)
    fields = write_headers(fields, deaths, message.address.exchange, not message.died)
    fields = _with_past(fields, notice.past)
    if not notice.keeps_keys:
        copies = []
        fields = [field for field in fields if field[0] != _COPIES]
    properties.set_fields(fields)
    properties.drop(EXPIRATION)
    return DeadLetter(
        properties.content(),
        copies,
        [(death.queue, death.reason) for death in deaths],
        LetterView(View091(properties)),
    )


def _with_past(fields: list[Field], past: Past | None) -> list[Field]:
    """Return the headers with the queue's counts and the expired lease, in place of earlier ones."""
    fields = [field for field in fields if field[0] not in _EXPIRED]
    if past is None:
        return fields
    if past.deliveries > 0:
        fields = counted_fields(fields, int(past.deliveries), int(past.returns))
    if past.expired_by:
        fields.append((_EXPIRED_BY, long_string(past.expired_by)))
        fields.append((_EXPIRED_WHILE, long_string(past.expired_while)))
    return fields


def _fields(properties: Properties) -> list[Field]:
    try:
        return properties.fields()
    except ProtocolError:
        return []


def _deaths(fields: list[Field]) -> list[Death]:
    for name, value in fields:
        if name == X_DEATH:
            return decode_deaths(value)
    return []


def _keys(fields: list[Field]) -> list[str]:
    """Return the routing keys that the publisher added. [RabbitMQ sender-selected distribution]"""
    keys: list[str] = []
    for name, value in fields:
        if name == _COPIES:
            try:
                decoded = Reader(value).value()
            except ValueError:
                continue
            keys = [key for key in decoded if isinstance(key, str)] if isinstance(decoded, list) else []
    return keys


def _expiration(message: Message, properties: Properties) -> str:
    """Return the milliseconds as text, "" if the message has none."""
    if message.expiration >= 0:
        return str(int(message.expiration))
    octets = properties.octets(EXPIRATION)
    return "" if octets is None else octets.decode(errors="replace")


@final
class LetterView(MessageView):
    """A dead letter as routing sees it: malformed headers count as absent and do not stop the routing."""

    def __init__(self, view: View091) -> None:
        self._view = view

    def headers(self) -> dict[str, object]:
        """The headers."""
        try:
            return self._view.headers()
        except ProtocolError:
            return {}

    def property(self, name: str) -> object | None:
        """A property."""
        return self._view.property(name)


def write_receipt(headers: dict[str, object], body: bytes, persistent: bool, correlation_id: str) -> bytes:
    """Return the content of a receipt (ReceiptWriter)."""
    return compose(headers, body, "application/json", persistent, correlation_id or None)


_SHORT: Final = 1024  # bytes of content in which a search is faster than finding the header's end


@final
class ContentFilter091:
    """The filter of contents for which a criterion is true.

    If the criterion demands an equality, most other contents are excluded by a search of the header for the
    bytes of the name and the string or integer.
    """

    def __init__(self, criterion: Criterion) -> None:
        self._criterion = criterion
        self._mark = b""
        self._named = b""  # the name of a header that must be `_number`
        self._number: i64 = 0
        for name, value in criterion.demands:
            mark = header_mark(name, value)
            if isinstance(value, str):
                self._mark = max(self._mark, mark, key=len)
            elif mark and -(1 << 63) <= value < 1 << 63:
                self._named = mark
                self._number = value

    def passes(self, content: bytes) -> bool:
        """Whether the criterion is true for the message with this content."""
        end: i64 = len(content)
        if end > _SHORT:
            end = header_frame_bytes(content)
        if self._mark:
            if content.find(self._mark, 0, end) < 0:
                return False
        elif self._named and self._has_other_number(content, end):
            return False
        return self._criterion.matches(ContentView(content))

    def _has_other_number(self, content: bytes, end: i64) -> bool:
        """Whether the demanded header is absent, or is certainly another number."""
        named = self._named
        at: i64 = content.find(named, 0, end)
        if at < 0:
            return True
        start = at + len(named)
        if start + 9 > end or content.find(named, at + 1, end) >= 0:
            return False  # the header, or a value that looks like the header
        value = integer_at(content, start)
        if value == NO_INTEGER:
            return False
        return value != self._number
