"""basic.consume and basic.cancel. [amqp-0-9-1 1.8.3]"""

from __future__ import annotations

from mypy_extensions import i64
from pamqp import commands

from broker.adapters.access import QUEUE
from broker.adapters.amqp091 import direct_reply
from broker.adapters.amqp091.chosen_messages import ChosenConsume, CountedTarget
from broker.adapters.amqp091.deliver import Target091
from broker.adapters.amqp091.settle import ChannelLeases
from broker.adapters.amqp091.state import ChannelState, queue_named
from broker.adapters.amqp091.topology import deliver_notified
from broker.adapters.formats.either import SelectorFilter
from broker.adapters.peers.notices import check_notified_queue
from broker.auth.terms import READ
from broker.core.arguments.consumer import (
    ALSO_CONSUME,
    EXCLUSIVE_CONSUMER,
    GET_COUNT,
    NOTIFY_ACTIVE,
    ORIGIN_READER,
    PREFETCH,
    PRIORITY,
    SELECTOR,
    BrowseRange,
    browses,
    check_combination,
    check_consumer_arguments,
    extent_argument,
    has_get_arguments,
    selector_argument,
)
from broker.core.arguments.queue import CONSUMER_TIMEOUT, is_non_destructive
from broker.core.arguments.rule import invalid
from broker.core.delivery.credit import Credit
from broker.core.errors import NotAllowed, PreconditionFailed, Unsupported
from broker.core.partitions.partitioned import refuse_partitioned
from broker.core.queues.attach import attach, detach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.lease import Lease, lease_milliseconds
from broker.core.queues.queue import Queue, queue_of, refuse_stream
from broker.core.selector.selector import Selector
from broker.core.streams.offsets import CONSUMER_NAMES, stream_extent
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods
from protocol.amqp091.content import DIRECT_REPLY_TO


def consume(channel: ChannelState, frame: commands.Basic.Consume) -> None:
    """basic.consume. [amqp-0-9-1 1.8.3.3]

    Raises NotFound, ResourceLocked, AccessRefused (exclusive use), NotAllowed (the tag is in use),
    PreconditionFailed (an argument).
    """
    if frame.queue == DIRECT_REPLY_TO:
        direct_reply.consume(channel, frame)
        return
    queue = readable_queue(channel, frame.queue)
    tag = frame.consumer_tag
    if not tag:
        tag = channel.server.generate_name("amq.ctag-")
    elif direct_reply.is_tag_used(channel, tag):
        raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
    arguments: dict[str, object] = dict(frame.arguments) if frame.arguments else {}
    where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    check_consumer_arguments(arguments, where)
    if ORIGIN_READER in arguments:
        _consume_staged(channel, queue, tag, frame, arguments)
        return
    selector = selector_argument(arguments, where)  # parsed once: a long selector takes milliseconds
    queues = _queues_to_consume(channel, queue, arguments)
    notified = arguments.get(NOTIFY_ACTIVE, "")
    assert isinstance(notified, str), "arguments have been checked"
    if notified:
        check_notified_queue(channel.connection.rights, channel.virtual_host, notified, queue.name)
    prefetch = arguments.get(PREFETCH, channel.prefetch_count)
    assert isinstance(prefetch, int), "arguments have been checked"
    target = _make_target(channel, tag, frame.no_ack, prefetch, GET_COUNT in arguments)
    target.arguments = arguments
    if has_get_arguments(arguments):
        refuse_stream(queue, "read with x-get-message-id, x-get-position or x-get-count")
        refuse_partitioned(queue, "read with x-get-message-id, x-get-position or x-get-count")
        check_combination(
            arguments, frame.exclusive, queue.arguments, f"queue '{queue.name}' in vhost '{queue.vhost}'"
        )
        consumer = _make_consumer(channel, target, queue, frame, arguments, selector)
        ChosenConsume(channel, target, consumer, frame.nowait).begin()
        return
    try:
        for each in queues:
            check_combination(
                arguments, frame.exclusive, each.arguments, f"queue '{each.name}' in vhost '{each.vhost}'"
            )
            attach(each, _make_consumer(channel, target, each, frame, arguments, selector))
    except Exception:
        target.close()
        for consumer in list(target.consumers):
            detach(queue_of(consumer), consumer, [])
        raise
    channel.targets[tag] = target
    channel.virtual_host.warn_of_unknown(arguments, CONSUMER_NAMES, f"a consumer of {where}")
    if not frame.nowait:
        channel.reply(methods.consumer_tag(channel.number, c.BASIC_CONSUME_OK, tag))


def _consume_staged(
    channel: ChannelState,
    queue: Queue,
    tag: str,
    frame: commands.Basic.Consume,
    arguments: dict[str, object],
) -> None:
    """Attach a reader that forwards exactly once. Raises PreconditionFailed."""
    reader = arguments[ORIGIN_READER]
    assert isinstance(reader, str), "arguments have been checked"
    where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    others = [name for name in arguments if name not in (ORIGIN_READER, SELECTOR)]
    if others:
        raise invalid(ORIGIN_READER, where, reader, f"does not go with {others[0]}")
    if frame.no_ack or frame.exclusive:
        wrong = "no-ack" if frame.no_ack else "exclusive"
        raise invalid(ORIGIN_READER, where, reader, f"does not go with {wrong}")
    make_reader = channel.server.make_reader
    if make_reader is None:
        raise Unsupported(f"{where} has no readers: the broker is about to stop")
    refuse_partitioned(queue, "read with x-origin-reader")
    selector = selector_argument(arguments, where)
    channel.reader = made = make_reader(channel, queue, reader, tag, selector)
    if not frame.nowait:
        channel.reply(methods.consumer_tag(channel.number, c.BASIC_CONSUME_OK, tag))
    made.open()


