"""The view of a message for routing and selectors: headers and properties under one set of names."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.message import Message
from broker.core.ports import MessageStore
from broker.core.values import encode, type_name

PROPERTIES: Final = (
    "content_type",
    "content_encoding",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
"""The names of the properties, AMQP 0-9-1's. [amqp-0-9-1 1.8]"""

GROUP_ID: Final = "x-group-id"
GROUP_SEQUENCE: Final = "x-group-seq"
_JMS_GROUP_ID: Final = "JMSXGroupID"
_JMS_GROUP_SEQUENCE: Final = "JMSXGroupSeq"
PREFIX: Final = "properties."
JMS_FIELDS: Final = {
    "JMSPriority": "priority",
    "JMSMessageID": "message_id",
    "JMSTimestamp": "timestamp",
    "JMSCorrelationID": "correlation_id",
    "JMSType": "type",
}
JMS_DELIVERY_MODE: Final = "JMSDeliveryMode"


@final
class Origin:
    """The origin of a forwarded message, with the numbers of the message and of the message before it there.

    `octets`: the encoded `producer`. `preceding`: -1 if the message does not name the message before.
    """

    def __init__(self) -> None:
        self.octets = b""
        self.producer = ""
        self.position: i64 = -1
        self.preceding: i64 = -1


@mypyc_attr(allow_interpreted_subclasses=True)
class HeaderReader:
    """The reader for single headers in the contents of one format. This base class finds no header."""

    def string_octets(self, content: bytes, name: bytes) -> bytes | None:
        """Return the octets of the header with this encoded name, a string, in the content of any message.

        None: the content is of another format, the header is absent or no string, or only a view finds it.
        Raises the errors of views whose content does not decode.
        """
        return None

    def read_origin(self, content: bytes, origin: Origin) -> bool:
        """Read the origin whose headers a forwarding broker has written behind all others into `origin`.

        False: there is none, or only a view finds its headers; `origin` has no meaning then.
        """
        return False


NO_READER: Final = HeaderReader()


@mypyc_attr(allow_interpreted_subclasses=True)
class MessageView:
    """A message as routing sees it. This base class has neither headers nor properties.

    A view is made for one message and one use; nothing is decoded before it is needed.
    """

    def headers(self) -> dict[str, object]:
        """Return the headers with their decoded values. The caller must not change them."""
        return {}

    def header_named(self, name: str) -> object | None:
        """Return the decoded value of a header; None without the header."""
        return self.headers().get(name)

    def reader(self) -> HeaderReader:
        """Return the reader for headers of messages in the same format."""
        return NO_READER

    def group_id(self) -> object | None:
        """Return the group of the message; None: in none. [JMSXGroupID]"""
        headers = self.headers()
        value = headers.get(GROUP_ID)
        return headers.get(_JMS_GROUP_ID) if value is None else value

    def group_sequence(self) -> object | None:
        """Return the message's place in its group, -1: the last one; None: no place. [JMSXGroupSeq]"""
        headers = self.headers()
        value = headers.get(GROUP_SEQUENCE)
        return headers.get(_JMS_GROUP_SEQUENCE) if value is None else value

    def further_keys(self) -> list[str]:
        """Return the routing keys of the message besides the one it was published with."""
        return []

    def released_content(self, name: str) -> bytes:
        """Return the content for consumers of a message that was held for the number of ms in a header.

        The number is negated, because the delay is over.
        """
        raise NotImplementedError

    def property(self, name: str) -> object | None:
        """Return one of PROPERTIES, a string or an integer; None if the message does not have it.

        `timestamp` is in milliseconds since 1970, `delivery_mode` 1 or 2.
        """
        return None

    def lookup(self, name: str) -> object | None:
        """Return the value of an identifier in a selector; None is NULL. [JMS 3.8.1.1]

        The header of this name comes first, then the JMS header field, then the property, which may also have
        `properties.` in front of its name. Times are milliseconds since 1970, decimals are floats.
        """
        headers = self.headers()
        if name in headers:
            return plain(headers[name])
        if name == JMS_DELIVERY_MODE:
            return delivery_mode_name(self.property("delivery_mode"))
        if name in JMS_FIELDS:
            name = JMS_FIELDS[name]
        elif name.startswith(PREFIX):
            name = name[len(PREFIX) :]
        return self.property(name) if name in PROPERTIES else None


Views = Callable[[Message, MessageStore], MessageView]
"""Makes a view of a message; the store loads its content if need be."""


def bare_view(message: Message, store: MessageStore) -> MessageView:
    """Return a view without headers and properties, for brokers without a protocol."""
    return MessageView()


