"""Delivery inside enqueue, for messages that must not wait, and for room.

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

HAND_OVER_MAX: Final[i64] = 200  # entries that are delivered ahead of their turn so that one need not wait


def enqueue_immediate(queue: Queue, message: Message) -> bool:
    """Deliver `message` now or not at all.

    The check and the removal are one synchronous step that no other delivery can enter, so the race of
    the original between them cannot happen: no immediate entry is AVAILABLE when this returns.
    """
    if queue.stream is not None:  # it has been appended, and everybody gets it when it is on disk
        queue.enqueue(message)
        return True
    latest = queue.entries.latest
    if latest is not None and latest.holds(message):  # what it would replace is not to go for nothing
        if queue.logged and message.sequence != 0:
            queue.store.append_settle(message, queue)
        return False
    entry = queue.link(message)
    if queue.journal is not None:
        queue.journal.enqueued(entry)
    _wake_for(queue, entry)
    if _deliver_now(queue, entry):
        if queue.rules is not None:
            queue.rules.handed_over(entry)
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

    It must be that consumer's next entry, so behind a backlog nobody can; and as everywhere only the highest
    priority that wants work is asked, if the entry is not somebody's own.
    """
    discipline = queue.discipline
    if discipline is not None and not discipline.is_open(entry):
        return False
    if discipline is None or discipline.owner(entry) is None:
        taker = _taker(queue, entry)
    else:
        taker = _first_ready(queue, discipline.contenders(entry), entry)
    if taker is None:
        return False
    _hand_over(queue, taker, entry)
    return True


def _taker(queue: Queue, entry: QueueEntry) -> QueueConsumer | None:
    """The consumer that can take `entry`, which is nobody's own."""
    wanted: ConsumerLevel | None = None
    taker: QueueConsumer | None = None
    for level in levels_for(queue, entry):
        if wanted is not None and wanted.rank != level.rank:
            break
        if not level.wants_work or not level.context.sees(entry):
            continue
        wanted = level
        asked = _speakers(queue, level)
        if len(asked) > 1:
            taker = _first_ready(queue, asked, entry)
        elif next_in_time(queue, asked[0]) is entry:
            taker = _first_fit(level.interested, entry) or _first_fit(level.notified, entry)
        if taker is not None:
            break
    return taker


def _speakers(queue: Queue, level: ConsumerLevel) -> list[QueueConsumer]:
    """The consumers of `level` that want work, one alone where all of them have the same entry next."""
    waiting = level.interested.head or level.notified.head
    if waiting is None:
        return []
    if queue.discipline is None or not queue.discipline.personal:
        return [waiting]
    return [*level.interested, *level.notified]


def _first_ready(queue: Queue, consumers: list[QueueConsumer], entry: QueueEntry) -> QueueConsumer | None:
    """The first that wants work, has room for `entry` and has it next."""
    for consumer in consumers:
        wants_work = consumer.state in (INTERESTED, NOTIFIED)
        if wants_work and consumer.target.fits(entry.message.size) and next_in_time(queue, consumer) is entry:
            return consumer
    return None


def hand_over(queue: Queue) -> bool:
    """Deliver what is next for some consumer at this very moment; false if none can take anything.

    What is on disk only is not delivered so: the consumer's connection must bear it if that cannot be read.
    """
    for level in all_levels(queue):
        asked = _speakers(queue, level)
        for consumer in asked:
            entry = next_in_time(queue, consumer)
            if entry is not None and entry.message.content is not None and _deliver_now(queue, entry):
                return True
        if asked and queue.alike:
            break
    return False


def now_or_never(queue: Queue, entry: QueueEntry) -> None:
    """Deliver `entry`, which is new, to a consumer that waits, after what comes before it; else it expires.

    Consumers that were notified have not pulled yet, and would have had all of it by now if they had.
    """
    _wake_for(queue, entry)
    for _ in range(HAND_OVER_MAX):
        if not hand_over(queue):
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


def _hand_over(queue: Queue, consumer: QueueConsumer, entry: QueueEntry) -> None:
    if entry.timer is not None:
        stop_timer(queue, entry)
    queue.acquire(entry, consumer)
    queue.manager.to_back(consumer)
    target = consumer.target
    target.use_credit(entry.message.size)
    target.deliver(consumer, entry)
    if consumer.no_ack:
        queue.settle(entry)
    if queue.discipline is not None:
        notify_consumer(queue, consumer)  # there may be more that has come to be for it alone
    target.flush_soon()  # it is not its turn, but somebody has to flush
