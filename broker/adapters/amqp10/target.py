"""The target of a link, which writes messages as transfers into the connection's output.

[amqp-1.0 2.6.12, 3.2.1, 3.2.3]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.answers import pending_frames_of
from broker.adapters.amqp10.entry_filters import sent_bytes
from broker.adapters.amqp10.link import NOTHING_RECEIVED, OUTPUT_BYTES_MAX, Sender, send_more
from broker.adapters.amqp10.state import Session10State
from broker.adapters.formats.either import content_for10, delivered_content, pieces_of
from broker.core.arguments.consumer import NOTIFY_ACTIVE
from broker.core.arguments.queue import CRASH
from broker.core.delivery.credit import Credit
from broker.core.delivery.session import PullingTarget
from broker.core.entries.entry import ACQUIRED, QueueEntry
from broker.core.message import NEVER, Address, Message
from broker.core.ports import MessageStore
from broker.core.publishing.publisher import Publisher
from broker.core.queues.attach import detach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import queue_of
from broker.core.queues.state import QueueState
from broker.core.schedule import Schedule, TimedTask
from broker.core.transactions.transaction import Transaction
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp10.annotations import annotations_section
from protocol.amqp10.conditions import RESOURCE_DELETED
from protocol.amqp10.constructors import NONE, SMALL_ULONG
from protocol.amqp10.descriptors import MESSAGE_ANNOTATIONS
from protocol.amqp10.encoding import encode
from protocol.amqp10.headers import Header, header_section
from protocol.amqp10.outcomes import transactional
from protocol.amqp10.outgoing import SplitTransfer
from protocol.amqp10.sections import is_sections, scan_preamble
from protocol.amqp10.transfers import MESSAGE_FORMAT
from protocol.amqp10.writing import NULL_VALUE
from protocol.conversion.opaque import format_of, payload_of

EXCHANGE: Final = b"x-exchange"
ROUTING_KEY: Final = b"x-routing-key"

_HEADER_START: Final = 5  # the bytes before a stored header's count: descriptor, constructor and size


@final
class DeliverySections:
    """The sections of a delivery: header and annotations, and the bare message. The object is reused.

    `rest`: the bare message; for a large message `further` follows, in pieces. `size`: bytes of all parts.
    `format`: the message-format; if it is not 0, `rest` is the whole payload, and the caller sets `format`
    to 0 again.

    The annotations have the address of the publish. The encoded annotations are kept for further messages
    with the same address. `size_max`: the receiver's max-message-size in bytes, 0: unlimited. Annotations of
    consumers are left out if they would exceed it.
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
        self._address_values: list[bytes] = []  # exchange and routing key, encoded
        self._address_only = b""  # the annotations of a message with these only
        self._header = Header()

    def read(self, message: Message, entry: QueueEntry, store: MessageStore, queue: QueueState) -> None:
        """Read a message that is about to be sent. Raises what MessageStore.load raises."""
        content = message.content
        if content is None:
            content = store.load(message)
        if queue.entries.annotations is not None:
            content = self._limit_annotations(message, content, delivered_content(content, queue, entry))
        self.size = 0
        if message.body is not None:
            self.further = pieces_of(message.body, content, store)
            for piece in message.body.pieces:
                self.size += piece.size
        if not is_sections(content):
            content = content_for10(message, content)
        if message.address is not self._address:
            self._set_address(message.address)
        end: i64 = _HEADER_START + content[4]
        after = end
        if len(content) > end + 2 and _may_be_annotations(content, end):
            after = self._annotate(content, end)
            if self.format != MESSAGE_FORMAT:
                return
        else:
            self.annotations = self._address_only
        self.rest = content[after:]
        if message.expiration != NEVER or entry.redelivered or entry.delivery_count > 1:
            self.header = self._make_header(content, end, message, entry)
        else:
            self.header = content[:end]
        self.size += len(self.header) + len(self.annotations) + len(self.rest)

    def _limit_annotations(self, message: Message, content: bytes, given: bytes) -> bytes:
        more: i64 = len(given) - len(content)
        return given if self._size_max == 0 or sent_bytes(message) + more <= self._size_max else content

    def _set_address(self, address: Address) -> None:
        self._address = address
        self._address_values = [encode(address.exchange), encode(address.routing_key)]
        self._address_only = annotations_section(b"", 0, 0, [EXCHANGE, ROUTING_KEY], self._address_values)

    def _annotate(self, content: bytes, end: i64) -> i64:
        """Make the annotations from the stored ones at `end`; return the offset after the stored ones."""
        layout = scan_preamble(content)
        if layout.annotations == NONE:
            self.annotations = self._address_only
            return end
        self.format = format_of(content, layout) if self.further is None else MESSAGE_FORMAT
        if self.format != MESSAGE_FORMAT:
            self.header = self.annotations = b""
            self.rest = payload_of(content, layout)
            self.size = len(self.rest)
            return layout.annotations_end
        names = [EXCHANGE, ROUTING_KEY]
        self.annotations = annotations_section(
            content, layout.annotations, layout.annotations_end, names, self._address_values
        )
        return layout.annotations_end

    def _make_header(self, content: bytes, end: i64, message: Message, entry: QueueEntry) -> bytes:
        """Return the header with the remaining ttl and the delivery-count."""
        header = self._header
        header.read(content, 3, end)
        ttl = header.ttl
        if entry.timer is not None and ttl != NONE:
            ttl = max(entry.timer.due - self._schedule.now(), 0)
        priority = header.priority if header.has_priority else NONE
        under_way = 1 if entry.state == ACQUIRED else 0  # this delivery, unless it is a browser's
        failed: i64 = max(entry.counted - under_way, 0)
        return header_section(header.durable, priority, ttl, not entry.redelivered, failed)


