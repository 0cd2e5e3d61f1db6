"""A message out of the transfers that brought it, in the form in which it is kept. [amqp-1.0 3.2]

Kept are a header with all its fields, the message annotations as they came, and the bare message with its
footer, no byte of which is changed. Delivery annotations were for this hop, and end here.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.message import Body
from protocol.amqp10.annotations import check_annotations
from protocol.amqp10.conditions import RESOURCE_LIMIT_EXCEEDED, PeerError
from protocol.amqp10.constructors import NONE
from protocol.amqp10.headers import Header, header_section
from protocol.amqp10.properties import check_properties
from protocol.amqp10.sections import Layout, scan
from protocol.amqp10.transfers import MESSAGE_FORMAT
from protocol.conversion.opaque import enclosed

FRONT_BYTES_MAX: Final = 131072  # of all sections before the body: looks at a message decode them

_HEADERS: Final[dict[int, bytes]] = {}
_MARKED: Final = b"x-"  # what the names of headers that the broker heeds begin with


@final
class Arrival:
    """One message that has arrived.

    `size`: bytes of its body; `priority` and `ttl` (ms) are NONE if it does not say. `layout` is that
    of `data`, in which the message lies, or of a large one what is in front of its `body`. `heeded`:
    annotations or properties may ask for more than to be routed by a key.
    """

    def __init__(self, data: bytes, layout: Layout, header: Header) -> None:
        self.data = data
        self.layout = layout
        self.durable = header.durable
        self.priority: i64 = header.priority if header.has_priority else NONE
        self.ttl: i64 = header.ttl
        self.size: i64 = 0 if layout.body == NONE else layout.body_end - layout.body
        self.body: Body | None = None
        self.heeded = layout.annotations != NONE or _may_be_heeded(data, layout)
        start = layout.bare if layout.annotations_start == NONE else layout.annotations_start
        self.content = kept_header(self.durable, self.priority, self.ttl) + data[start:]


def arrival(data: bytes, header: Header, message_format: i64 = MESSAGE_FORMAT) -> Arrival:
    """The message that lies in `data`, whole. `header` is used to read its own.

    One of a format other than 0 is not looked at.

    Raises:
        DecodeError: these are not the sections of a message.
        PeerError: RESOURCE_LIMIT_EXCEEDED, there is too much before its body.
    """
    if message_format != MESSAGE_FORMAT:
        data = enclosed(data, message_format)
    layout = scan(data, 0, len(data))
    check_front(data, layout, header)
    return Arrival(data, layout, header)


def check_front(data: bytes, layout: Layout, header: Header) -> i64:
    """Look at what is in front of a body, and read the header; returns the offset behind it.

    Raises as `arrival`.
    """
    if layout.body != NONE:
        front = layout.body
    elif layout.application_properties != NONE:
        front = layout.application_properties_end
    else:
        front = layout.properties_end if layout.properties != NONE else layout.bare
    if front > FRONT_BYTES_MAX:
        text = f"{front} bytes of sections before the body, at most {FRONT_BYTES_MAX} are allowed"
        raise PeerError(RESOURCE_LIMIT_EXCEEDED, text)
    if layout.header == NONE:
        header.clear()
    else:
        header.read(data, layout.header, layout.header_end)
    if layout.annotations != NONE:
        check_annotations(data, layout.annotations, layout.annotations_end)
    if layout.properties != NONE:
        check_properties(data, layout.properties, layout.properties_end)
    return front


def kept_header(durable: bool, priority: i64, ttl: i64) -> bytes:
    """The header of a message that is kept: nobody has had it yet."""
    if ttl != NONE:
        return header_section(durable, priority, ttl, True, 0)
    key = priority * 2 + (1 if durable else 0)
    section = _HEADERS.get(key)
    if section is None:
        section = _HEADERS[key] = header_section(durable, priority, NONE, True, 0)
    return section


def _may_be_heeded(data: bytes, layout: Layout) -> bool:
    start = layout.application_properties
    return start != NONE and data.find(_MARKED, start, layout.application_properties_end) >= 0
