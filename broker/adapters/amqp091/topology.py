"""exchange.* and queue.*: declare, bind, unbind, purge, delete. [amqp-0-9-1 1.6, 1.7]"""

from __future__ import annotations

from typing import Any, Final, final

from mypy_extensions import i64
from pamqp import commands

from broker.adapters.access import EXCHANGE, QUEUE
from broker.adapters.amqp091 import direct_reply
from broker.adapters.amqp091.state import ChannelState, Connection091State, Handler, queue_named
from broker.adapters.peers import requests
from broker.adapters.peers.connections import HELD_FOR_REPLY
from broker.core.arguments.remote import LINK_COUNTS, LINK_PATH
from broker.core.delivery.session import serve_notified
from broker.core.names import one_line, refuse_default_exchange
from broker.core.partitions.partitioned import totals_of, whole_count
from broker.core.ports import DurableWaiter
from broker.core.queues.purge import Purge, PurgeWaiter
from broker.core.queues.queue import Queue
from broker.core.remotes.remote import note_feeders
from broker.core.schedule import DELIVERY
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods
from protocol.amqp091.content import DIRECT_REPLY_TO
from protocol.errors import PRECONDITION_FAILED, RESOURCE_ERROR, ProtocolError


def _arguments(given: dict[str, Any] | None) -> dict[str, object]:
    return dict(given) if given else {}


def deliver_notified(channel: ChannelState, queue: Queue) -> bool:
    """Deliver the messages of which `queue` has notified its consumers, before a request that must wait.

    For a partitioned queue this includes the messages of all its members.
    Return whether the channel is still open: a delivery on the channel may have failed.
    """
    if queue.partitions is not None:
        for member in queue.partitions.member_queues():
            assert isinstance(member, Queue), "every QueueState is a Queue"
            _serve_notified(channel, member)
    else:
        _serve_notified(channel, queue)
    return channel.is_open()


def _serve_notified(channel: ChannelState, queue: Queue) -> None:
    if queue.manager.notified > 0:
        delivered = serve_notified(queue)
        channel.server.broker.schedule.allowance.use(delivered * DELIVERY)


def _deliver_notified_by(channel: ChannelState, name: str) -> bool:
    """As `deliver_notified`, for the queue of a name, if it exists."""
    queue = channel.virtual_host.topology.queues.get(name)
    return queue is None or deliver_notified(channel, queue)


@final
class DurableReply(DurableWaiter):
    """An answer that must not overtake the log; the connection takes frames again after it."""

    def __init__(self, connection: Connection091State, reply: bytes) -> None:
        self.connection = connection
        self.reply = reply

    def on_durable(self, batch: i64) -> None:
        """Send the answer."""
        connection = self.connection
        if connection.is_open():
            connection.out.write(self.reply)
            connection.release(HELD_FOR_REPLY)

    def on_store_failed(self, reason: str) -> None:
        """Close the connection instead of answering: the change may not survive."""
        self.connection.fail(ProtocolError(RESOURCE_ERROR, f"the log has failed: {reason}"))


def answer_when_durable(connection: Connection091State, reply: bytes) -> None:
    """Send `reply` when everything appended is on disk, and take no frames before."""
    connection.hold(HELD_FOR_REPLY)
    connection.server.store.wait(DurableReply(connection, reply))


def _answer(channel: ChannelState, frame: bytes, durable: bool, nowait: bool) -> None:
    """Answer, after a durable change is on disk. [amqp-0-9-1 durable]"""
    if nowait:
        return
    if durable:
        answer_when_durable(channel.connection, frame)
    else:
        channel.reply(frame)