def _queues_to_consume(channel: ChannelState, queue: Queue, arguments: dict[str, object]) -> list[Queue]:
    """Return the queues to consume from: `queue`, and the queues in `x-also-consume`.

    Raises what `readable_queue` raises, and PreconditionFailed for a queue that is named twice.
    """
    queues = [queue]
    names = arguments.get(ALSO_CONSUME, [])
    assert isinstance(names, list), "arguments have been checked"
    for name in names:
        other = readable_queue(channel, name)
        if other in queues:
            where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
            raise invalid(ALSO_CONSUME, where, name, "is consumed already")
        queues.append(other)
    return queues


def _make_target(channel: ChannelState, tag: str, no_ack: bool, prefetch: i64, counted: bool) -> Target091:
    credit, window = Credit(), None
    if not no_ack:  # without acknowledgements no delivery is unacknowledged, and no limit applies
        credit, window = Credit(prefetch, channel.prefetch_bytes), channel.window
    if counted:
        return CountedTarget(channel, credit, window, tag, no_ack)
    return Target091(channel, credit, window, tag, no_ack)


def _make_consumer(
    channel: ChannelState,
    target: Target091,
    queue: Queue,
    frame: commands.Basic.Consume,
    arguments: dict[str, object],
    selector: Selector | None,
) -> QueueConsumer:
    """Return a consumer with these arguments, which have been checked."""
    priority = arguments.get(PRIORITY, 0)
    assert isinstance(priority, int), "arguments have been checked"
    browse = browses(arguments) or is_non_destructive(queue.arguments)
    trouble = channel.virtual_host.trouble
    sieve = None if selector is None else SelectorFilter(selector, queue.store, trouble)
    consumer = QueueConsumer(
        target, queue, not browse, priority, frame.exclusive, target.tag, frame.no_ack, sieve
    )
    if queue.stream is not None:
        consumer.extent = _stream_extent(channel, queue, frame, arguments, target.credit.count_max)
    elif browse:
        consumer.extent = extent_argument(arguments)
    consumer.candidate = arguments.get(EXCLUSIVE_CONSUMER) is True
    if not frame.no_ack and not browse:
        consumer.lease = lease_of(channel, queue, arguments.get(CONSUMER_TIMEOUT))
    return consumer


def _stream_extent(
    channel: ChannelState,
    queue: Queue,
    frame: commands.Basic.Consume,
    arguments: dict[str, object],
    prefetch: i64,
) -> BrowseRange:
    """Return the part of a stream that the consumer gets, which has to acknowledge and to set a prefetch."""
    where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    if frame.no_ack:
        raise Unsupported(f"{where} is a stream: its consumers must acknowledge, so no-ack must be false")
    if prefetch == 0 and (channel.window is None or channel.window.count_max == 0):
        raise PreconditionFailed(f"consumer prefetch count is not set for {where}, which is a stream")
    return stream_extent(arguments, where, channel.virtual_host.schedule.date())


def cancel(channel: ChannelState, frame: commands.Basic.Cancel) -> None:
    """basic.cancel: unacknowledged deliveries stay with the channel; an unknown tag is ignored.

    [amqp-0-9-1 1.8.3.5]
    """
    tag = frame.consumer_tag or ""
    target = channel.targets.get(tag)
    if target is not None:
        for consumer in list(target.consumers):
            if not deliver_notified(channel, queue_of(consumer)):
                return
        channel.forget_target(target)
        target.close()
        for consumer in list(target.consumers):
            detach(queue_of(consumer), consumer, [])
            channel.virtual_host.declarations.delete_if_unused(queue_of(consumer))
    elif channel.reader is not None and tag == channel.reader.tag:
        reader, channel.reader = channel.reader, None
        reader.give_up()
    elif channel.replies is not None and tag == channel.replies.tag:
        channel.replies.close()
        channel.replies = None
    if not frame.nowait:
        channel.reply(methods.consumer_tag(channel.number, c.BASIC_CANCEL_OK, tag))


def readable_queue(channel: ChannelState, name: str) -> Queue:
    """Return the queue of a name, which the user may read.

    Raises NotFound, ResourceLocked, AccessRefused.
    """
    if channel.reader is not None:
        raise PreconditionFailed(
            f"consumer '{channel.reader.tag}' with {ORIGIN_READER} needs its channel alone"
        )
    name = queue_named(channel, name)
    channel.connection.rights.require(READ, QUEUE, name)
    return channel.virtual_host.declarations.find_queue(name, channel.connection)


def cancel_forbidden(channel: ChannelState) -> None:
    """Cancel the consumers whose queues the user may no longer read. [RabbitMQ consumer_cancel_notify]

    The parts of a consumer of a partitioned queue end with their consumer.
    """
    for pending in (channel.pending_get, channel.pending_consume):
        if pending is not None:
            pending.on_rights_changed()
    for target in list(channel.targets.values()):
        for consumer in [each for each in target.consumers if each.front is None]:
            if not channel.connection.rights.has_right(READ, consumer.queue.name):
                detach(queue_of(consumer), consumer, [])
                target.on_consumer_cancelled(consumer)
                channel.virtual_host.declarations.delete_if_unused(queue_of(consumer))


def lease_of(channel: ChannelState, queue: Queue, requested: object) -> Lease | None:
    """Return the lease of deliveries of `queue`, None without a time limit."""
    milliseconds = lease_milliseconds(queue, requested, channel.server.consumer_timeout)
    if milliseconds == 0:
        return None
    if channel.leases is None:
        channel.leases = ChannelLeases(channel)
    return channel.leases.get_lease(milliseconds)
