"""How often a queue gives out a message before it gives up on it. [RabbitMQ delivery limit]

Every delivery that comes back counts: by nack or reject, recovered, or lost with its channel, its connection
or the broker; `x-delivery-count-on` chooses among these. A message that has come back more often than the
limit allows is dead-lettered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.core.arguments import DELIVERY_LIMIT, is_quorum
from broker.core.consumer import QueueConsumer
from broker.core.dead_letter import DELIVERY_LIMIT as EXHAUSTED
from broker.core.dead_letter import dead_letter
from broker.core.entry import DEQUEUED, QueueEntry
from broker.core.outcome import CRASH

if TYPE_CHECKING:
    from broker.core.queue import Queue

NO_LIMIT: Final = -1
QUORUM_LIMIT: Final = 20  # of a quorum queue that has none of its own


def set_limit(queue: Queue) -> None:
    """Have the limit hold that the queue's arguments and policies say, from the next return on."""
    quorum = is_quorum(queue.arguments)
    limit = queue.effective.get(DELIVERY_LIMIT, QUORUM_LIMIT if quorum else NO_LIMIT)
    assert isinstance(limit, int), "arguments are checked before a queue is made"
    queue.delivery_limit = max(limit, NO_LIMIT)
    queue.counts = quorum or limit >= 0


def note_delivery(queue: Queue, entry: QueueEntry, consumer: QueueConsumer) -> None:
    """Have the log remember the delivery of `entry` for which it was just acquired, by a queue that counts.

    What is settled in the same step need not be remembered.
    """
    if not consumer.no_ack and (queue.retry is None or queue.retry.counted & CRASH != 0):
        append_count(queue, entry)


def append_count(queue: Queue, entry: QueueEntry) -> None:
    """Have the log remember how often `entry` was delivered, but for what did not count, and what was added.

    A queue that does not count has no count after a restart.
    """
    if queue.logged and entry.message.sequence != 0:
        count = entry.counted if queue.counts else 0
        queue.store.append_count(entry.message, queue, count, queue.entries.annotations_of(entry))


def is_exhausted(queue: Queue, entry: QueueEntry) -> bool:
    """Whether an entry that comes back now has come back too often."""
    return 0 <= queue.delivery_limit < entry.counted


def give_up(queue: Queue, entry: QueueEntry) -> None:
    """AVAILABLE or ACQUIRED → DEQUEUED: it has come back too often."""
    dead_letter(queue, entry, EXHAUSTED)


def give_up_exhausted(queue: Queue) -> None:
    """Give up, after recovery, what was out when the broker died, if that was once too often."""
    if queue.delivery_limit >= 0:
        for entry in [entry for entry in queue.entries if is_exhausted(queue, entry)]:
            if entry.state != DEQUEUED:  # not pushed out by the dead letter of one before it
                give_up(queue, entry)
