"""basic.* besides publish, deliver and ack; confirm.select, channel.flow. [amqp-0-9-1 1.8]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64
from pamqp import commands

from broker.adapters import direct_reply
from broker.adapters.access import QUEUE
from broker.adapters.confirms import Confirms
from broker.adapters.fitting import fitted, too_long
from broker.adapters.leases import Leases
from broker.adapters.redelivery import with_counts
from broker.adapters.settling import give_back, recover_deliveries
from broker.adapters.target091 import OUTPUT_BYTES_MAX, Target091, write_message
from broker.adapters.topology091 import Handler, queue_named
from broker.auth.terms import READ
from broker.core.arguments import BROWSE, CONSUMER_TIMEOUT, PRIORITY, check_consumer_arguments
from broker.core.consumer import QueueConsumer
from broker.core.credit import Credit
from broker.core.errors import NotAllowed, PreconditionFailed
from broker.core.getting import get_one
from broker.core.lease import Lease, lease_milliseconds
from broker.core.queue import Queue
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods
from protocol.amqp091.content import DIRECT_REPLY_TO
from protocol.errors import SYNTAX_ERROR, ProtocolError

if TYPE_CHECKING:
    from broker.adapters.channel091 import Channel


def qos(channel: Channel, frame: commands.Basic.Qos) -> None:
    """basic.qos: a window for each consumer, or one for the channel; live consumers get it too.

    [amqp-0-9-1 1.8.3.1, RabbitMQ per-consumer prefetch]
    """
    if frame.global_:
        _limit(channel, frame.prefetch_count, frame.prefetch_size)
    else:
        channel.prefetch_count = frame.prefetch_count
        channel.prefetch_bytes = frame.prefetch_size
        for target in list(channel.targets.values()):
            if not target.no_ack:
                target.credit.resize(frame.prefetch_count, frame.prefetch_size)
    channel.reply(methods.method_frame(channel.number, c.BASIC_QOS_OK))


def _limit(channel: Channel, count: i64, size: i64) -> None:
    """basic.qos for the whole channel: one window for its consumers, those that it has included."""
    window = channel.window
    if window is None:
        if count == 0 and size == 0:
            return  # never limited: its consumers need not count
        window = channel.window = Credit()
        for target in channel.targets.values():
            if not target.no_ack:
                target.share(window)
        unacked = channel.unacked
        for tag in unacked.up_to(0):
            entry = unacked.find(tag)
            consumer = unacked.holder
            if entry is not None and consumer is not None and consumer.target.session_credit is not None:
                window.use(entry.message.size)
        if channel.transaction is not None:
            for held in channel.transaction.settlements:  # they give their credit back with the commit
                if held.consumer.target.session_credit is not None:
                    window.use(held.entry.message.size)
    window.resize(count, size)


def consume(channel: Channel, frame: commands.Basic.Consume) -> None:
    """basic.consume. [amqp-0-9-1 1.8.3.3]

    Raises NotFound, ResourceLocked, AccessRefused (exclusive use), NotAllowed (the tag is in use),
    PreconditionFailed (an argument).
    """
    if frame.queue == DIRECT_REPLY_TO:
        direct_reply.consume(channel, frame)
        return
    queue = _readable(channel, frame.queue)
    tag = frame.consumer_tag
    if not tag:
        tag = channel.server.generate("amq.ctag-")
    elif direct_reply.is_used(channel, tag):
        raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
    arguments: dict[str, object] = dict(frame.arguments) if frame.arguments else {}
    check_consumer_arguments(arguments, f"queue '{queue.name}' in vhost '{queue.vhost}'")
    priority = arguments.get(PRIORITY, 0)
    assert isinstance(priority, int), "arguments have been checked"
    browse = arguments.get(BROWSE, False) is True
    if browse and frame.exclusive:
        raise PreconditionFailed(
            f"invalid arg '{BROWSE}' for queue '{queue.name}': a browser cannot be exclusive"
        )
    if frame.no_ack:  # nothing is ever outstanding, so there is nothing to limit
        target = Target091(channel, Credit(), None, tag, True)
    else:
        credit = Credit(channel.prefetch_count, channel.prefetch_bytes)
        target = Target091(channel, credit, channel.window, tag, False)
    consumer = QueueConsumer(target, queue, not browse, priority, frame.exclusive, tag, frame.no_ack)
    if not frame.no_ack and not browse:
        consumer.lease = _lease(channel, queue, arguments.get(CONSUMER_TIMEOUT))
    try:
        queue.add_consumer(consumer)
    except Exception:
        target.close()
        raise
    target.consumer = consumer
    channel.targets[tag] = target
    if not frame.nowait:
        channel.reply(methods.consumer_tag(channel.number, c.BASIC_CONSUME_OK, tag))


def cancel(channel: Channel, frame: commands.Basic.Cancel) -> None:
    """basic.cancel: what is unacked stays with the channel; an unknown tag is fine. [amqp-0-9-1 1.8.3.5]"""
    tag = frame.consumer_tag or ""
    target = channel.targets.pop(tag, None)
    if target is not None:
        consumer = target.consumer
        target.consumer = None
        target.close()
        if consumer is not None:
            consumer.queue.remove_consumer(consumer, [])
            channel.virtual_host.consumer_gone(consumer.queue)
    elif channel.replies is not None and tag == channel.replies.tag:
        channel.replies.close()
        channel.replies = None
    if not frame.nowait:
        channel.reply(methods.consumer_tag(channel.number, c.BASIC_CANCEL_OK, tag))


def get(channel: Channel, frame: commands.Basic.Get) -> None:
    """basic.get. [amqp-0-9-1 1.8.3.10]"""
    queue = _readable(channel, frame.queue)
    consumer = QueueConsumer(channel.get_target(), queue)
    entry = get_one(queue, consumer)
    if entry is None:
        channel.reply(methods.method_frame(channel.number, c.BASIC_GET_EMPTY, b"\0"))
        return
    unacked = channel.unacked
    message = entry.message
    content = message.content
    if content is None:
        try:
            content = channel.server.store.load(message)
        except Exception:
            queue.release([entry], consumer)
            raise
    connection = channel.connection
    if entry.redelivered and queue.counts:
        content = with_counts(content, entry, connection.frame_max)
    fitting = fitted(message, content, connection.frame_max)
    if fitting is None:
        queue.release([entry], consumer)
        raise PreconditionFailed(too_long(queue, content, connection.frame_max))
    channel.reply(
        methods.basic_get_ok(
            channel.number, unacked.next_tag(), entry.redelivered, message.address.encoded, queue.ready
        )
    )
    write_message(channel, message, fitting)
    if frame.no_ack:
        unacked.skip()
        queue.settle(entry)
    else:
        delivery_tag = unacked.add(entry, consumer)
        consumer.lease = _lease(channel, queue, None)
        if consumer.lease is not None:
            consumer.lease.begin(delivery_tag)
    if len(connection.out) >= OUTPUT_BYTES_MAX or connection.full:
        connection.full = False
        connection.answer()  # a small method, a large answer: many must not pile up


def _readable(channel: Channel, name: str) -> Queue:
    """The queue of a name, for a user who may read it.

    Raises NotFound, ResourceLocked, AccessRefused.
    """
    name = queue_named(channel, name)
    channel.connection.rights.require(READ, QUEUE, name)
    return channel.virtual_host.queue(name, channel.connection)


def cancel_forbidden(channel: Channel) -> None:
    """Cancel the consumers whose queues the user may no longer read. [RabbitMQ consumer_cancel_notify]"""
    for target in list(channel.targets.values()):
        consumer = target.consumer
        if consumer is not None and not channel.connection.rights.allow(READ, consumer.queue.name):
            target.consumer_cancelled(consumer)
            consumer.queue.remove_consumer(consumer, [])
            channel.virtual_host.consumer_gone(consumer.queue)


def reject(channel: Channel, frame: commands.Basic.Reject) -> None:
    """basic.reject. [amqp-0-9-1 1.8.3.14]"""
    give_back(channel, frame.delivery_tag or 0, False, frame.requeue, c.BASIC_REJECT)


def nack(channel: Channel, frame: commands.Basic.Nack) -> None:
    """basic.nack. [RabbitMQ negative acknowledgements]"""
    give_back(channel, frame.delivery_tag or 0, frame.multiple, frame.requeue, c.BASIC_NACK)


def recover_async(channel: Channel, frame: commands.Basic.RecoverAsync) -> None:
    """basic.recover-async. [amqp-0-9-1 1.8.3.15]"""
    recover_deliveries(channel, frame.requeue)


def recover(channel: Channel, frame: commands.Basic.Recover) -> None:
    """basic.recover. [amqp-0-9-1 1.8.3.16]"""
    recover_deliveries(channel, frame.requeue)
    channel.reply(methods.method_frame(channel.number, c.BASIC_RECOVER_OK))


def flow(channel: Channel, frame: commands.Channel.Flow) -> None:
    """channel.flow: the client stops or restarts its deliveries. [amqp-0-9-1 1.5.2.3]"""
    active = bool(frame.active)
    channel.session.set_flow(active)
    if active and channel.replies is not None:
        channel.replies.resume()
    channel.reply(methods.channel_flow_ok(channel.number, active))


def confirm_select(channel: Channel, frame: commands.Confirm.Select) -> None:
    """confirm.select; again is fine. [RabbitMQ confirms]"""
    if channel.transaction is not None:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    if channel.confirms is None:
        channel.confirms = Confirms(channel)
    if not frame.nowait:
        channel.reply(methods.method_frame(channel.number, c.CONFIRM_SELECT_OK))


def _lease(channel: Channel, queue: Queue, asked: object) -> Lease | None:
    """What limits the time of a delivery of `queue`, None if nothing does."""
    milliseconds = lease_milliseconds(queue, asked, channel.server.consumer_timeout)
    if milliseconds == 0:
        return None
    if channel.leases is None:
        channel.leases = Leases(channel)
    return channel.leases.lasting(milliseconds)


def malformed_ack(channel: Channel, frame: object) -> None:
    """A basic.ack whose arguments are not the 9 bytes that they must be."""
    raise ProtocolError(SYNTAX_ERROR, "malformed arguments of Basic.Ack", c.BASIC_ACK)


def access_request(channel: Channel, frame: methods.AccessRequest) -> None:
    """access.request: everybody gets the same ticket; what counts are permissions. [RabbitMQ]"""
    channel.reply(methods.access_request_ok(channel.number))


HANDLERS: Final[dict[int, Handler]] = {
    c.ACCESS_REQUEST: access_request,
    c.CHANNEL_FLOW: flow,
    c.BASIC_QOS: qos,
    c.BASIC_CONSUME: consume,
    c.BASIC_CANCEL: cancel,
    c.BASIC_GET: get,
    c.BASIC_ACK: malformed_ack,
    c.BASIC_REJECT: reject,
    c.BASIC_NACK: nack,
    c.BASIC_RECOVER_ASYNC: recover_async,
    c.BASIC_RECOVER: recover,
    c.CONFIRM_SELECT: confirm_select,
}
"""What a channel does for each method of classes access, basic, confirm and channel."""
