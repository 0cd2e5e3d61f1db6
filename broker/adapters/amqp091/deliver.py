"""basic.deliver: messages in the connection's output, and headers that do not fit. [amqp-0-9-1 1.8.3.9]

If a header is too long for the client's frames, deaths that the broker has written are left out, the oldest
first. Headers of the publisher are never left out. If these alone do not fit, the message cannot be
delivered, and the channel is closed.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i64

from broker.adapters.amqp091.large import send_body, send_sections
from broker.adapters.amqp091.state import ChannelState, ChannelTarget
from broker.adapters.formats.amqp091 import with_counts
from broker.adapters.formats.either import content_for091, delivered_content091
from broker.core.arguments.consumer import NOTIFY_ACTIVE
from broker.core.delivery.credit import Credit
from broker.core.entries.entry import QueueEntry
from broker.core.message import Address, Body, Message
from broker.core.queues.attach import detach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import queue_of
from broker.core.queues.state import QueueState
from broker.core.schedule import TimedTask
from protocol.amqp091 import methods
from protocol.amqp091.constants import BASIC_DELIVER, FRAME_END, FRAME_METHOD, FRAME_MIN_SIZE
from protocol.amqp091.content import header_frame_bytes, largest_frame, write_content, write_split
from protocol.amqp091.deaths import without_deaths, without_oldest_deaths
from protocol.amqp091.properties import Properties
from protocol.errors import PRECONDITION_FAILED


def fit_content(message: Message, content: bytes, frame_max: i64) -> bytes | None:
    """Return the content of `message` for a client with this frame_max; None if the header cannot fit."""
    excess = header_frame_bytes(content) - frame_max
    if excess <= 0:
        return content
    if not message.died:
        return None
    properties = Properties(content)
    fields = properties.fields()
    for shorter in (without_oldest_deaths(fields, excess), without_deaths(fields)):
        properties.set_fields(shorter)
        shortened = properties.content()
        if header_frame_bytes(shortened) <= frame_max:
            return shortened
    return None


def describe_long_header(queue: QueueState, content: bytes, frame_max: i64) -> str:
    """Return the error text for a message of `queue` whose header the client cannot take."""
    return (
        f"message in queue '{queue.name}' in vhost '{queue.vhost}' has a content header of "
        f"{header_frame_bytes(content)} bytes, the negotiated frame_max is {frame_max}"
    )


@final
class MisfitAlarm(TimedTask):
    """The timed task that closes a channel over a header that does not fit, in a turn of its own.

    A delivery itself must not close the channel.
    """

    def __init__(self, channel: ChannelState, text: str) -> None:
        super().__init__()
        self._channel = channel
        self._text = text
        schedule = channel.virtual_host.schedule
        schedule.set(self, schedule.now())

    def do_due_work(self) -> None:
        """Close the channel with the error."""
        if self._channel.is_open():
            self._channel.fail(PRECONDITION_FAILED, self._text, 0)
            self._channel.connection.answer()


OUTPUT_BYTES_MAX: Final = 524288  # then the connection flushes before it delivers more


class Target091(ChannelTarget):
    """A target that writes deliveries. The bytes around the delivery tag are made once for each address."""

    def __init__(
        self, channel: ChannelState, credit: Credit, channel_credit: Credit | None, tag: str, no_ack: bool
    ) -> None:
        super().__init__(channel, credit, channel_credit, tag, no_ack)
        self._tag = methods.short_string(tag)
        self._address: Address | None = None
        self._prefix = b""
        self._suffix = b""
        self._suffix_redelivered = b""
        self._channel_high: i64 = channel.number >> 8
        self._channel_low: i64 = channel.number & 0xFF

    def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        """Write a basic.deliver with its content."""
        channel = self.channel
        message = entry.message
        content = message.content
        if content is None:
            content = self._load(consumer, entry)
        kept = content
        queue = consumer.queue
        if queue.entries.annotations is not None:
            frame_max = channel.connection.frame_max
            kept, content = delivered_content091(
                channel.server.conversions, message, content, queue, entry, frame_max
            )
        elif content[0] == 0:
            content = content_for091(channel.server.conversions, message, content)
        if message.address is not self._address:
            self._compose(message.address)
        suffix = self._suffix
        if entry.redelivered:
            channel.traffic.redelivered += 1
            suffix = self._suffix_redelivered
            if consumer.queue.counts:
                content = with_counts(content, entry, channel.connection.frame_max)
        if len(content) > FRAME_MIN_SIZE:
            fitting = fit_content(message, content, channel.connection.frame_max)
            if fitting is None:
                self._refuse(consumer, entry, content)
                return
            content = fitting
        out = channel.connection.out
        out.write(self._prefix)
        traffic = channel.traffic
        traffic.delivered += 1
        if self.no_ack:
            traffic.delivered_no_ack += 1
            write_i64_be(out, channel.unacked.skip())
        else:
            delivery_tag = channel.unacked.add(entry, consumer)
            write_i64_be(out, delivery_tag)
            if consumer.lease is not None:
                consumer.lease.begin(delivery_tag)
        out.write(suffix)
        if (
            len(content) <= FRAME_MIN_SIZE
            and content[2] == self._channel_low
            and content[1] == self._channel_high
        ):
            out.write(content)  # as received, on the same channel number
        else:
            write_content_for(channel, content)
        if message.body is not None:  # a body of any size: sections before the body may have made it large
            _send_body(channel, message.body, 0, kept, content)
        if len(out) >= OUTPUT_BYTES_MAX:
            channel.connection.full = True

    def _load(self, consumer: QueueConsumer, entry: QueueEntry) -> bytes:
        """Return the content of a message that is on disk only. Raises what MessageStore.load raises."""
        try:
            return self.channel.server.store.load(entry.message)
        except Exception:
            self.channel.unacked.add(entry, consumer)  # so that the entry is requeued with the channel
            raise

    def _refuse(self, consumer: QueueConsumer, entry: QueueEntry, content: bytes) -> None:
        """Close the channel over a message whose header does not fit.

        The message counts as unacknowledged, so that it is requeued with the channel.
        """
        connection = self.channel.connection
        self.channel.unacked.add(entry, consumer)
        consumer.no_ack = False  # or the queue would take the message for settled
        MisfitAlarm(self.channel, describe_long_header(consumer.queue, content, connection.frame_max))
        self.close()  # later messages must not overtake this message

    def on_consumer_cancelled(self, consumer: QueueConsumer) -> None:
        """Send basic.cancel after the last consumer has been cancelled, to clients that support it.

        [RabbitMQ consumer_cancel_notify]
        """
        if self.consumers:
            return
        channel = self.channel
        self.close()
        channel.forget_target(self)
        connection = channel.connection
        if connection.vhost_is_deleted:
            return  # connection.close notifies the client
        if connection.client_capabilities.get("consumer_cancel_notify") is True:
            connection.out.write(methods.basic_cancel(channel.number, self.tag))
            connection.schedule()

    def on_snapshot_end(self, consumer: QueueConsumer) -> None:
        """Cancel the consumer of a snapshot that has ended, as if the queue had been deleted."""
        queue = queue_of(consumer)
        detach(queue, consumer, [])
        self.on_consumer_cancelled(consumer)
        self.channel.virtual_host.declarations.delete_if_unused(queue)

    def on_activity_changed(self, consumer: QueueConsumer, active: bool, why: str) -> None:
        """Notify that the consumer is active from now on, or inactive."""
        notified = self.arguments.get(NOTIFY_ACTIVE)
        if isinstance(notified, str):
            channel = self.channel
            channel.server.notices.add(channel.virtual_host, notified, consumer, active, why)

    def _compose(self, address: Address) -> None:
        """Make the parts of the frame that depend only on the address."""
        self._address = address
        size: i64 = 4 + len(self._tag) + 8 + 1 + len(address.encoded)
        number: int = self.channel.number
        out = BytesWriter()
        out.append(FRAME_METHOD)
        out.append(number >> 8 & 0xFF)
        out.append(number & 0xFF)
        length: int = size
        out.write(length.to_bytes(4, "big"))
        write_i32_be(out, BASIC_DELIVER)
        out.write(self._tag)
        self._prefix = out.getvalue()
        self._suffix = b"\x00" + address.encoded + bytes([FRAME_END])
        self._suffix_redelivered = b"\x01" + address.encoded + bytes([FRAME_END])


def write_message(channel: ChannelState, message: Message, kept: bytes, content: bytes) -> None:
    """Write an answer on `channel`. `kept`: the stored content; `content`: the content to send."""
    write_content_for(channel, content)
    if message.body is not None:
        _send_body(channel, message.body, message.size, kept, content)


def _send_body(channel: ChannelState, body: Body, size: i64, kept: bytes, content: bytes) -> None:
    """Send a large body after its content header, which is written already; `size` as in `send_body`."""
    if kept[0] == 0:
        head = header_frame_bytes(content)
        send_sections(channel.connection, body, channel.number, size, kept, head)
    else:
        send_body(channel.connection, body, channel.number, size)


def write_content_for(channel: ChannelState, content: bytes) -> None:
    """Write content for `channel`, as received, or in new frames for a smaller frame_max."""
    out = channel.connection.out
    frame_max = channel.connection.frame_max
    if len(content) > FRAME_MIN_SIZE and len(content) > frame_max and largest_frame(content) > frame_max:
        write_split(out, content, channel.number, frame_max)
    else:
        write_content(out, content, channel.number)
