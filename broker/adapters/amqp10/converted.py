"""Messages of AMQP 0-9-1 as consumers of AMQP 1.0 get them."""

from __future__ import annotations

from broker.core.message import Message
from protocol.conversion.to10 import content10


def content_for10(message: Message, content: bytes) -> bytes:
    """The sections that a kept content of AMQP 0-9-1 becomes."""
    return content10(content, message.address.exchange, message.address.routing_key)
