"""Consumers that wait on one entry: until it is gone, or comes to be theirs after all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.consumer import QueueConsumer
from broker.core.entry import QueueEntry

if TYPE_CHECKING:
    from broker.core.queue import Queue


def wait_for_turn(queue: Queue, consumer: QueueConsumer, entry: QueueEntry) -> None:
    """`entry`, the consumer's next, is left to a consumer of higher priority: look again when it is gone."""
    wait_on(queue, consumer, entry)
    queue.gated[consumer] = None


def wait_on(queue: Queue, consumer: QueueConsumer, entry: QueueEntry) -> None:
    """Have `consumer` be among the waiters of `entry`, and of no other."""
    forget_waiting(queue, consumer)
    consumer.waiting_on = entry
    queue.awaited.setdefault(entry, []).append(consumer)


def forget_waiting(queue: Queue, consumer: QueueConsumer) -> None:
    """Undo the registration on the entry that the consumer waits on, if any."""
    entry = consumer.waiting_on
    if entry is None:
        return
    consumer.waiting_on = None
    queue.waiting.pop(consumer, None)
    queue.gated.pop(consumer, None)
    waiters = queue.awaited[entry]
    waiters.remove(consumer)
    if not waiters:
        del queue.awaited[entry]
