"""basic.get, which may wait for a message. [amqp-0-9-1 1.8.3.10]"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64
from pamqp import commands

from broker.adapters.amqp091.consume import lease_of, readable_queue
from broker.adapters.amqp091.deliver import (
    OUTPUT_BYTES_MAX,
    MisfitAlarm,
    describe_long_header,
    fit_content,
    write_message,
)
from broker.adapters.amqp091.state import ChannelState, PendingRequest
from broker.adapters.amqp091.topology import deliver_notified
from broker.adapters.formats.amqp091 import with_counts
from broker.adapters.formats.either import delivered_content091
from broker.auth.terms import READ
from broker.core.arguments.queue import GET_WAIT, RELEASED, is_non_destructive
from broker.core.delivery.credit import Credit
from broker.core.delivery.session import PullingTarget
from broker.core.entries.entry import QueueEntry
from broker.core.errors import PreconditionFailed
from broker.core.partitions.partitioned import get_next
from broker.core.queues.attach import attach, detach
from broker.core.queues.consumer import REMOVED, QueueConsumer
from broker.core.queues.queue import Queue, queue_of, refuse_stream
from broker.core.queues.returns import release_entries
from broker.core.queues.state import QueueState, count_get, count_get_empty
from broker.core.schedule import TimedTask
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods

KEPT_FRAMES_BYTES_MAX: Final = (
    1048576  # the most bytes of frames after a waiting get: more bytes end the wait
)
REMOTE_MILLISECONDS: Final = 30_000  # a get from a remote queue waits at most so long for the other broker


def get(channel: ChannelState, frame: commands.Basic.Get) -> None:
    """basic.get.

    Raises what `readable_queue` and `get_next` raise, PreconditionFailed for a header that is too long, and
    Unsupported for a stream.
    """
    queue = readable_queue(channel, frame.queue)
    refuse_stream(queue, "read with basic.get")
    if not deliver_notified(channel, queue):
        return
    if queue.remote is not None:
        WaitingGet(channel, queue, frame.no_ack).begin(REMOTE_MILLISECONDS)
        return
    got = get_next(queue, channel.get_target(), frame.no_ack)
    if got is None:
        milliseconds = _wait_milliseconds(channel, queue)
        if queue.partitions is not None and queue.partitions.has_members_elsewhere and milliseconds <= 0:
            WaitingGet(channel, queue, frame.no_ack).begin(REMOTE_MILLISECONDS, True)
        elif milliseconds > 0:
            WaitingGet(channel, queue, frame.no_ack).begin(milliseconds)
        else:
            _reply_empty(channel, queue)
        return
    consumer, entry = got.consumer, got.entry
    queue = queue_of(consumer)
    content = entry.message.content
    if content is None:
        try:
            content = channel.server.store.load(entry.message)
        except Exception:
            release_entries(queue, [entry], consumer, RELEASED)
            raise
    connection = channel.connection
    content, annotated = _delivered_content(channel, queue, entry, content)
    fitting = _fitted_content(channel, queue, entry, annotated)
    if fitting is None:
        release_entries(queue, [entry], consumer, RELEASED)
        raise PreconditionFailed(describe_long_header(queue, annotated, connection.frame_max))
    _write(channel, consumer, entry, content, fitting, frame.no_ack)
    if frame.no_ack:
        queue.settle(entry)
    if len(connection.out) >= OUTPUT_BYTES_MAX or connection.full:
        connection.full = False
        connection.answer()  # small requests with large answers must not pile up


def _reply_empty(channel: ChannelState, queue: QueueState) -> None:
    """Answer that there is no message."""
    count_get_empty(queue)
    channel.traffic.got_empty += 1
    channel.reply(methods.method_frame(channel.number, c.BASIC_GET_EMPTY, b"\0"))


def _wait_milliseconds(channel: ChannelState, queue: Queue) -> i64:
    """Return the milliseconds that a get waits, as the client or else the queue sets; 0: no waiting."""
    value = channel.connection.client_properties.get(GET_WAIT)
    if value is None:
        value = queue.effective.get(GET_WAIT, 0)
    assert isinstance(value, int), "properties and arguments are checked before they are used"
    milliseconds: int = value
    return milliseconds


def _delivered_content(
    channel: ChannelState, queue: Queue, entry: QueueEntry, content: bytes
) -> tuple[bytes, bytes]:
    return delivered_content091(
        channel.server.conversions, entry.message, content, queue, entry, channel.connection.frame_max
    )


def _fitted_content(channel: ChannelState, queue: Queue, entry: QueueEntry, content: bytes) -> bytes | None:
    """Return the content for this client, None if its header cannot fit."""
    frame_max = channel.connection.frame_max
    if entry.redelivered and queue.counts:
        content = with_counts(content, entry, frame_max)
    return fit_content(entry.message, content, frame_max)


def _write(
    channel: ChannelState,
    consumer: QueueConsumer,
    entry: QueueEntry,
    kept: bytes,
    content: bytes,
    no_ack: bool,
) -> None:
    """Write basic.get-ok with its content, and give the delivery its tag.

    `kept` is the stored content, `content` the content to send.
    """
    queue = queue_of(consumer)
    message = entry.message
    unacked = channel.unacked
    left = queue.ready if consumer.acquires else queue.ready - 1
    channel.reply(
        methods.basic_get_ok(
            channel.number, unacked.next_tag(), entry.redelivered, message.address.encoded, left
        )
    )
    write_message(channel, message, kept, content)
    traffic = channel.traffic
    traffic.delivered += 1
    if entry.redelivered:
        traffic.redelivered += 1
    if no_ack:
        traffic.got_no_ack += 1
        unacked.skip()
        return
    traffic.got += 1
    delivery_tag = unacked.add(entry, consumer)
    if consumer.acquires:
        consumer.lease = lease_of(channel, queue, None)
    if consumer.lease is not None:
        consumer.lease.begin(delivery_tag)


@final
class WaitingGet(PullingTarget, PendingRequest):
    """A basic.get on an empty queue, attached to the queue as a consumer with a credit of one.

    So the get is served in order among consumers and other waiting gets. The channel keeps its next frames
    until the get is answered: with a message, or with get-empty. get-empty is sent when the time is over,
    when the queue is deleted, and when the user may no longer read the queue. get-empty is also sent when the
    client closes the channel, or has sent more than KEPT_FRAMES_BYTES_MAX after the get.
    """

    def __init__(self, channel: ChannelState, queue: Queue, no_ack: bool) -> None:
        super().__init__(channel.session, Credit(1))
        self.channel = channel
        self.consumer = QueueConsumer(self, queue, not is_non_destructive(queue.arguments), no_ack=no_ack)
        self.consumer.getting = True
        self._end = _WaitEnd(self)
        self._answered = False
        self._for_others = False

    def begin(self, milliseconds: i64, for_others: bool = False) -> None:
        """Wait for at most `milliseconds`.

        `for_others`: wait only for the answers of the members in other brokers.
        """
        channel = self.channel
        self._for_others = for_others
        channel.pending_get = self
        channel.hold()
        attach(queue_of(self.consumer), self.consumer)
        schedule = channel.virtual_host.schedule
        schedule.set(self._end, schedule.now() + milliseconds)

    def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        """Answer with a message."""
        channel = self.channel
        content = entry.message.content
        if content is None:
            try:
                content = channel.server.store.load(entry.message)
            except Exception:
                channel.unacked.add(entry, consumer)  # so that the entry is requeued with the channel
                raise
        content, annotated = _delivered_content(channel, queue_of(consumer), entry, content)
        fitting = _fitted_content(channel, queue_of(consumer), entry, annotated)
        if fitting is None:
            channel.unacked.add(entry, consumer)
            consumer.no_ack = False  # or the queue would take the message for settled
            MisfitAlarm(
                channel, describe_long_header(queue_of(consumer), annotated, channel.connection.frame_max)
            )
            return
        _write(channel, consumer, entry, content, fitting, consumer.no_ack)
        if consumer.acquires:
            count_get(consumer.queue, consumer.no_ack)
        self._answered = True
        self.end()

    def on_consumer_cancelled(self, consumer: QueueConsumer) -> None:
        """End the wait: the queue was deleted, or the last of the other brokers has no message."""
        if consumer.front is None or self.consumer.state == REMOVED:
            self.end()
            return
        if consumer.state != REMOVED:
            detach(queue_of(consumer), consumer, [])  # the part of a member in another broker
        if self._for_others and not any(queue_of(part).origin is not None for part in self.consumer.parts):
            self.end()

    def frame_kept(self, method: i64) -> None:
        """End the wait if the client closes the channel, or has sent too much."""
        if method == c.CHANNEL_CLOSE or self.channel.kept_bytes > KEPT_FRAMES_BYTES_MAX:
            self.end()

    def end(self) -> None:
        """End the wait in a turn of its own."""
        schedule = self.channel.virtual_host.schedule
        schedule.set(self._end, schedule.now())

    def on_rights_changed(self) -> None:
        """End the wait if the user may no longer read the queue."""
        if not self.channel.connection.rights.has_right(READ, self.consumer.queue.name):
            self.end()

    def abandon(self) -> None:
        """End the wait without an answer: this side closes the channel."""
        self._detach()
        self.end()  # the kept frames may contain the client's close

    def finish(self) -> None:
        """Answer, unless a message was the answer, and let the channel continue."""
        channel = self.channel
        connection = channel.connection
        if not self._answered and channel.pending_get is self:
            _reply_empty(channel, self.consumer.queue)
        self._detach()
        frames = channel.end_hold()
        if connection.is_open() and connection.wire.channel(channel.number) is channel:
            connection.wire.put_back(frames)
            connection.receive(b"")

    def _detach(self) -> None:
        self.close()
        self.channel.pending_get = None
        if self.consumer.state != REMOVED:
            detach(queue_of(self.consumer), self.consumer, [])

    def wants_work(self) -> bool:
        """Whether the get can take a message; channel.flow does not affect a get."""
        return not self.closed and not self.session.connection.blocked and self.credit.has()


@final
class _WaitEnd(TimedTask):
    """The timed task for the end of a wait."""

    def __init__(self, waiting: WaitingGet) -> None:
        super().__init__()
        self._waiting = waiting

    def do_due_work(self) -> None:
        """End the wait."""
        self._waiting.finish()
