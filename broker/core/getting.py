"""Requests for the messages of a queue: one without a subscription, and others that consumers precede.

[AMQP 0-9-1 basic.get]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from broker.core.consumer import QueueConsumer
from broker.core.context import QueueContext
from broker.core.entry import QueueEntry
from broker.core.expiry import next_in_time, stop_timer
from broker.core.notifying import all_levels
from broker.core.returning import finish_returns
from broker.core.stopping import check_dequeue

if TYPE_CHECKING:
    from broker.core.queue import Queue

EARLY_MAX: Final[i64] = 1024  # messages that consumers get before one request


def serve_notified(queue: Queue) -> i64:
    """Deliver to the consumers that have been told of work, before a request takes or counts messages.

    A queue that handed out each message when it arrived would have delivered these already. At most EARLY_MAX
    are delivered, so that a request does not wait long. Returns how many there were.
    """
    served: i64 = 0
    while queue.manager.notified > 0 and queue.ready > 0 and served < EARLY_MAX:
        before = queue.ready
        connections = {
            consumer.target.session.connection: None
            for level in all_levels(queue)
            for consumer in level.notified
        }
        for connection in connections:
            connection.pump_early(EARLY_MAX - served)
        delivered: i64 = before - queue.ready
        if delivered <= 0:
            break
        served += delivered
    return served


def get_one(queue: Queue, consumer: QueueConsumer) -> QueueEntry | None:
    """Acquire the next entry of the consumer's context, O(1) without a filter; None if none is ready.

    One that does not acquire, as where nothing is consumed, is shown it.

    `consumer` is made for this queue but never added: it only owns the entry, until `settle`, `discard` or
    `release(entries, consumer)`. Nothing is settled here, also not for no_ack. Its target's windows are
    charged. ResourceLocked if the queue serves one consumer at a time, QueueStopped if it gives nothing out.
    """
    begin_get(queue)
    if queue.ready == 0:
        return None
    entry = next_in_time(queue, consumer)
    if entry is not None:
        _hand_over(queue, consumer, entry)
    return entry


def begin_get(queue: Queue) -> None:
    """Check that messages may be taken without a subscription. Raises what `get_one` raises."""
    if queue.stops is not None:
        check_dequeue(queue, queue.stops)
    if queue.election is not None:
        queue.election.check_get()
    if queue.rules is not None:
        queue.rules.touch()
    if queue.manager.returns:
        finish_returns(queue)


def get_chosen(queue: Queue, consumer: QueueConsumer, entry: QueueEntry) -> None:
    """Acquire `entry`, which is AVAILABLE, whatever stands before it; `consumer` as for `get_one`.

    `begin_get` and `may_take` have been asked.
    """
    consumer.context = QueueContext(queue.entries)  # nobody else's cursor moves
    _hand_over(queue, consumer, entry)


def _hand_over(queue: Queue, consumer: QueueConsumer, entry: QueueEntry) -> None:
    if consumer.acquires:
        if entry.timer is not None:
            stop_timer(queue, entry)
        queue.acquire(entry, consumer)
    consumer.target.use_credit(entry.message.size)
