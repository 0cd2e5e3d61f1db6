"""Purging a queue to the end, without a broker whose schedule would do it bit by bit."""

from broker.core.queues.purge import purge as begin
from broker.core.queues.queue import Queue
from tests.support.core.hand_clock import HandClock


def purge(queue: Queue, most: int = 3) -> int:
    """Purge it, looking at so many entries in one turn; returns how many were dropped."""
    clock = HandClock()
    asked = begin(queue, clock.schedule, most)
    clock.advance(0)
    assert asked.over
    return int(asked.dropped)