def plain(value: object) -> object:
    """Return a header as selectors calculate with it."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        return milliseconds(value)
    return value


def delivery_mode_name(mode: object) -> str:
    """Return the JMSDeliveryMode for a property `delivery_mode`."""
    return "PERSISTENT" if mode == 2 else "NON_PERSISTENT"


def milliseconds(time: datetime) -> int:
    """Return a time as milliseconds since 1970."""
    return round(time.timestamp() * 1000)


class Criterion:
    """A condition on messages.

    `canonical`: a text; criteria with the same text let the same messages pass.
    `demands`: equalities that the condition needs to be true, each an identifier of selectors and the string
    or integer to which it must be equal.
    """

    def __init__(self, canonical: str, demands: list[tuple[str, str | int]]) -> None:
        self.canonical = canonical
        self.demands = demands

    def matches(self, view: MessageView) -> bool:
        """Whether the condition is true for a message: neither false nor unknown."""
        raise NotImplementedError


SortKey = tuple[int, Any]

ABSENT: Final[SortKey] = (0, 0)
_NUMBER: Final = 1
_NO_NUMBER: Final[SortKey] = (2, 0)  # NaN, which is neither more nor less than anything
_OCTETS: Final = 3
_BOOLEAN: Final = 4
_TIME: Final = 5
_ANYTHING_ELSE: Final[SortKey] = (6, 0)


@final
class Headers:
    """The reader for headers of messages in memory or on disk."""

    def __init__(self, views: Views, store: MessageStore) -> None:
        self._views = views
        self._store = store

    def value(self, message: Message, name: str) -> object | None:
        """Return the header of this name; None if it is absent, void or unreadable.

        An enqueue must not fail for bad headers. Consumers see headers that do not decode, and content that
        the disk cannot read is their error too.
        """
        try:
            return self._views(message, self._store).headers().get(name)
        except Exception:
            return None

    def has_priority(self, message: Message) -> bool:
        """Whether the message has an explicit priority; false if that cannot be read."""
        try:
            return self._views(message, self._store).property("priority") is not None
        except Exception:
            return False


def sort_key(value: object | None) -> SortKey:
    """Return the sort key of a header's value, whatever its type.

    The order: absent or void values; then numbers of all types by value, and NaN; then strings and binaries
    by their octets; false; true; times; then arrays and tables, among which there is no order.
    """
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return _BOOLEAN, value
    if isinstance(value, (int, float, Decimal)):
        return (_NUMBER, value) if value == value else _NO_NUMBER
    if isinstance(value, (str, bytes, bytearray)):
        return _OCTETS, _octets(value)
    if isinstance(value, datetime):
        return _TIME, value.timestamp()
    return _ANYTHING_ELSE


def key_text(key: SortKey) -> str:
    """Return a text from which `key_of_text` makes the key again."""
    kind, value = key
    if isinstance(value, bytes):
        return f"{kind} octets {value.hex()}"
    if isinstance(value, float):
        return f"{kind} float {value.hex()}"
    return f"{kind} {type(value).__name__} {value}"


def key_of_text(text: str) -> SortKey:
    """Return the key from which `key_text` has made this text. Raises ValueError."""
    kind, name, value = [*text.split(" "), "", ""][:3]
    if name not in _READERS or not kind.isdecimal() or not 0 <= int(kind) <= _ANYTHING_ELSE[0]:
        raise ValueError(f"'{text}' names no value")
    try:
        parsed = _READERS[name](value)
    except ArithmeticError as error:
        raise ValueError(f"'{text}' names no value") from error
    if (int(kind) == _OCTETS) != isinstance(parsed, bytes) or parsed != parsed:
        raise ValueError(f"'{text}' names no value")
    return int(kind), parsed


_READERS: Final[dict[str, Any]] = {
    "octets": bytes.fromhex,
    "float": float.fromhex,
    "int": int,
    "Decimal": Decimal,
    "bool": lambda value: value == "True",
}


def identity(value: object) -> object:
    """Return a dict key that is equal for equal values of a header.

    Values are equal within one type only, as for headers exchanges: 1 is not 1.0, and not true.
    """
    if isinstance(value, (str, bytes, bytearray)):
        return _octets(value)
    if isinstance(value, bool) or not isinstance(value, (int, list, tuple, dict)):
        return type_name(value), value
    if isinstance(value, int):
        return value
    return json.dumps(encode(value), sort_keys=True)


def _octets(value: str | bytes | bytearray) -> bytes:
    """Return a string as bytes, because a string that is not UTF-8 arrives as bytes."""
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)
