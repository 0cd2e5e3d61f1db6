"""Where one link's messages go: transfers in the connection's output. [amqp-1.0 2.6.12]

[amqp-1.0 3.2.1, 3.2.3]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.link import NOTHING_RECEIVED, OUTPUT_BYTES_MAX, send_on
from broker.adapters.amqp10.reach import sent_bytes
from broker.adapters.formats.either import content_for10, content_given, pieces_of
from broker.core.arguments.consumer import NOTIFY_ACTIVE
from broker.core.arguments.queue import CRASH
from broker.core.delivery.credit import Credit
from broker.core.delivery.session import PullingTarget
from broker.core.entries.entry import ACQUIRED, QueueEntry
from broker.core.message import NEVER, Address, Message
from broker.core.ports import MessageStore
from broker.core.queues.attach import detach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import Queue, queue_of
from broker.core.schedule import Schedule
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp10.annotations import annotated
from protocol.amqp10.conditions import RESOURCE_DELETED
from protocol.amqp10.constructors import NONE, SMALL_ULONG
from protocol.amqp10.descriptors import MESSAGE_ANNOTATIONS
from protocol.amqp10.encoding import encode
from protocol.amqp10.headers import Header, header_section
from protocol.amqp10.outcomes import transactional
from protocol.amqp10.outgoing import SplitTransfer
from protocol.amqp10.sections import is_sections, scan_front
from protocol.amqp10.transfers import MESSAGE_FORMAT
from protocol.amqp10.writing import NULL_VALUE
from protocol.conversion.opaque import format_of, payload_of

if TYPE_CHECKING:
    from broker.adapters.amqp10.send import OutgoingLink


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


@final
class Target10(PullingTarget):
    """Writes deliveries. The receiver says how many it takes, and settling them allows no more.

    `draining`: it wants to hear when there is nothing to send. `abandoned`: how what it has not settled comes
    back when the link ends, one of `broker.core.arguments.queue`.
    """

    def __init__(self, link: OutgoingLink) -> None:
        credit = Credit(1)  # which is used up: there is none before the first flow
        credit.used = 1
        self.link = link
        super().__init__(link.session, credit)
        self.draining = False
        self.abandoned: i64 = CRASH
        self.arguments: dict[str, object] = {}  # what the link was asked for with
        self._front = Front(link.session.vhost, link.size_max)

    # -- credit

    def allow(self, credit: i64) -> None:
        """So many more may be sent."""
        self.credit.resize(self.credit.used + credit, 0)

    def wants_work(self) -> bool:
        """Not while a delivery is on its way, or others have to be resumed first (ConsumerTarget)."""
        link = self.link
        return link.sending is None and link.resuming is None and super().wants_work()

    def restore_credit(self, size: i64) -> None:
        """Nothing: it is for the receiver to say (ConsumerTarget)."""

    def restore_all(self, count: i64, size: i64) -> None:
        """Nothing: it is for the receiver to say (ConsumerTarget)."""

    # -- deliveries

    def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        """Write one delivery, or its first frame. Raises what MessageStore.load raises."""
        try:
            self._deliver(consumer, entry)
        except Exception:
            unsettled = self.link.session.unsettled
            if unsettled.find(unsettled.next_tag() - 1) is not entry:
                unsettled.add(entry, consumer)  # it goes back to the queue with the session
            raise

    def _deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        link = self.link
        session = link.session
        message = entry.message
        front = self._front
        front.read(message, entry, session.peer.server.store, queue_of(consumer))
        settled = link.settled
        unsettled = session.unsettled
        number = unsettled.skip() if settled else unsettled.add(entry, consumer)
        delivery_id = number - 1 & 0xFFFFFFFF
        link.credit.use()
        if consumer.lease is not None:
            consumer.lease.begin(number)
        number32: int = delivery_id
        tag = number32.to_bytes(4, "big")
        if link.expiry is not None:
            tag = link.generation + tag
        out = session.peer.out
        head = link.template.whole(delivery_id, tag, settled, front.size)
        if (
            head is None
            or front.format != MESSAGE_FORMAT
            or message.body is not None
            or link.transaction is not None
        ):
            self._split(number, tag, front)
            return
        out.write(head)
        out.write(front.header)
        if front.annotations:
            out.write(front.annotations)
        out.write(front.rest)
        session.sent()
        if len(out) >= OUTPUT_BYTES_MAX:
            session.peer.full = True

    def deliver_again(self, consumer: QueueConsumer, entry: QueueEntry, tag: bytes) -> None:
        """Resume a delivery that an earlier link has sent, from its beginning. [amqp-1.0 2.6.13]

        Raises what MessageStore.load raises.
        """
        link = self.link
        session = link.session
        number = session.unsettled.add(entry, consumer)  # if it cannot be read, it goes back with the session
        link.resumed[number] = tag
        front = self._front
        front.read(entry.message, entry, session.peer.server.store, queue_of(consumer))
        if consumer.lease is not None:
            consumer.lease.begin(number)
        self._split(number, tag, front, NOTHING_RECEIVED, resume=True)

    def _split(
        self, number: i64, tag: bytes, front: Front, state: bytes = NULL_VALUE, resume: bool = False
    ) -> None:
        """Send it in as many frames as it takes, as far as the session's window goes."""
        link = self.link
        parts = [front.header, front.annotations, front.rest]
        size: i64 = len(front.header) + len(front.annotations) + len(front.rest)
        further, front.further = front.further, None
        message_format: i64 = front.format
        front.format = MESSAGE_FORMAT
        delivery_id = number - 1 & 0xFFFFFFFF
        if link.transaction is not None and link.transaction.over:
            link.transaction = None  # the receiver has yet to say that nothing more is acquired in it
        if link.transaction is not None and not resume:
            state = transactional(link.transaction.txn_id)
            link.transaction.acquire(link.session, number)
        link.sending = SplitTransfer(
            link.template,
            delivery_id,
            tag,
            link.settled,
            parts,
            message_format,
            state=state,
            resume=resume,
            further=further,
            further_bytes=front.size - size,
        )
        send_on(link.session, link)

    def process_pending(self, quota: i64) -> i64:
        """The turn; when it finds nothing more, or all credit is gone, a drain is over (ConsumerTarget)."""
        count = super().process_pending(quota)
        if self.draining and not self.again and self.wants_work():
            self.link.session.owed.drained(self.link)
        else:
            self.end_drain()
        return count

    def end_drain(self) -> None:
        """A drain whose last delivery has gone out, whole, is over."""
        link = self.link
        if self.draining and link.credit.left == 0 and link.sending is None:
            link.session.owed.drained(link)

    # -- what happens to its consumers

    def consumer_cancelled(self, consumer: QueueConsumer) -> None:
        """The queue is gone (ConsumerTarget)."""
        if not self.consumers:
            queue = consumer.queue
            session = self.link.session
            text = f"queue '{queue.name}' in vhost '{queue.vhost}' is gone"
            session.owed.answers.detach(self.link, RESOURCE_DELETED, text)
            session.peer.schedule()

    def shown_all(self, consumer: QueueConsumer) -> None:
        """A snapshot ends, and with the last one its link (ConsumerTarget)."""
        queue = queue_of(consumer)
        detach(queue, consumer, [])
        session = self.link.session
        if not self.consumers:
            self.link.finish()
            session.peer.schedule()
        session.vhost.consumer_gone(queue)

    def activity_changed(self, consumer: QueueConsumer, active: bool, why: str) -> None:
        """The link is served from now on, or no longer (ConsumerTarget)."""
        notified = self.arguments.get(NOTIFY_ACTIVE)
        if isinstance(notified, str):
            session = self.link.session
            session.peer.server.notices.add(session.vhost, notified, consumer, active, why)
