"""Settlements other than a single basic.ack: multiple, nack, reject, recover, timeout, and a channel's end.

Single acknowledgements are the hot path, and are in `channel`. [amqp-0-9-1 1.8.3]
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.amqp091.deliver import Target091
from broker.adapters.amqp091.state import ChannelState
from broker.adapters.peers.leases import Leases
from broker.adapters.peers.unsettled import Unacked
from broker.core.arguments.queue import CRASH, NACK, RECOVER, REJECT, TIMEOUT
from broker.core.entries.entry import QueueEntry
from broker.core.queues import returns as core
from broker.core.queues.attach import detach
from broker.core.queues.consumer import REMOVED, QueueConsumer
from broker.core.queues.lease import Lease
from broker.core.queues.queue import queue_of
from broker.core.queues.returns import (
    deliver_again,
    discard_all,
    release_entries,
    restore_credit,
    settle_runs,
)
from broker.core.transactions.transaction import DISCARD, RELEASE, SETTLE
from protocol.amqp091.constants import BASIC_ACK, BASIC_NACK
from protocol.errors import NOT_IMPLEMENTED, PRECONDITION_FAILED


@final
class ChannelLeases(Leases):
    """The leases of a channel; a delivery's number is its tag."""

    def __init__(self, channel: ChannelState) -> None:
        super().__init__(channel.virtual_host.schedule, channel.server.counters)
        self._channel = channel

    def used_leases(self) -> set[Lease | None]:
        """Return the leases of the channel's consumers."""
        targets = self._channel.targets.values()
        return {consumer.lease for target in targets for consumer in target.consumers}

    def is_unsettled(self, number: i64) -> bool:
        """Whether the delivery with this tag is not settled yet."""
        channel = self._channel
        if channel.unacked.find(number) is not None:
            return True
        return channel.transaction is not None and number in channel.transaction.tags()

    def end(self, numbers: list[i64]) -> None:
        """Release deliveries; if the client settles them later, this is no error.

        A settlement cannot be removed from a transaction. So a late delivery that a transaction settles
        closes the channel, which rolls the transaction back.
        """
        channel = self._channel
        if channel.transaction is not None and not channel.transaction.tags().isdisjoint(numbers):
            text = f"transaction of {len(channel.transaction.tags())} settlements was not committed in time"
            channel.fail(PRECONDITION_FAILED, text, 0)
            channel.connection.answer()
            return
        channel.unacked.forgive(numbers)
        requeue(channel, numbers, TIMEOUT)

    def identify(self) -> tuple[str, str, i64]:
        """Return the peer, the user and the number of the channel."""
        channel = self._channel
        return channel.connection.peer, channel.connection.user, channel.number


RESEND_MAX: Final[i64] = 5000  # deliveries that a basic.recover sends again


def check_tag(channel: ChannelState, tag: i64, multiple: bool, method: int) -> bool:
    """Whether a settlement names an unacknowledged delivery; tag 0 with `multiple` names all deliveries.

    If not, the channel ends with 406, unless the delivery was released because it was late. In that case
    `multiple` settles the earlier deliveries. [amqp-0-9-1 1.8.3.13.2]
    """
    unacked = channel.unacked
    if unacked.find(tag) is not None or (multiple and tag == 0):
        return True
    if unacked.is_forgiven(tag):
        return multiple
    shown: int = tag
    if shown < 0:
        shown += 1 << 64
    channel.fail(PRECONDITION_FAILED, f"unknown delivery tag {shown}", method)
    return False


def hold_ack(channel: ChannelState, tag: i64, multiple: bool) -> None:
    """basic.ack in a transaction. [amqp-0-9-1 1.9.1]"""
    unacked = channel.unacked
    transaction = channel.transaction
    if transaction is not None and check_tag(channel, tag, multiple, BASIC_ACK):
        tags = unacked.tags_up_to(tag) if multiple else [tag]
        channel.traffic.acked += len(tags)
        transaction.settle(tags, SETTLE, NACK)


def settle_up_to(channel: ChannelState, tag: i64) -> None:
    """basic.ack of several deliveries, 0: of all. [amqp-0-9-1 1.8.3.13.2]"""
    if channel.reader is not None:
        channel.reader.acknowledge(tag, True)
        return
    if not check_tag(channel, tag, True, BASIC_ACK):
        return
    channel.unacked.note_acknowledged(1, tag if tag != 0 else channel.unacked.next_tag())
    runs = channel.unacked.take_up_to(tag)
    for _, entries in runs:
        channel.traffic.acked += len(entries)
    settle_runs(runs, channel.session, channel.virtual_host)


