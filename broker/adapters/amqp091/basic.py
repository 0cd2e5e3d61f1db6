"""basic.qos, reject, nack and recover; confirm.select and channel.flow. [amqp-0-9-1 1.8]"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64
from pamqp import commands

from broker.adapters.amqp091.confirms import Confirms
from broker.adapters.amqp091.consume import cancel, consume
from broker.adapters.amqp091.get import get
from broker.adapters.amqp091.settle import recover_deliveries, return_deliveries
from broker.adapters.amqp091.state import ChannelState, Handler
from broker.core.delivery.credit import Credit
from broker.core.delivery.session import PullingTarget
from broker.core.entries.entry import QueueEntry
from broker.core.errors import PreconditionFailed
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.returns import EndedDeliveries
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods
from protocol.errors import SYNTAX_ERROR, ProtocolError


def qos(channel: ChannelState, frame: commands.Basic.Qos) -> None:
    """basic.qos: set the window of each later consumer, or a window for the whole channel.

    Live consumers keep their own windows. A new window for the channel applies to them too.
    [amqp-0-9-1 1.8.3.1, RabbitMQ per-consumer prefetch]
    """
    if frame.global_:
        _limit_channel(channel, frame.prefetch_count, frame.prefetch_size)
    else:
        channel.prefetch_count = frame.prefetch_count
        channel.prefetch_bytes = frame.prefetch_size
    channel.reply(methods.method_frame(channel.number, c.BASIC_QOS_OK))


def _limit_channel(channel: ChannelState, count: i64, size: i64) -> None:
    """basic.qos for the whole channel: set a window that its consumers share."""
    window = channel.window
    if window is None:
        if count == 0 and size == 0:
            return  # never limited, so its consumers need not count
        window = channel.window = Credit()
        for target in channel.targets.values():
            if not target.no_ack:
                target.share(window)
        for consumer, entry in _unsettled_deliveries(channel):
            holding = consumer.target
            if isinstance(holding, PullingTarget) and holding.session_credit is window:
                window.use(entry.message.size)
    window.resize(count, size)


def _unsettled_deliveries(channel: ChannelState) -> Iterator[tuple[QueueConsumer, QueueEntry]]:
    """Iterate over the deliveries that have not returned their credit."""
    unacked = channel.unacked
    for tag in unacked.tags_up_to(0):
        delivery = unacked.find(tag)
        holder = unacked.holder
        if delivery is not None and holder is not None:
            yield holder, delivery
    if channel.transaction is not None:
        for held in channel.transaction.settlements:
            for entry in held.entries:
                yield held.consumer, entry
    for later in channel.virtual_host.settlements:
        if isinstance(later, EndedDeliveries) and later.session is channel.session:
            for consumer, entries in later.remaining_runs():
                for entry in entries:
                    yield consumer, entry


def reject(channel: ChannelState, frame: commands.Basic.Reject) -> None:
    """basic.reject. [amqp-0-9-1 1.8.3.14]"""
    return_deliveries(channel, frame.delivery_tag or 0, False, frame.requeue, c.BASIC_REJECT)


def nack(channel: ChannelState, frame: commands.Basic.Nack) -> None:
    """basic.nack. [RabbitMQ negative acknowledgements]"""
    return_deliveries(channel, frame.delivery_tag or 0, frame.multiple, frame.requeue, c.BASIC_NACK)


def recover_async(channel: ChannelState, frame: commands.Basic.RecoverAsync) -> None:
    """basic.recover-async. [amqp-0-9-1 1.8.3.15]"""
    recover_deliveries(channel, frame.requeue)


def recover(channel: ChannelState, frame: commands.Basic.Recover) -> None:
    """basic.recover. [amqp-0-9-1 1.8.3.16]"""
    recover_deliveries(channel, frame.requeue)
    channel.reply(methods.method_frame(channel.number, c.BASIC_RECOVER_OK))


def flow(channel: ChannelState, frame: commands.Channel.Flow) -> None:
    """channel.flow: the client stops or restarts its deliveries. [amqp-0-9-1 1.5.2.3]"""
    active = bool(frame.active)
    channel.session.set_flow(active)
    if active and channel.replies is not None:
        channel.replies.resume()
    channel.reply(methods.channel_flow_ok(channel.number, active))


def confirm_select(channel: ChannelState, frame: commands.Confirm.Select) -> None:
    """confirm.select, which may be repeated. [RabbitMQ confirms]"""
    if channel.transaction is not None:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    if channel.confirms is None:
        channel.confirms = Confirms(channel)
    if not frame.nowait:
        channel.reply(methods.method_frame(channel.number, c.CONFIRM_SELECT_OK))


def malformed_ack(channel: ChannelState, frame: object) -> None:
    """Refuse a basic.ack whose arguments are not exactly 9 bytes."""
    raise ProtocolError(SYNTAX_ERROR, "malformed arguments of Basic.Ack", c.BASIC_ACK)


def access_request(channel: ChannelState, frame: methods.AccessRequest) -> None:
    """access.request: answer every client with the same ticket; only permissions matter. [RabbitMQ]"""
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
"""The handlers of the methods of classes access, basic, confirm and channel."""
