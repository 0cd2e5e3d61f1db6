"""What a client is told of a message that comes to it again. [RabbitMQ quorum queues]"""

from __future__ import annotations

from typing import Final

from broker.core.entries.entry import QueueEntry
from protocol.amqp091.content import header_frame_bytes
from protocol.amqp091.properties import Field, Properties
from protocol.errors import ProtocolError

ACQUIRED: Final = b"x-acquired-count"
RETURNED: Final = b"x-delivery-count"


def with_counts(content: bytes, entry: QueueEntry, frame_max: int) -> bytes:
    """The content with headers that say how often the entry was given out, and came back, before this time.

    Of those that came back, all that count. For entries of a queue that counts, after they were acquired. The
    content stays as it is when the headers would make its header frame too long for the client, and when
    those that it has do not decode.
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
    """Headers that say how often a message was given out and came back, instead of what they said of that."""
    counts = [(ACQUIRED, _number(acquired)), (RETURNED, _number(returned))]
    return [field for field in fields if field[0] != ACQUIRED and field[0] != RETURNED] + counts


def _number(value: int) -> bytes:
    return b"l" + value.to_bytes(8, "big")
