"""What a client is told of a message that comes to it again. [RabbitMQ quorum queues]"""

from __future__ import annotations

from typing import Final

from broker.core.entry import QueueEntry
from protocol.amqp091.content import header_frame_bytes
from protocol.amqp091.properties import Properties
from protocol.errors import ProtocolError

COUNTS: Final[tuple[bytes, ...]] = (b"x-acquired-count", b"x-delivery-count")


def with_counts(content: bytes, entry: QueueEntry, frame_max: int) -> bytes:
    """The content with headers that say how often the entry was given out, and came back, before this time.

    For entries of a queue that counts, after they were acquired. The content stays as it is when the headers
    would make its header frame too long for the client, and when those that it has do not decode.
    """
    before: int = entry.delivery_count - 1
    if before < 1:
        return content
    try:
        properties = Properties(content)
        fields = [field for field in properties.fields() if field[0] not in COUNTS]
    except ProtocolError:
        return content
    value = b"l" + before.to_bytes(8, "big")
    properties.set_fields(fields + [(name, value) for name in COUNTS])
    counted = properties.content()
    return counted if header_frame_bytes(counted) <= frame_max else content