def return_deliveries(channel: ChannelState, tag: i64, multiple: bool, to_queue: bool, method: int) -> None:
    """basic.nack, basic.reject: requeue or discard deliveries. [amqp-0-9-1 1.8.3.14]"""
    unacked = channel.unacked
    if channel.reader is not None:
        if not to_queue:
            channel.fail(NOT_IMPLEMENTED, "a reader returns messages to its queue, and rejects none", method)
        else:
            channel.reader.refuse(tag, multiple)
        return
    if not check_tag(channel, tag, multiple, method):
        return
    outcome = NACK if method == BASIC_NACK else REJECT
    if channel.transaction is not None:
        tags = unacked.tags_up_to(tag) if multiple else [tag]
        channel.transaction.settle(tags, RELEASE if to_queue else DISCARD, outcome)
    elif to_queue:
        _release(channel, unacked.take_all(tag) if multiple else take_deliveries(unacked, [tag]), outcome)
    else:
        runs = unacked.take_up_to(tag) if multiple else list(take_deliveries(unacked, [tag]).items())
        for consumer, entries in runs:
            discard_all(queue_of(consumer), entries, consumer)
            restore_credit(entries, consumer)


def requeue(channel: ChannelState, tags: list[i64], outcome: i64) -> None:
    """Requeue deliveries, all of a consumer at once, so that the earliest is the first to be delivered again.

    `outcome`: the cause, a constant of `broker.core.arguments.queue`.
    """
    _release(channel, take_deliveries(channel.unacked, tags), outcome)


def _release(channel: ChannelState, taken: dict[QueueConsumer, list[QueueEntry]], outcome: i64) -> None:
    core.requeue_runs(list(taken.items()), outcome, channel.session, channel.virtual_host)


def take_deliveries(unacked: Unacked, tags: list[i64]) -> dict[QueueConsumer, list[QueueEntry]]:
    """Remove deliveries from the unacknowledged ones; return them by their consumers."""
    taken: dict[QueueConsumer, list[QueueEntry]] = {}
    last: QueueConsumer | None = None
    held: list[QueueEntry] = []
    for tag in tags:
        entry = unacked.take(tag)
        consumer = unacked.holder
        if entry is None or consumer is None:
            continue
        if consumer is not last:  # mostly the same consumer, and nothing is hashed
            held = taken.setdefault(consumer, [])
            last = consumer
        held.append(entry)
    return taken


def recover_deliveries(channel: ChannelState, to_queue: bool) -> None:
    """Requeue all unacknowledged deliveries, or send them again to their consumers.

    Deliveries without a consumer (basic.get, cancelled) are requeued in either case. Deliveries beyond
    RESEND_MAX, and deliveries that the client does not take now, are requeued too. A few bytes can request
    many deliveries, which must neither take long nor pile up while the client does not read.
    """
    unacked = channel.unacked
    tags = unacked.tags_up_to(0)
    if to_queue:
        requeue(channel, tags, RECOVER)
        return
    connection = channel.connection
    left: list[i64] = []
    sent: i64 = 0
    for tag in tags:
        target = None if sent == RESEND_MAX or connection.blocked else _target(unacked, tag)
        if target is None:
            left.append(tag)
            continue
        _resend(unacked, tag, target)
        sent += 1
        if connection.full:
            connection.full = False
            connection.answer()
    requeue(channel, left, RECOVER)


def _target(unacked: Unacked, tag: i64) -> Target091 | None:
    """Return the target of an unacknowledged delivery; None if there is none, or its consumer has ended."""
    entry = unacked.find(tag)
    consumer = unacked.holder
    if entry is None or consumer is None:
        return None
    target = consumer.target
    return target if isinstance(target, Target091) and consumer.state != REMOVED else None


def _resend(unacked: Unacked, tag: i64, target: Target091) -> None:
    entry = unacked.take(tag)
    consumer = unacked.holder
    if entry is None or consumer is None:
        return
    if not consumer.acquires or deliver_again(queue_of(consumer), entry, consumer):
        target.deliver(consumer, entry)
    else:
        target.restore_credit(entry.message.size)


def requeue_everything(channel: ChannelState) -> None:
    """Requeue all deliveries of an ending channel, and remove its consumers. [amqp-0-9-1 1.5.2.5]"""
    held = channel.unacked.take_all()
    targets = channel.targets
    channel.targets = {}
    for target in targets.values():
        for consumer in list(target.consumers):
            entries = held.pop(consumer, [])
            detach(queue_of(consumer), consumer, entries if consumer.acquires else [])
            channel.virtual_host.declarations.delete_if_unused(queue_of(consumer))
    for consumer, entries in held.items():  # deliveries of cancelled consumers, or of basic.get
        if consumer.acquires:
            release_entries(queue_of(consumer), entries, consumer, CRASH)
