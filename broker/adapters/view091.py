"""A message of AMQP 0-9-1 as routing and selectors see it."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.view import JMS_DELIVERY_MODE, JMS_FIELDS, PREFIX, MessageView, delivery_mode_name, plain
from protocol.amqp091 import properties as p
from protocol.amqp091.lookup import header_at, header_value, number, property_at, short_string
from protocol.amqp091.properties import Field, Properties

CC: Final = "CC"
BCC: Final = "BCC"
_HIDDEN: Final = BCC.encode()
_TEXTS: Final = {
    "content_type": p.CONTENT_TYPE,
    "content_encoding": p.CONTENT_ENCODING,
    "correlation_id": p.CORRELATION_ID,
    "reply_to": p.REPLY_TO,
    "expiration": p.EXPIRATION,
    "message_id": p.MESSAGE_ID,
    "type": p.TYPE,
    "user_id": p.USER_ID,
    "app_id": p.APP_ID,
    "cluster_id": p.CLUSTER_ID,
}
_NUMBERS: Final = {"delivery_mode": p.DELIVERY_MODE, "priority": p.PRIORITY, "timestamp": p.TIMESTAMP}


@final
class View091(MessageView):
    """What stands in a content header. `headers` raises ProtocolError for what does not decode."""

    def __init__(self, properties: Properties) -> None:
        self._properties = properties
        self._headers: dict[str, object] | None = None

    def headers(self) -> dict[str, object]:
        """The headers (MessageView)."""
        headers = self._headers
        if headers is None:
            headers = self._properties.headers()
            self._headers = headers
        return headers

    def further_keys(self) -> list[str]:
        """The routing keys in CC and BCC (MessageView). [RabbitMQ sender-selected distribution]"""
        headers = self.headers()
        keys: list[str] = []
        for name in (CC, BCC):
            value = headers.get(name)
            if isinstance(value, list):
                keys += [key for key in value if isinstance(key, str)]
        return keys

    def released_content(self, name: str) -> bytes:
        """The content without BCC, and with the number in this header negated (MessageView)."""
        number = self.headers().get(name, 0)
        assert isinstance(number, int | float | str), "what was held has a number there"
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
        """A property (MessageView)."""
        if name in _TEXTS:
            octets = self._properties.octets(_TEXTS[name])
            return None if octets is None else octets.decode(errors="surrogateescape")
        value = self._properties.number(_NUMBERS[name])
        return value * 1000 if value is not None and name == "timestamp" else value


@final
class ContentView(MessageView):
    """What stands in the content header of a message that was published before.

    `lookup` and `property` find one value without decoding the others. What is malformed is not there.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._whole: View091 | None = None

    def lookup(self, name: str) -> object | None:
        """What an identifier of a selector stands for (MessageView)."""
        content = self.content
        start = header_at(content, name.encode(errors="surrogatepass"))
        if start >= 0:
            return plain(header_value(content, start))
        if name == JMS_DELIVERY_MODE:
            return delivery_mode_name(self.property("delivery_mode"))
        index = _INDEXES.get(name, -1)
        return self._property(index) if index >= 0 else None

    def property(self, name: str) -> object | None:
        """A property (MessageView)."""
        return self._property(_INDEXES[name])

    def headers(self) -> dict[str, object]:
        """The headers (MessageView). Raises ProtocolError."""
        return self.whole().headers()

    def further_keys(self) -> list[str]:
        """The routing keys in CC and BCC (MessageView). Raises ProtocolError."""
        return self.whole().further_keys()

    def released_content(self, name: str) -> bytes:
        """The content for consumers of a message that was held (MessageView). Raises ProtocolError."""
        return self.whole().released_content(name)

    def whole(self) -> View091:
        """The view of all of it. Raises ProtocolError."""
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
    """The properties by all names that identifiers of selectors may have for them."""
    found = _TEXTS | _NUMBERS
    found |= {field: found[name] for field, name in JMS_FIELDS.items()}
    return found | {PREFIX + name: index for name, index in (_TEXTS | _NUMBERS).items()}


_INDEXES: Final = _indexes()


def marks(name: str, value: object) -> bytes:
    """Bytes that stand in the header of every message for which this identifier has this value.

    b"" if there are none of which that is certain.
    """
    if name == JMS_DELIVERY_MODE or isinstance(value, bool) or not isinstance(value, (str, int)):
        return b""
    try:
        raw = value.encode() if isinstance(value, str) else b""
        named = bytes([len(name.encode())]) + name.encode()
    except ValueError:  # a name that is too long, or something that is not UTF-8: no message has it
        return b""
    if name in _INDEXES:  # a property or a header: both have, as the last octet of the length, the same
        return bytes([len(raw) & 0xFF]) + raw if isinstance(value, str) else b""
    return named + b"S" + len(raw).to_bytes(4, "big") + raw if isinstance(value, str) else named