def exchange_declare(channel: ChannelState, frame: commands.Exchange.Declare) -> None:
    """exchange.declare. [amqp-0-9-1 1.6.2.1]"""
    virtual_host = channel.virtual_host
    name = one_line(frame.exchange)
    if frame.passive:
        refuse_default_exchange(name)
        channel.connection.rights.require_any(EXCHANGE, name)
        exchange = virtual_host.declarations.find_exchange(name)
    else:
        exchange = requests.declare_exchange(
            channel.connection,
            virtual_host,
            name,
            frame.exchange_type,
            frame.durable,
            frame.auto_delete,
            frame.internal,
            _arguments(frame.arguments),
        )
    durable = exchange.durable and not frame.passive
    _answer(channel, methods.method_frame(channel.number, c.EXCHANGE_DECLARE_OK), durable, frame.nowait)


def exchange_delete(channel: ChannelState, frame: commands.Exchange.Delete) -> None:
    """exchange.delete, also of an absent exchange. [amqp-0-9-1 1.6.2.3]"""
    durable = requests.delete_exchange(
        channel.connection, channel.virtual_host, one_line(frame.exchange), frame.if_unused
    )
    _answer(channel, methods.method_frame(channel.number, c.EXCHANGE_DELETE_OK), durable, frame.nowait)


def exchange_bind(channel: ChannelState, frame: commands.Exchange.Bind) -> None:
    """exchange.bind. [RabbitMQ exchange-to-exchange bindings]"""
    requests.bind(
        channel.connection,
        channel.virtual_host,
        EXCHANGE,
        frame.destination,
        frame.source,
        frame.routing_key,
        _arguments(frame.arguments),
    )
    _answer(channel, methods.method_frame(channel.number, c.EXCHANGE_BIND_OK), True, frame.nowait)


def exchange_unbind(channel: ChannelState, frame: commands.Exchange.Unbind) -> None:
    """exchange.unbind. [RabbitMQ exchange-to-exchange bindings]"""
    requests.unbind(
        channel.connection,
        channel.virtual_host,
        EXCHANGE,
        frame.destination,
        frame.source,
        frame.routing_key,
        _arguments(frame.arguments),
    )
    _answer(channel, methods.method_frame(channel.number, c.EXCHANGE_UNBIND_OK), True, frame.nowait)


def queue_declare(channel: ChannelState, frame: commands.Queue.Declare) -> None:
    """queue.declare. [amqp-0-9-1 1.7.2.1]

    The link of a remote queue adds arguments to its passive declarations. The answer then counts all
    messages that are in the queue or may come back to it, and a link that closes a circle is refused. [amqpd]
    """
    if frame.queue.startswith(DIRECT_REPLY_TO):
        direct_reply.declare(channel, frame)
        return
    name = one_line(frame.queue)
    virtual_host = channel.virtual_host
    connection = channel.connection
    counts_all = False
    if frame.passive:
        queue = requests.use_queue(connection, virtual_host, queue_named(channel, name))
        if frame.arguments:
            counts_all = frame.arguments.get(LINK_COUNTS) is True
            note_feeders(queue, frame.arguments.get(LINK_PATH))
    else:
        queue = requests.declare_queue(
            connection,
            virtual_host,
            name,
            frame.durable,
            frame.exclusive,
            frame.auto_delete,
            _arguments(frame.arguments),
        )
    channel.last_queue = queue.name
    if not deliver_notified(channel, queue):
        return
    is_plain = queue.partitions is None and queue.remote is None
    ready = queue.ready if is_plain else totals_of(queue).ready
    if counts_all:
        ready = whole_count(queue)
    reply = methods.queue_declare_ok(channel.number, queue.name, ready, queue.consumer_count)
    _answer(channel, reply, queue.durable and not frame.passive, frame.nowait)


def queue_bind(channel: ChannelState, frame: commands.Queue.Bind) -> None:
    """queue.bind. [amqp-0-9-1 1.7.2.3]"""
    name = queue_named(channel, frame.queue)
    key = frame.routing_key
    if not frame.queue and not key:
        key = name
    virtual_host = channel.virtual_host
    arguments = _arguments(frame.arguments)
    requests.bind(channel.connection, virtual_host, QUEUE, name, frame.exchange, key, arguments)
    durable = virtual_host.topology.queues[name].durable
    _answer(channel, methods.method_frame(channel.number, c.QUEUE_BIND_OK), durable, frame.nowait)


