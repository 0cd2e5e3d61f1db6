"""The assembly of transfers into messages. [amqp-1.0 2.6.14]

The broker stores a header with all its fields, and the message-annotations, the bare message and the footer
with unchanged bytes. Delivery-annotations are meant for the next node only, and are dropped. [amqp-1.0 3.2.2]
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.state import Connection10State
from broker.core.message import Body, piece_of
from protocol.amqp091.incoming import WHOLE_BYTES_MAX
from protocol.amqp10.annotations import check_annotations
from protocol.amqp10.bodies import BodyScan
from protocol.amqp10.conditions import (
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
    PeerError,
)
from protocol.amqp10.constructors import NONE
from protocol.amqp10.headers import Header, header_section
from protocol.amqp10.properties import check_properties
from protocol.amqp10.sections import Layout, scan, scan_preamble
from protocol.amqp10.transfers import MESSAGE_FORMAT, Transfer
from protocol.amqp10.windows import LinkCredit
from protocol.conversion.opaque import enclose_payload


@final
class IncompleteDelivery:
    """The incomplete delivery of a link. `delivery_id` and `settled` belong to the latest delivery."""

    def __init__(self, credit: LinkCredit, bytes_max: i64) -> None:
        self.delivery_id: i64 = NONE
        self.settled = False
        self._credit = credit
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._size: i64 = 0
        self._is_incomplete = False

    def add(self, transfer: Transfer, data: bytes, end: i64) -> bytes | None:
        """Add a transfer; return the message after its last transfer, else None. Raises PeerError."""
        if not self._is_incomplete:
            if transfer.delivery_id == NONE:
                raise PeerError(INVALID_FIELD, "the first transfer of a delivery has no delivery-id")
            self._credit.use()
            self._is_incomplete = True
            self.delivery_id = transfer.delivery_id
            self.settled = False
        self.settled = self.settled or transfer.settled
        if transfer.aborted:
            self.forget()
            return None
        self._size += end - transfer.payload
        if self._size > self._bytes_max:
            text = f"a message of more than {self._bytes_max} bytes, which is the link's max-message-size"
            raise PeerError(MESSAGE_SIZE_EXCEEDED, text)
        self._parts.append(data[transfer.payload : end])
        if transfer.more:
            return None
        message = b"".join(self._parts)
        self.forget()
        return message

    def forget(self) -> None:
        """Forget the incomplete delivery."""
        self._parts = []
        self._size = 0
        self._is_incomplete = False


PREAMBLE_BYTES_MAX: Final = 131072  # the size of the sections before the body, which are decoded often

_HEADERS: Final[dict[int, bytes]] = {}
_MARKED: Final = b"x-"  # the beginning of the names of headers that the broker reads


@final
class ReceivedMessage:
    """A message that has arrived.

    `size`: bytes of its body. `priority` and `ttl` (ms) are NONE if the message has none. `layout`: the
    layout of `data`, which contains the message, or for a large message the sections before its `body`.
    `needs_view`: the broker must read the annotations and properties, as they may change how it is published.
    """

    def __init__(self, data: bytes, layout: Layout, header: Header) -> None:
        self.data = data
        self.layout = layout
        self.durable = header.durable
        self.priority: i64 = header.priority if header.has_priority else NONE
        self.ttl: i64 = header.ttl
        self.size: i64 = 0 if layout.body == NONE else layout.body_end - layout.body
        self.body: Body | None = None
        self.needs_view = layout.annotations != NONE or _may_need_view(data, layout)
        start = layout.bare if layout.annotations_start == NONE else layout.annotations_start
        self.content = stored_header(self.durable, self.priority, self.ttl) + data[start:]


def read_message(data: bytes, header: Header, message_format: i64 = MESSAGE_FORMAT) -> ReceivedMessage:
    """Return the whole message in `data`. `header` is reused to read the message's header.

    A message of a format other than 0 is not decoded.

    Raises:
        DecodeError: the bytes are not the sections of a message.
        PeerError: RESOURCE_LIMIT_EXCEEDED, the sections before the body are too long.
    """
    if message_format != MESSAGE_FORMAT:
        data = enclose_payload(data, message_format)
    layout = scan(data, 0, len(data))
    check_preamble(data, layout, header)
    return ReceivedMessage(data, layout, header)


def check_preamble(data: bytes, layout: Layout, header: Header) -> i64:
    """Check the sections before a body, and read the header; return the offset after these sections.

    Raises what `read_message` raises.
    """
    if layout.body != NONE:
        preamble_end = layout.body
    elif layout.application_properties != NONE:
        preamble_end = layout.application_properties_end
    else:
        preamble_end = layout.properties_end if layout.properties != NONE else layout.bare
    if preamble_end > PREAMBLE_BYTES_MAX:
        text = f"{preamble_end} bytes of sections before the body, at most {PREAMBLE_BYTES_MAX} are allowed"
        raise PeerError(RESOURCE_LIMIT_EXCEEDED, text)
    if layout.header == NONE:
        header.clear()
    else:
        header.read(data, layout.header, layout.header_end)
    if layout.annotations != NONE:
        check_annotations(data, layout.annotations, layout.annotations_end)
    if layout.properties != NONE:
        check_properties(data, layout.properties, layout.properties_end)
    return preamble_end


def stored_header(durable: bool, priority: i64, ttl: i64) -> bytes:
    """Return the header section of a stored message that was not delivered yet; `ttl` in ms or NONE."""
    if ttl != NONE:
        return header_section(durable, priority, ttl, True, 0)
    key = priority * 2 + (1 if durable else 0)
    section = _HEADERS.get(key)
    if section is None:
        section = _HEADERS[key] = header_section(durable, priority, NONE, True, 0)
    return section


def _may_need_view(data: bytes, layout: Layout) -> bool:
    start = layout.application_properties
    return start != NONE and data.find(_MARKED, start, layout.application_properties_end) >= 0


PIECE_BYTES: Final = 524288


@final
class LargeMessage:
    """A large message that is incomplete. A durable one is written to disk while it arrives.

    A message is large by the size of all sections; its body may be short. The counted size includes all bytes
    that are stored in pieces, also the footer.

    The pieces of a message that stays incomplete, or that no queue enqueues, are released with the body.
    """

    def __init__(self, connection: Connection10State, start: bytes, header: Header) -> None:
        """`start` contains all sections before the body. Raises DecodeError and PeerError."""
        layout = scan_preamble(start)
        preamble_end = check_preamble(start, layout, header)
        self.message = ReceivedMessage(start[:preamble_end], layout, header)
        self._body: Body = connection.server.store.new_body()
        self._connection = connection
        self._scan = BodyScan()
        self._parts: list[bytes] = []
        self._part_bytes: i64 = 0
        self._stored_bytes: i64 = 0
        self.feed(start[preamble_end:])

    def feed(self, part: bytes) -> None:
        """Add the next bytes. Raises DecodeError."""
        self._scan.feed(part)
        self._parts.append(part)
        self._part_bytes += len(part)
        if self._part_bytes >= PIECE_BYTES:
            self._store_piece()

    def end(self) -> ReceivedMessage:
        """Return the message after its last bytes. Raises DecodeError."""
        self._scan.end()
        if self._parts:
            self._store_piece()
        message = self.message
        message.size = self._stored_bytes
        message.body = self._body
        return message

    def _store_piece(self) -> None:
        data = b"".join(self._parts)
        self._parts = []
        self._part_bytes = 0
        self._stored_bytes += len(data)
        piece = piece_of(self._body, data, len(data))
        if self.message.durable:
            self._connection.server.store.append_piece(piece)


TRANSFERS_MAX: Final = 100_000  # transfers of a delivery


@final
class Assembly:
    """The transfers of a link's incomplete delivery; `transfers`: their number so far."""

    def __init__(self, connection: Connection10State, header: Header) -> None:
        self.transfers: i64 = 0
        self._connection = connection
        self._header = header
        self._parts: list[bytes] = []
        self._large: LargeMessage | None = None

    def add(self, payload: bytes, size: i64) -> None:
        """Add a transfer, with which the delivery has `size` bytes. Raises PeerError."""
        self.transfers += 1
        if self.transfers > TRANSFERS_MAX:
            raise PeerError(TRANSFER_LIMIT_EXCEEDED, f"a delivery of more than {TRANSFERS_MAX} transfers")
        if self._large is not None:
            self._large.feed(payload)
            return
        self._parts.append(payload)
        if size > WHOLE_BYTES_MAX:
            parts, self._parts = self._parts, []
            self._large = LargeMessage(self._connection, b"".join(parts), self._header)

    def finish(self, message_format: i64) -> ReceivedMessage:
        """Return the message after its last transfer. Raises PeerError."""
        large = self._large
        if large is not None:
            return large.end()
        return read_message(b"".join(self._parts), self._header, message_format)

    def clear(self) -> None:
        """Forget the delivery."""
        self.transfers = 0
        self._parts = []
        self._large = None
