"""Direct reply-to: replies are delivered straight to the requester's channel. [RabbitMQ direct reply-to]

A channel that consumes from the pseudo-queue `amq.rabbitmq.reply-to` gets a name that cannot be guessed.
Requests that it publishes with `amq.rabbitmq.reply-to` as their reply-to are sent with this name instead. A
message to the default exchange with the name as routing key is written to the channel at once. No queue and
no log are involved. A name lives as long as its consumer, and is good in its virtual host only.

A requester of AMQP 1.0 gets such a name too. The name belongs to a queue of the requester's link. The queue
keeps replies until the requester has credit for the replies (`amqp10/nodes.py`). Requesters and repliers may
use different protocols.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import write_i64_be
from mypy_extensions import i64
from pamqp import commands

from broker.adapters.amqp091.deliver import write_message
from broker.adapters.amqp091.large import unsent_bytes
from broker.adapters.amqp091.state import ChannelReplies, ChannelState
from broker.adapters.formats.either import content_for091
from broker.adapters.peers.direct_reply import PREFIX, receiver_named
from broker.adapters.peers.server import ReplyReceiver
from broker.core.counters import Counters
from broker.core.errors import NotAllowed, NotFound, PreconditionFailed
from broker.core.message import Address, Message, held_bytes
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods
from protocol.amqp091.content import DIRECT_REPLY_TO, header_frame_bytes, with_reply_to

DELIVER_TAG_AT: Final = 11  # the offset of the consumer tag in basic.deliver; the delivery tag follows
UNREAD_BYTES_MAX: Final = 8388608  # for a client that does not read: further replies are dropped


@final
class ReplyConsumer(ChannelReplies):
    """The consumer of direct replies of a channel. `channel` is None after its end."""

    def __init__(self, channel: ChannelState | None, tag: str, name: str) -> None:
        super().__init__(tag, methods.short_string(name))
        self.channel = channel
        number = 0 if channel is None else channel.number
        deliver = methods.basic_deliver(number, tag, 0, False, Address("", name).encoded)
        tag_end = DELIVER_TAG_AT + len(methods.short_string(tag))
        self._prefix = deliver[:tag_end]
        self._suffix = deliver[tag_end + 8 :]
        self._kept: list[Message] = []  # while the client has stopped deliveries
        self._kept_bytes: i64 = 0

    def deliver(self, message: Message, counters: Counters) -> None:
        """Send a reply, or drop it if the consumer has ended or cannot take it."""
        counters.count_publish(message.size)
        channel = self.channel
        if channel is None or header_frame_bytes(_content(channel, message)) > channel.connection.frame_max:
            counters.replies_dropped += 1
        elif not channel.session.flow:
            self._keep(message, counters)
        elif channel.connection.blocked and unsent_bytes(channel.connection) > UNREAD_BYTES_MAX:
            counters.replies_dropped += 1
        else:
            self._write(channel, message)

    def resume(self) -> None:
        """Deliver again: the client has restarted deliveries."""
        kept = self._kept
        self._kept = []
        self._kept_bytes = 0
        if self.channel is not None:
            for message in kept:
                self._write(self.channel, message)

    def close(self) -> None:
        """End the consumer, which is cancelled or ends with its channel."""
        channel = self.channel
        if channel is not None:
            channel.server.replies.pop((channel.virtual_host, self.name), None)
            self.channel = None
            self._kept = []

    def _keep(self, message: Message, counters: Counters) -> None:
        if self._kept_bytes > UNREAD_BYTES_MAX:
            counters.replies_dropped += 1
        else:
            self._kept_bytes += held_bytes(message)
            self._kept.append(message)

    def _write(self, channel: ChannelState, message: Message) -> None:
        kept = message.content
        assert kept is not None, "a reply is never logged"
        connection = channel.connection
        out = connection.out
        out.write(self._prefix)
        write_i64_be(out, channel.unacked.skip())
        out.write(self._suffix)
        write_message(channel, message, kept, _content(channel, message))
        channel.server.counters.delivered += 1
        connection.schedule()  # outside a turn, a connection flushes only when scheduled


def _content(channel: ChannelState, message: Message) -> bytes:
    """Return the content of a reply for a client of AMQP 0-9-1."""
    content = message.content
    assert content is not None, "a reply is never logged"
    return content_for091(channel.server.conversions, message, content)


ENDED_CONSUMER: Final = ReplyConsumer(None, "", "")
"""The receiver of replies to channels that have ended; drops them."""


def is_tag_used(channel: ChannelState, tag: str) -> bool:
    """Whether a consumer of the channel, of either kind, has this tag."""
    return tag in channel.targets or (channel.replies is not None and tag == channel.replies.tag)


def consume(channel: ChannelState, frame: commands.Basic.Consume) -> None:
    """basic.consume of `amq.rabbitmq.reply-to`. Raises NotAllowed, PreconditionFailed."""
    tag = frame.consumer_tag
    if not tag:
        tag = channel.server.generate_name("amq.ctag-")
    elif is_tag_used(channel, tag):
        raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
    if not frame.no_ack:
        raise PreconditionFailed("reply consumer cannot acknowledge")
    if channel.replies is not None:
        raise PreconditionFailed("reply consumer already set")
    replies = ReplyConsumer(channel, tag, channel.server.generate_name(PREFIX))
    channel.replies = replies
    channel.server.replies[channel.virtual_host, replies.name] = replies
    if not frame.nowait:
        channel.reply(methods.consumer_tag(channel.number, c.BASIC_CONSUME_OK, tag))


def set_reply_to(channel: ChannelState, content: bytes) -> bytes:
    """Return a request with the reply consumer's name as reply-to. Raises PreconditionFailed."""
    if channel.replies is None:
        raise PreconditionFailed("fast reply consumer does not exist")
    changed = with_reply_to(content, channel.replies.name)
    size, frame_max = header_frame_bytes(changed), channel.connection.frame_max
    if size > frame_max:
        raise PreconditionFailed(
            f"content header has {size} bytes with the reply address, the negotiated frame_max is {frame_max}"
        )
    return changed


def find_consumer(channel: ChannelState, address: Address) -> ReplyReceiver | None:
    """Return the reply consumer of an address, ENDED_CONSUMER after its end, None for other addresses.

    None also for the queue of a requester of AMQP 1.0, to which messages are routed as to any queue.
    """
    name = address.routing_key
    if address.exchange or not name.startswith(PREFIX) or name in channel.virtual_host.topology.queues:
        return None
    return receiver_named(channel.server, channel.virtual_host, name) or ENDED_CONSUMER


def declare(channel: ChannelState, frame: commands.Queue.Declare) -> None:
    """queue.declare of a reply name: whether its requester still waits for replies. Raises NotFound."""
    name = frame.queue
    virtual_host = channel.virtual_host
    known = name == DIRECT_REPLY_TO or name in virtual_host.topology.queues
    if not known and receiver_named(channel.server, virtual_host, name) is None:
        raise NotFound(f"no queue '{name}' in vhost '{channel.virtual_host.name}'")
    if not frame.nowait:
        channel.reply(methods.queue_declare_ok(channel.number, name, 0, 1))
