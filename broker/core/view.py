"""What routing and selectors may ask of a message: headers and properties, under one set of names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Final

from mypy_extensions import mypyc_attr

from broker.core.message import Message
from broker.core.ports import MessageStore

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


@mypyc_attr(allow_interpreted_subclasses=True)
class MessageView:
    """A message as routing sees it. This one has neither headers nor properties.

    Made for one message and one look; nothing is decoded before it is asked for.
    """

    def headers(self) -> dict[str, object]:
        """The headers with their decoded values. They are not to be changed."""
        return {}

    def group_id(self) -> object | None:
        """The group that the message says it is in; None: in none. [JMSXGroupID]"""
        headers = self.headers()
        value = headers.get(GROUP_ID)
        return headers.get(_JMS_GROUP_ID) if value is None else value

    def group_sequence(self) -> object | None:
        """Its place in the group, -1: it is the last one; None: it does not say. [JMSXGroupSeq]"""
        headers = self.headers()
        value = headers.get(GROUP_SEQUENCE)
        return headers.get(_JMS_GROUP_SEQUENCE) if value is None else value

    def further_keys(self) -> list[str]:
        """The routing keys that the message has besides the one it was published with."""
        return []

    def released_content(self, name: str) -> bytes:
        """The content for consumers of a message that was held for the number of ms in this header.

        The number is negated: the message has been held.
        """
        raise NotImplementedError

    def property(self, name: str) -> object | None:
        """One of PROPERTIES, None if the message has it not: a string, or an integer.

        `timestamp` is in milliseconds since 1970, `delivery_mode` 1 or 2.
        """
        return None

    def lookup(self, name: str) -> object | None:
        """What an identifier of a selector stands for; None is NULL. [JMS 3.8.1.1]

        First the header of this name, then the JMS header field, then the property, which also goes by the
        name with `properties.` in front. Times are milliseconds since 1970, decimals are floats.
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
"""Makes a view of a message; the store has its content if memory has not."""


def bare_view(message: Message, store: MessageStore) -> MessageView:
    """For messages of which nothing is known but where they go."""
    return MessageView()


def plain(value: object) -> object:
    """A header as selectors calculate with it."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        return milliseconds(value)
    return value


def delivery_mode_name(mode: object) -> str:
    """What JMSDeliveryMode is for this property `delivery_mode`."""
    return "PERSISTENT" if mode == 2 else "NON_PERSISTENT"


def milliseconds(time: datetime) -> int:
    """A time as milliseconds since 1970."""
    return round(time.timestamp() * 1000)
