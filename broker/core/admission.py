"""What is settled about a message before it is appended: whether it is refused, and when its time began."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.message import DELAYED, TELLS_ARRIVAL, TELLS_CONSUMED, Message
from broker.core.rules import Rules

if TYPE_CHECKING:
    from broker.core.queue import Queue
    from broker.core.topology import Topology


def is_refused(topology: Topology, message: Message, queues: list[Queue]) -> bool:
    """Whether one of the queues takes no more; then none gets the message, as a nack says to its publisher.

    Those that dead-letter what they refuse do so. [RabbitMQ x-overflow; there the other queues get it]
    What they are to hold until its date they take: when that has come there may be room.
    """
    if message.marks & DELAYED:
        return False
    full = [queue for queue in queues if queue.rules is not None and queue.rules.refuses(message)]
    if not full:
        return False
    topology.counters.overflowed += 1
    for queue in full:
        topology.dead_letters.add_refused(queue, message)
    return True


def first_full(message: Message, queues: list[Queue]) -> Queue | None:
    """Return the first of the queues that refuses `message` because it is full."""
    for queue in queues:
        if queue.rules is not None and queue.rules.refuses(message):
            return queue
    return None


def set_date(topology: Topology, message: Message, queues: list[Queue]) -> None:
    """Date a message that may be logged if its time is limited, and see to it that the queues can tell it.

    Also one that wants receipts: the log keeps that of messages with a date.
    """
    limited = message.expiration >= 0 or message.marks & (TELLS_ARRIVAL | TELLS_CONSUMED) != 0
    for queue in queues:
        if queue.rules is not None:
            limited = limited or queue.rules.ttl >= 0
        elif message.expiration >= 0 and queue.stream is None:
            queue.rules = Rules(queue, topology)
    if limited and message.date == 0 and message.persistent:
        message.date = topology.schedule.date()
