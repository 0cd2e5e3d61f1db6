"""What stands before the bare message that goes to one consumer: a header and annotations of its own.

[amqp-1.0 3.2.1, 3.2.3]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.converted import content_for10, pieces_of
from broker.adapters.amqp10.reach import sent_bytes
from broker.adapters.annotated import content_given
from broker.core.entries.entry import ACQUIRED, QueueEntry
from broker.core.message import NEVER, Address, Message
from broker.core.ports import MessageStore
from broker.core.queues.queue import Queue
from broker.core.schedule import Schedule
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp10.annotations import annotated
from protocol.amqp10.constructors import NONE, SMALL_ULONG
from protocol.amqp10.descriptors import MESSAGE_ANNOTATIONS
from protocol.amqp10.encoding import encode
from protocol.amqp10.headers import Header, header_section
from protocol.amqp10.sections import is_sections, scan_front
from protocol.amqp10.transfers import MESSAGE_FORMAT
from protocol.conversion.opaque import format_of, payload_of

EXCHANGE: Final = b"x-exchange"
ROUTING_KEY: Final = b"x-routing-key"

_HEADER_START: Final = 5  # of a header that is kept: descriptor, constructor and size are before it


@final
class Front:
    """Of one message after the other.

    `rest` is the bare message; of a large one `further` follows, in pieces. `size`: bytes of all of it.
    `format`: of one that is not a message of sections `rest` is all; whoever sends it sets this to 0 again.

    The annotations say where the message was published to. Of one address after the other they are made once.
    `size_max`: bytes that the receiver takes of a message, 0: any number. What consumers have added is left
    out if that would be more.
    """

    def __init__(self, virtual_host: VirtualHost, size_max: i64 = 0) -> None:
        self.header = b""
        self.annotations = b""
        self.rest = b""
        self.size: i64 = 0
        self.further: Iterator[bytes] | None = None
        self.format: i64 = MESSAGE_FORMAT
        self._size_max = size_max
        self._schedule: Schedule = virtual_host.schedule
        self._address: Address | None = None
        self._told: list[bytes] = []  # exchange and routing key, encoded
        self._alone = b""  # annotations that say nothing else
        self._header = Header()

    def read(self, message: Message, entry: QueueEntry, store: MessageStore, queue: Queue) -> None:
        """Take up a message that is about to go out. Raises what MessageStore.load raises."""
        content = message.content
        if content is None:
            content = store.load(message)
        if queue.entries.annotations is not None:
            content = self._given(message, content, content_given(content, queue, entry))
        self.size = 0
        if message.body is not None:
            self.further = pieces_of(message.body, content, store)
            for piece in message.body.pieces:
                self.size += piece.size
        if not is_sections(content):
            content = content_for10(message, content)
        if message.address is not self._address:
            self._tell(message.address)
        end: i64 = _HEADER_START + content[4]
        behind = end
        if len(content) > end + 2 and _may_be_annotations(content, end):
            behind = self._annotate(content, end)
            if self.format != MESSAGE_FORMAT:
                return
        else:
            self.annotations = self._alone
        self.rest = content[behind:]
        if message.expiration != NEVER or entry.redelivered or entry.delivery_count > 1:
            self.header = self._changed(content, end, message, entry)
        else:
            self.header = content[:end]
        self.size += len(self.header) + len(self.annotations) + len(self.rest)

    def _given(self, message: Message, content: bytes, given: bytes) -> bytes:
        more: i64 = len(given) - len(content)
        return given if self._size_max == 0 or sent_bytes(message) + more <= self._size_max else content

    def _tell(self, address: Address) -> None:
        self._address = address
        self._told = [encode(address.exchange), encode(address.routing_key)]
        self._alone = annotated(b"", 0, 0, [EXCHANGE, ROUTING_KEY], self._told)

    def _annotate(self, content: bytes, end: i64) -> i64:
        """Add to the annotations behind the header, which ends at `end`, if there are any; where they end."""
        layout = scan_front(content)
        if layout.annotations == NONE:
            self.annotations = self._alone
            return end
        self.format = format_of(content, layout) if self.further is None else MESSAGE_FORMAT
        if self.format != MESSAGE_FORMAT:
            self.header = self.annotations = b""
            self.rest = payload_of(content, layout)
            self.size = len(self.rest)
            return layout.annotations_end
        names = [EXCHANGE, ROUTING_KEY]
        self.annotations = annotated(content, layout.annotations, layout.annotations_end, names, self._told)
        return layout.annotations_end

    def _changed(self, content: bytes, end: i64, message: Message, entry: QueueEntry) -> bytes:
        """The header of a message that was given out before, or of which some time has passed."""
        header = self._header
        header.read(content, 3, end)
        ttl = header.ttl
        if entry.timer is not None and ttl != NONE:
            ttl = max(entry.timer.due - self._schedule.now(), 0)
        priority = header.priority if header.has_priority else NONE
        under_way = 1 if entry.state == ACQUIRED else 0  # which is this delivery, unless it is for a browser
        failed: i64 = max(entry.counted - under_way, 0)
        return header_section(header.durable, priority, ttl, not entry.redelivered, failed)


def _may_be_annotations(content: bytes, p: i64) -> bool:
    """Whether the section at `p` is one of annotations, or has a descriptor that has to be looked at."""
    return content[p + 2] == MESSAGE_ANNOTATIONS or content[p + 1] != SMALL_ULONG
