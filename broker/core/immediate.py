"""Delivery inside enqueue, for messages that must not wait. [AMQP 0-9-1 basic.publish.immediate]"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.clearing import drop
from broker.core.consumer import QueueConsumer
from broker.core.consumer_manager import QueueConsumerList
from broker.core.entry import QueueEntry
from broker.core.message import Message

if TYPE_CHECKING:
    from broker.core.queue import Queue


def enqueue_immediate(queue: Queue, message: Message) -> bool:
    """Deliver `message` now or not at all.

    The check and the removal are one synchronous step that no other delivery can enter, so the race of
    the original between them cannot happen: no immediate entry is AVAILABLE when this returns.
    """
    entry = queue.link(message)
    if _deliver_now(queue, entry):
        queue.published += 1
        return True
    drop(queue, entry)
    return False


def _deliver_now(queue: Queue, entry: QueueEntry) -> bool:
    """Deliver `entry`, just linked, if a consumer can take it at this very moment.

    It must be the consumers' next entry, so behind a backlog nobody can; and as everywhere only the highest
    priority that wants work is asked.
    """
    if queue.context.get_next_available_entry() is not entry:
        return False
    for level in queue.manager.levels:
        if level.interested.head is None and level.notified.head is None:
            continue
        consumer = _first_fit(level.interested, entry) or _first_fit(level.notified, entry)
        if consumer is None:
            return False
        _hand_over(queue, consumer, entry)
        return True
    return False


def _first_fit(consumers: QueueConsumerList, entry: QueueEntry) -> QueueConsumer | None:
    consumer = consumers.head
    while consumer is not None and not consumer.target.fits(entry.message.size):
        consumer = consumer.next
    return consumer


def _hand_over(queue: Queue, consumer: QueueConsumer, entry: QueueEntry) -> None:
    queue.acquire(entry, consumer)
    queue.manager.to_back(consumer)
    target = consumer.target
    target.use_credit(entry.message.size)
    target.deliver(consumer, entry)
    if consumer.no_ack:
        queue.settle(entry)
    target.session.connection.schedule()  # it is not its turn, but somebody has to flush
