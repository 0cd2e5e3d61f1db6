"""Purging a queue to the end, without a broker whose schedule would do it bit by bit."""

from broker.core.queues.purge import purge as begin
from broker.core.queues.queue import Queue
from tests.support.core.hand_clock import HandClock


def purge(queue: Queue, most: int = 3) -> int:
    """Purge the queue, `most` entries in a turn; return the number of dropped entries."""
    clock = HandClock()
    asked = begin(queue, clock.schedule, most)
    clock.advance(0)
    assert asked.over
    return int(asked.dropped)
