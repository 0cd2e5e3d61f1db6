"""Content of the broker's own messages. [amqp-0-9-1 4.2.6]"""

from __future__ import annotations

from pamqp import commands, frame, header
from pamqp.body import ContentBody

from protocol.amqp091.properties import Properties
from protocol.amqp091.table import encode_table


def compose(
    headers: dict[str, object],
    body: bytes,
    content_type: str,
    persistent: bool = False,
    correlation_id: str | None = None,
) -> bytes:
    """Return header and body frame of a small message, as if it had come on channel 1.

    `body` is not empty, and the header fits the smallest frame that peers may negotiate.
    """
    properties = commands.Basic.Properties(
        content_type=content_type,
        delivery_mode=2 if persistent else None,
        correlation_id=correlation_id,
    )
    written = Properties(frame.marshal(header.ContentHeader(0, len(body), properties), 1))
    written.set_table(encode_table(headers))
    return written.content() + frame.marshal(ContentBody(body), 1)
