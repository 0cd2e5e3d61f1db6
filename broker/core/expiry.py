"""Entries whose time is over. [RabbitMQ time to live]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from broker.core.consumer import INTERESTED, NOTIFIED, QueueConsumer
from broker.core.context import SCAN_BUDGET
from broker.core.dead_letter import EXPIRED, dead_letter
from broker.core.discipline import next_entry
from broker.core.entry import QueueEntry

if TYPE_CHECKING:
    from broker.core.queue import Queue

LATE_MAX: Final[i64] = 10_000  # entries whose time is over that one look-up passes
EFFORT_MAX: Final[i64] = 20 * SCAN_BUDGET  # what looking for one entry without a turn may cost


def is_late(queue: Queue, entry: QueueEntry) -> bool:
    """Whether the time of `entry`, which is AVAILABLE, is over; then it has left the queue."""
    timer = entry.timer
    rules = queue.rules
    if timer is None or rules is None or timer.due > rules.schedule.now():
        return False
    dead_letter(queue, entry, EXPIRED)
    return True


def is_late_for(queue: Queue, entry: QueueEntry, consumer: QueueConsumer) -> bool:
    """`entry` has a timer and is about to be delivered to `consumer`, unless its time is over.

    Then it has left the queue, and `consumer` is to look again.
    """
    if is_late(queue, entry):
        if consumer.state == INTERESTED:
            queue.manager.move(consumer, NOTIFIED)
        return True
    if consumer.acquires:
        stop_timer(queue, entry)
    return False


def stop_timer(queue: Queue, entry: QueueEntry) -> None:
    """`entry` is no longer AVAILABLE."""
    timer = entry.timer
    if timer is not None and queue.rules is not None:
        queue.rules.timers.stop(timer)


def next_in_time(queue: Queue, consumer: QueueConsumer) -> QueueEntry | None:
    """The next entry of `consumer` whose time is not over; those before it leave the queue.

    None also if that took too long to find out: who has a turn will find it.
    """
    context = consumer.context
    context.effort = 0
    for _ in range(LATE_MAX):
        entry = next_entry(queue, consumer)
        while entry is None and context.more and context.effort < EFFORT_MAX:
            entry = next_entry(queue, consumer)
        if entry is None or entry.timer is None or not is_late(queue, entry):
            return entry
    return None
