"""Content that the broker writes itself. [amqp-0-9-1 4.2.6]"""

from __future__ import annotations

from pamqp import commands, frame, header
from pamqp.body import ContentBody

from protocol.amqp091.properties import Properties
from protocol.amqp091.table import encode_table


def compose(headers: dict[str, object], body: bytes, content_type: str) -> bytes:
    """Header and body frame of a small message that is not persistent, as if it had come on channel 1.

    `body` is not empty, and all of it fits into the smallest frame that there is.
    """
    properties = commands.Basic.Properties(content_type=content_type)
    written = Properties(frame.marshal(header.ContentHeader(0, len(body), properties), 1))
    written.set_table(encode_table(headers))
    return written.content() + frame.marshal(ContentBody(body), 1)