def queue_unbind(channel: ChannelState, frame: commands.Queue.Unbind) -> None:
    """queue.unbind. [amqp-0-9-1 1.7.2.5]"""
    name = queue_named(channel, frame.queue)
    virtual_host = channel.virtual_host
    arguments = _arguments(frame.arguments)
    requests.unbind(
        channel.connection, virtual_host, QUEUE, name, frame.exchange, frame.routing_key, arguments
    )
    queue = virtual_host.topology.queues.get(name)
    durable = queue is not None and queue.durable
    _answer(channel, methods.method_frame(channel.number, c.QUEUE_UNBIND_OK), durable, False)


def queue_purge(channel: ChannelState, frame: commands.Queue.Purge) -> None:
    """queue.purge; unacknowledged messages stay. No frames are taken before the purge is over.

    [amqp-0-9-1 1.7.2.7]
    """
    name = queue_named(channel, frame.queue)
    if not _deliver_notified_by(channel, name):
        return
    connection = channel.connection
    purge = requests.purge_queue(connection, channel.virtual_host, name)
    if not purge.over:
        connection.hold(HELD_FOR_REPLY)
    purge.set_waiter(PurgeReply(channel, frame.nowait))


@final
class PurgeReply(PurgeWaiter):
    """The answer to a queue.purge."""

    def __init__(self, channel: ChannelState, nowait: bool) -> None:
        self._channel = channel
        self._nowait = nowait

    def on_purged(self, purge: Purge) -> None:
        """Send the answer (PurgeWaiter); the channel or the connection may have ended meanwhile."""
        channel = self._channel
        if channel.is_open() and purge.failure:
            channel.fail(PRECONDITION_FAILED, purge.failure, c.QUEUE_PURGE)
            channel.connection.answer()
        elif channel.is_open():
            frame = methods.message_count(channel.number, c.QUEUE_PURGE_OK, purge.dropped)
            _answer(channel, frame, purge.logged, self._nowait)
            if purge.logged and not self._nowait:
                return  # the connection continues after the log's sync
        if channel.connection.is_open():
            channel.connection.release(HELD_FOR_REPLY)


def queue_delete(channel: ChannelState, frame: commands.Queue.Delete) -> None:
    """queue.delete, also of an absent queue. The client's own consumers are cancelled after the reply.

    [amqp-0-9-1 1.7.2.9]
    """
    name = queue_named(channel, one_line(frame.queue))
    if not _deliver_notified_by(channel, name):
        return
    out = channel.connection.out
    before = len(out)
    count, durable = requests.delete_queue(
        channel.connection, channel.virtual_host, name, frame.if_unused, frame.if_empty
    )
    cancels = out.getvalue()[before:]  # for consumers of this connection; py-amqp wants the reply first
    if frame.nowait:
        return
    out.truncate(before)
    reply = methods.message_count(channel.number, c.QUEUE_DELETE_OK, count)
    _answer(channel, reply + cancels, durable, frame.nowait)


HANDLERS: Final[dict[int, Handler]] = {
    c.EXCHANGE_DECLARE: exchange_declare,
    c.EXCHANGE_DELETE: exchange_delete,
    c.EXCHANGE_BIND: exchange_bind,
    c.EXCHANGE_UNBIND: exchange_unbind,
    c.QUEUE_DECLARE: queue_declare,
    c.QUEUE_BIND: queue_bind,
    c.QUEUE_UNBIND: queue_unbind,
    c.QUEUE_PURGE: queue_purge,
    c.QUEUE_DELETE: queue_delete,
}
"""The handlers of the methods of classes exchange and queue."""
