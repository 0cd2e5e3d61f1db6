"""A message of AMQP 1.0 as routing and selectors see it."""

from __future__ import annotations

from typing import Final, final
from uuid import UUID

from mypy_extensions import i64

from broker.adapters.amqp10.header_values import NOTHING
from broker.adapters.amqp10.headers import all_headers, annotation, annotation_name, header_named
from broker.core.names import is_short
from broker.core.view import (
    JMS_DELIVERY_MODE,
    JMS_FIELDS,
    PREFIX,
    PROPERTIES,
    MessageView,
    delivery_mode_name,
    plain,
)
from protocol.amqp10 import properties as p
from protocol.amqp10.annotations import with_annotations
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import NONE
from protocol.amqp10.decoding import decode
from protocol.amqp10.encoding import encode
from protocol.amqp10.headers import Header, read_priority
from protocol.amqp10.properties import read_property
from protocol.amqp10.sections import Layout, scan_front
from protocol.conversion.names import BASIC_TYPE, X_CC

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
    """What stands in front of the body of a message that is kept. What is malformed is not there.

    Which headers it has is said in the module `headers`. Nothing is raised whatever the content is.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.layout: Layout = scan_front(content)
        self._header: Header | None = None
        self._headers: dict[str, object] | None = None

    def headers(self) -> dict[str, object]:
        """The headers (MessageView)."""
        headers = self._headers
        if headers is None:
            headers = all_headers(self.content, self.layout)
            self._headers = headers
        return headers

    def group_id(self) -> object | None:
        """The property group-id, else the header for it (MessageView)."""
        value = self._place(p.GROUP_ID)
        return super().group_id() if value is None else value

    def group_sequence(self) -> object | None:
        """The property group-sequence, else the header for it (MessageView)."""
        value = self._sequence()
        return super().group_sequence() if value is None else value

    def further_keys(self) -> list[str]:
        """The routing keys in the annotation x-cc (MessageView). [RabbitMQ sender-selected distribution]"""
        value = annotation(self.content, self.layout, X_CC)
        return [key for key in value if isinstance(key, str)] if isinstance(value, list) else []

    def released_content(self, name: str) -> bytes:
        """The content with an annotation that has the number negated (MessageView).

        Where an application property has it, the annotation is one more, and counts: the rest of the message
        stays as it is.
        """
        number = header_named(self.content, self.layout, name)
        assert isinstance(number, int | float | str), "what was held has a number there"
        key = annotation_name(self.content, self.layout, name)
        return with_annotations(self.content, self.layout, [], [key], [encode(-int(number))])

    def property(self, name: str) -> object | None:
        """A property, as AMQP 0-9-1 would have it (MessageView): of at most 255 bytes.

        Ids are text: a UUID with urn:uuid: before it, a number in decimal and a binary in hexadecimal digits.
        `type` is the annotation x-basic-type, `app_id` the group-id, `expiration` the ttl.
        """
        value = self._property(name)
        return None if isinstance(value, str) and not is_short(value) else value

    def lookup(self, name: str) -> object | None:
        """What an identifier of a selector stands for (MessageView).

        Fields of JMS are as its mapping to AMQP 1.0 has them, and with `properties.` in front all properties
        have their names of AMQP 1.0 too, with underscores.
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
        """The header, as one without fields if it is malformed."""
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
        """The priority that the header has, NONE if it has none of its own."""
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
        """The group-sequence, which is a serial number: the upper half of them is negative."""
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