def _may_be_annotations(content: bytes, p: i64) -> bool:
    """Whether the section at `p` may be annotations, by its descriptor."""
    return content[p + 2] == MESSAGE_ANNOTATIONS or content[p + 1] != SMALL_ULONG


class LinkTransaction(Transaction):
    """A transaction in which deliveries are acquired; `transactions.Transaction10` extends this class.

    `is_over`: the transaction is being discharged or rolled back. `acquired`: the numbers of the deliveries
    acquired in the transaction, with their sessions. A rollback releases these deliveries.
    """

    def __init__(self, publisher: Publisher, session: Session10State, txn_id: bytes) -> None:
        super().__init__(publisher, session)
        self.txn_id = txn_id
        self.is_over = False
        self.acquired: list[tuple[Session10State, i64]] = []


class Resumption(TimedTask):
    """The deliveries that a link resumes before all others; `resume.ResumedDeliveries` extends this class."""


@final
class Target10(PullingTarget):
    """A target that writes deliveries. Only the receiver grants credit.

    `settled`: deliveries are sent settled. `draining`: the receiver drains its credit. `default_outcome`: the
    cause with which unsettled deliveries are released when the link ends, a constant of
    `broker.core.arguments.queue`. `transaction`: deliveries are acquired in this transaction. `resumption`:
    the deliveries that the link is about to resume. `tag_prefix`: the prefix of delivery-tags, if unsettled
    deliveries outlive the link. `resumed`: the tags of resumed deliveries, by their numbers.
    """

    def __init__(self, link: Sender, settled: bool, size_max: i64) -> None:
        credit = Credit(1)  # used up: the link has no credit before the first flow
        credit.used = 1
        session = link.session
        self.link = link
        self.resumption: Resumption | None = None
        super().__init__(session, credit)
        self.settled = settled
        self.draining = False
        self.default_outcome: i64 = CRASH
        self.arguments: dict[str, object] = {}  # the consumer's arguments
        self.transaction: LinkTransaction | None = None
        self.tag_prefix = b""
        self.resumed: dict[int, bytes] = {}
        self._session = session
        self._sections = DeliverySections(session.vhost, size_max)

    # -- credit

    def set_credit(self, credit: i64) -> None:
        """Set the number of further deliveries that may be sent."""
        self.credit.resize(self.credit.used + credit, 0)

    def wants_work(self) -> bool:
        """Whether new deliveries can be sent: none is incomplete or is to be resumed."""
        return self.link.sending is None and self.resumption is None and super().wants_work()

    def restore_credit(self, size: i64) -> None:
        """Do nothing: only the receiver grants credit."""

    def restore_all(self, count: i64, size: i64) -> None:
        """Do nothing: only the receiver grants credit."""

    # -- deliveries

    def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        """Write a delivery, or its first frame. Raises what MessageStore.load raises."""
        try:
            self._deliver(consumer, entry)
        except Exception:
            unsettled = self._session.unsettled
            if unsettled.find(unsettled.next_tag() - 1) is not entry:
                unsettled.add(entry, consumer)  # so that it is released with the session
            raise

    def _deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        link = self.link
        session = self._session
        message = entry.message
        sections = self._sections
        sections.read(message, entry, session.peer.server.store, consumer.queue)
        settled = self.settled
        traffic = session.traffic
        traffic.delivered += 1
        if settled:
            traffic.delivered_no_ack += 1
        if entry.redelivered:
            traffic.redelivered += 1
        unsettled = session.unsettled
        number = unsettled.skip() if settled else unsettled.add(entry, consumer)
        delivery_id = number - 1 & 0xFFFFFFFF
        link.credit.use()
        if consumer.lease is not None:
            consumer.lease.begin(number)
        number32: int = delivery_id
        tag = number32.to_bytes(4, "big")
        if self.tag_prefix:
            tag = self.tag_prefix + tag
        out = session.peer.out
        head = link.template.whole(delivery_id, tag, settled, sections.size)
        if (
            head is None
            or sections.format != MESSAGE_FORMAT
            or message.body is not None
            or self.transaction is not None
        ):
            self._split(number, tag, sections)
            return
        out.write(head)
        out.write(sections.header)
        if sections.annotations:
            out.write(sections.annotations)
        out.write(sections.rest)
        session.count_transfer()
        if len(out) >= OUTPUT_BYTES_MAX:
            session.peer.full = True

    def deliver_again(self, consumer: QueueConsumer, entry: QueueEntry, tag: bytes) -> None:
        """Resume a delivery that an earlier link has sent, from its beginning. [amqp-1.0 2.6.13]

        Raises what MessageStore.load raises.
        """
        session = self._session
        number = session.unsettled.add(entry, consumer)  # first: after an error the session releases it
        self.resumed[number] = tag
        sections = self._sections
        sections.read(entry.message, entry, session.peer.server.store, consumer.queue)
        if consumer.lease is not None:
            consumer.lease.begin(number)
        self._split(number, tag, sections, NOTHING_RECEIVED, resume=True)

    def _split(
        self,
        number: i64,
        tag: bytes,
        sections: DeliverySections,
        state: bytes = NULL_VALUE,
        resume: bool = False,
    ) -> None:
        """Begin a delivery of any number of frames, and send as many as the session's window allows."""
        link = self.link
        parts = [sections.header, sections.annotations, sections.rest]
        size: i64 = len(sections.header) + len(sections.annotations) + len(sections.rest)
        further, sections.further = sections.further, None
        message_format: i64 = sections.format
        sections.format = MESSAGE_FORMAT
        delivery_id = number - 1 & 0xFFFFFFFF
        transaction = self.transaction
        if transaction is not None and transaction.is_over:
            # the transaction has ended, and the receiver has not sent a flow without its txn-id yet
            self.transaction = transaction = None
        if transaction is not None and not resume:
            state = transactional(transaction.txn_id)
            transaction.acquired.append((self._session, number))
        link.sending = SplitTransfer(
            link.template,
            delivery_id,
            tag,
            self.settled,
            parts,
            message_format,
            state=state,
            resume=resume,
            further=further,
            further_bytes=sections.size - size,
        )
        send_more(self._session, link)

    def tag_of(self, number: i64) -> bytes:
        """Return the delivery-tag of the delivery with this number."""
        tag = self.resumed.get(number)
        if tag is not None:
            return tag
        delivery_id: int = number - 1 & 0xFFFFFFFF
        return self.tag_prefix + delivery_id.to_bytes(4, "big")

    def process_pending(self, quota: i64) -> i64:
        """Deliver in a turn, and end a drain when no messages or no credit are left."""
        count = super().process_pending(quota)
        if self.draining and not self.again and self.wants_work():
            pending_frames_of(self._session).note_drained(self.link)
        else:
            self.end_drain()
        return count

    def end_drain(self) -> None:
        """End a drain after its last delivery has been sent completely."""
        link = self.link
        if self.draining and link.credit.left == 0 and link.sending is None:
            pending_frames_of(self._session).note_drained(link)

    # -- events of the consumers

    def on_consumer_cancelled(self, consumer: QueueConsumer) -> None:
        """Detach the link after its last queue was deleted."""
        if not self.consumers:
            queue = consumer.queue
            session = self._session
            text = f"queue '{queue.name}' in vhost '{queue.vhost}' was deleted"
            pending_frames_of(session).outcomes.detach(self.link, RESOURCE_DELETED, text)
            session.peer.schedule()

    def on_snapshot_end(self, consumer: QueueConsumer) -> None:
        """Detach a consumer at the end of its snapshot; the last one ends the link."""
        queue = queue_of(consumer)
        detach(queue, consumer, [])
        session = self._session
        if not self.consumers:
            self.link.close()
            session.peer.schedule()
        session.vhost.declarations.delete_if_unused(queue)

    def on_activity_changed(self, consumer: QueueConsumer, active: bool, why: str) -> None:
        """Notify that the link is active from now on, or inactive."""
        notified_queue = self.arguments.get(NOTIFY_ACTIVE)
        if isinstance(notified_queue, str):
            session = self._session
            session.peer.server.notices.add(session.vhost, notified_queue, consumer, active, why)


def default_outcome_of(consumer: QueueConsumer) -> i64:
    """Return the outcome of a delivery to which its receiver has given none."""
    target = consumer.target
    return target.default_outcome if isinstance(target, Target10) else CRASH
