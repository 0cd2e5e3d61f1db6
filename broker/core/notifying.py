"""Who is told of work.

While entries are ready, the highest priority at which some consumer has no blocker has a NOTIFIED consumer,
which pulls until it gets nothing; if it drops out, another one takes over. So no wake-up is lost, and nobody
polls. Notifying only asks for a turn. It never delivers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.consumer import INTERESTED, NON_ACQUIRING, NOTIFIED, QueueConsumer

if TYPE_CHECKING:
    from broker.core.queue import Queue


def notify(queue: Queue, consumer: QueueConsumer) -> None:
    """INTERESTED → NOTIFIED: from now on `consumer` is relied upon."""
    queue.manager.move(consumer, NOTIFIED)
    consumer.notify_work()


def notify_browsers(queue: Queue) -> None:
    """An entry is new: every browser is to see it."""
    browser = queue.manager.non_acquiring.head
    while browser is not None:
        browser.notify_work()
        browser = browser.next


def notify_one(queue: Queue) -> None:
    """An entry has become AVAILABLE: somebody of the highest priority that wants work must end up NOTIFIED.

    An idle consumer is preferred to one that is on its way already, but never one of a lower priority.
    """
    for level in queue.manager.levels:
        consumer = level.interested.head
        if consumer is not None:
            notify(queue, consumer)
            return
        if level.notified.head is not None:
            return


def notify_consumer(queue: Queue, consumer: QueueConsumer) -> None:
    """`consumer` has just become able to work: is there anything for it?"""
    if consumer.state == NON_ACQUIRING:
        consumer.notify_work()
    elif consumer.state == INTERESTED and queue.ready != 0 and not queue.manager.outranked(consumer):
        notify(queue, consumer)


def pass_baton(queue: Queue) -> None:
    """A consumer that was relied upon has dropped out: the next one takes over, if there is work."""
    if queue.ready == 0:
        return
    for level in queue.manager.levels:
        if level.notified.head is not None:
            return
        consumer = level.interested.head
        if consumer is not None:
            notify(queue, consumer)
            return


def found_nothing(queue: Queue, consumer: QueueConsumer) -> None:
    """A pull found nothing: to the back of Interested, unless it has only used up its scan budget."""
    if consumer.context.more:
        if consumer.state == INTERESTED:
            queue.manager.move(consumer, NOTIFIED)
        return
    if consumer.state == NOTIFIED:
        queue.manager.move(consumer, INTERESTED)
    consumer.target.no_messages_available(consumer)
