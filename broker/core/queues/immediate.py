"""Immediate delivery: messages that must not wait are delivered inside their enqueue, or to make room.

[AMQP 0-9-1 basic.publish.immediate; RabbitMQ expiration 0, x-max-length 0]
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from broker.core.entries.entry import AVAILABLE, QueueEntry
from broker.core.message import Message
from broker.core.queues.consumer import INTERESTED, NOTIFIED, ConsumerLevel, QueueConsumer, QueueConsumerList
from broker.core.queues.consumers import all_levels, levels_for, notify_consumer, wake_for_earlier
from broker.core.queues.hooks import EXPIRED
from broker.core.queues.queue import Queue, dead_letter, drop, next_in_time, stop_timer
from broker.core.queues.source import BROKER, Source
from broker.core.queues.state import count_no_ack

EARLY_DELIVERIES_MAX: Final[i64] = 200  # entries delivered early for an entry that must not wait


def enqueue_immediate(queue: Queue, message: Message, source: Source = BROKER) -> bool:
    """Deliver `message` from `source` now or not at all.

    The check and the removal are one synchronous step that no other delivery can enter. So no immediate entry
    is AVAILABLE afterwards.
    """
    if queue.stream is not None:  # the message is appended, and consumers get it when it is on disk
        queue.enqueue(message, source)
        return True
    latest = queue.entries.latest
    if latest is not None and latest.holds(message):  # the message would replace an entry and then be dropped
        if queue.logged and message.sequence != 0:
            queue.store.append_settle(message, queue)
        if queue.journal is not None:
            queue.journal.refused(message, source)
        return False
    entry = queue.link(message)
    if queue.journal is not None:
        queue.journal.enqueued(entry, source)
    _wake_for(queue, entry)
    if _deliver_now(queue, entry):
        if queue.limits is not None:
            queue.limits.note_early_delivery(entry)
        queue.published += 1
        queue.counters.made_ready += 1
        return True
    if queue.journal is not None:
        queue.journal.unwanted(entry)
    drop(queue, entry)
    return False


def _wake_for(queue: Queue, entry: QueueEntry) -> None:
    """Wake consumers that wait for room for an entry after `entry`: they may have room for this one."""
    if queue.waiting and not queue.entries.in_order:
        wake_for_earlier(queue, entry)


def _deliver_now(queue: Queue, entry: QueueEntry) -> bool:
    """Deliver `entry` if a consumer can take it at this very moment.

    The entry must be the consumer's next entry, so no consumer takes it before older messages. As everywhere,
    only consumers of the highest priority that wants work count, unless the entry belongs to one consumer.
    """
    discipline = queue.discipline
    if discipline is not None and not discipline.is_open(entry):
        return False
    if discipline is None or discipline.owner(entry) is None:
        consumer = _find_consumer(queue, entry)
    else:
        consumer = _first_ready(queue, discipline.contenders(entry), entry)
    if consumer is None:
        return False
    _deliver_to(queue, consumer, entry)
    return True


def _find_consumer(queue: Queue, entry: QueueEntry) -> QueueConsumer | None:
    """Return a consumer that can take `entry`, which belongs to no consumer."""
    wanted: ConsumerLevel | None = None
    consumer: QueueConsumer | None = None
    for level in levels_for(queue, entry):
        if wanted is not None and wanted.rank != level.rank:
            break
        if not level.wants_work or not level.context.sees(entry):
            continue
        wanted = level
        candidates = _first_in_line(queue, level)
        if len(candidates) > 1:
            consumer = _first_ready(queue, candidates, entry)
        elif next_in_time(queue, candidates[0]) is entry:
            consumer = _first_fit(level.interested, entry) or _first_fit(level.notified, entry)
        if consumer is not None:
            break
    return consumer


def _first_in_line(queue: Queue, level: ConsumerLevel) -> list[QueueConsumer]:
    """Return the consumers of `level` that want work, only one if all of them have the same next entry."""
    waiting = level.interested.head or level.notified.head
    if waiting is None:
        return []
    if queue.discipline is None or not queue.discipline.personal:
        return [waiting]
    return [*level.interested, *level.notified]


def _first_ready(queue: Queue, consumers: list[QueueConsumer], entry: QueueEntry) -> QueueConsumer | None:
    """Return the first consumer that wants work, has room for `entry` and gets `entry` next."""
    for consumer in consumers:
        wants_work = consumer.state in (INTERESTED, NOTIFIED)
        if wants_work and consumer.target.fits(entry.message.size) and next_in_time(queue, consumer) is entry:
            return consumer
    return None


def deliver_next(queue: Queue) -> bool:
    """Deliver some consumer's next entry at this very moment; false if no consumer can take an entry.

    A message that is only on disk is not delivered so: a failing read must affect only its consumer's
    connection.
    """
    for level in all_levels(queue):
        candidates = _first_in_line(queue, level)
        for consumer in candidates:
            entry = next_in_time(queue, consumer)
            if entry is not None and entry.message.content is not None and _deliver_now(queue, entry):
                return True
        if candidates and queue.alike:
            break
    return False


def deliver_or_expire(queue: Queue, entry: QueueEntry) -> None:
    """Deliver `entry`, which is new, after the entries before it, to a waiting consumer; else it expires.

    NOTIFIED consumers have not pulled yet. Otherwise they would have received all these entries by now.
    """
    _wake_for(queue, entry)
    for _ in range(EARLY_DELIVERIES_MAX):
        if not deliver_next(queue):
            break
        if entry.state != AVAILABLE:
            return
    if entry.state == AVAILABLE:
        dead_letter(queue, entry, EXPIRED)


def _first_fit(consumers: QueueConsumerList, entry: QueueEntry) -> QueueConsumer | None:
    consumer = consumers.head
    while consumer is not None and not consumer.target.fits(entry.message.size):
        consumer = consumer.next
    return consumer


def _deliver_to(queue: Queue, consumer: QueueConsumer, entry: QueueEntry) -> None:
    if entry.timer is not None:
        stop_timer(queue, entry)
    queue.acquire(entry, consumer)
    queue.manager.to_back(consumer)
    target = consumer.target
    target.use_credit(entry.message.size)
    target.deliver(consumer, entry)
    if consumer.no_ack:
        if not consumer.getting:
            count_no_ack(queue)
        queue.settle(entry)
    if queue.discipline is not None:
        notify_consumer(queue, consumer)  # more entries may belong to the consumer now
    target.flush_soon()  # the target delivers outside a turn, so the flush must be requested
