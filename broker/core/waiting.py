"""Interest: why a consumer is not asked for now, and when it is looked at again.

Every change goes through `set_blocker`: flag first, lists second, notifications last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from broker.core.awaited import forget_waiting, wait_on
from broker.core.consumer import (
    BLOCKED_BY_SIZE,
    INTERESTED,
    NON_ACQUIRING,
    NOT_INTERESTED,
    NOTIFIED,
    REMOVED,
    QueueConsumer,
)
from broker.core.entry import QueueEntry
from broker.core.notifying import notify_consumer, pass_baton

if TYPE_CHECKING:
    from broker.core.queue import Queue


def suspend(queue: Queue, consumer: QueueConsumer, blocker: i64) -> bool:
    """Set one reason for not being interested; true if somebody has to take over now, by `pass_baton`."""
    before = consumer.blockers
    consumer.blockers = before | blocker
    if consumer.state == REMOVED or before != 0:
        return False
    queue.manager.move(consumer, NOT_INTERESTED)
    return consumer.acquires


def set_blocker(queue: Queue, consumer: QueueConsumer, blocker: i64, on: bool) -> None:
    """Set or clear one reason for not being interested."""
    before = consumer.blockers
    after = before | blocker if on else before & ~blocker
    consumer.blockers = after
    if consumer.state == REMOVED or (before == 0) == (after == 0):
        return
    if after != 0:
        queue.manager.move(consumer, NOT_INTERESTED)
        if consumer.acquires:
            pass_baton(queue, consumer)
    else:
        queue.manager.move(consumer, INTERESTED if consumer.acquires else NON_ACQUIRING)
        notify_consumer(queue, consumer)


def clear_blocker(queue: Queue, consumers: list[QueueConsumer], blocker: i64) -> None:
    """Clear one reason for all of `consumers`, which acquire: all are INTERESTED before any is notified.

    Where all see the same, no more are notified than there are entries.
    """
    for consumer in consumers:
        consumer.blockers &= ~blocker
        if consumer.state == NOT_INTERESTED and consumer.blockers == 0:
            queue.manager.move(consumer, INTERESTED)
    woken: i64 = 0  # others that are NOTIFIED already may be of a lower priority, and then do not count
    for consumer in consumers:
        if queue.alike and woken >= queue.ready:
            break
        if consumer.state != REMOVED:
            notify_consumer(queue, consumer, together=True)
            if consumer.state == NOTIFIED:
                woken += 1


def wait_for_size(queue: Queue, consumer: QueueConsumer, entry: QueueEntry) -> None:
    """`entry`, the consumer's next, is too large for its byte window: look again when either changes."""
    wait_on(queue, consumer, entry)
    queue.waiting[consumer] = None
    set_blocker(queue, consumer, BLOCKED_BY_SIZE, True)


def stop_waiting(queue: Queue, consumer: QueueConsumer) -> None:
    """The byte window, or what is next for the consumer, has changed: let it look again."""
    if consumer in queue.waiting:
        forget_waiting(queue, consumer)
        set_blocker(queue, consumer, BLOCKED_BY_SIZE, False)
    elif consumer in queue.gated:
        forget_waiting(queue, consumer)
        notify_consumer(queue, consumer)


def wake_waiters(queue: Queue, entry: QueueEntry) -> None:
    """`entry` is no longer AVAILABLE: something smaller may be next for those who waited on it.

    Dead letters that wait for room in the queue wait on every entry.
    """
    for consumer in list(queue.awaited.get(entry, ())):
        stop_waiting(queue, consumer)
    if queue.rules is not None and queue.rules.seekers:
        queue.rules.room_made()


def wake_for_earlier(queue: Queue, entry: QueueEntry) -> None:
    """`entry` has become AVAILABLE: it comes before what some wait on, and may fit."""
    for consumer in list(queue.waiting):
        awaited = consumer.waiting_on
        if awaited is not None and entry.precedes(awaited) and consumer.target.fits(entry.message.size):
            stop_waiting(queue, consumer)


def wake_for_some(queue: Queue, entries: list[QueueEntry]) -> None:
    """The same of many entries, for less: who would find the first of them, were it the smallest.

    Who looks again may do so in vain.
    """
    first = entries[0]
    size = first.message.size
    for entry in entries:
        if entry.precedes(first):
            first = entry
        size = min(size, entry.message.size)
    for consumer in list(queue.waiting):
        awaited = consumer.waiting_on
        if awaited is not None and first.precedes(awaited) and consumer.target.fits(size):
            stop_waiting(queue, consumer)
