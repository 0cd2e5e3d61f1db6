"""A million messages that wait for their dates at a queue: in order, to the millisecond, in small steps."""

import random

import pytest

from broker.core.message import DELAYED, Message
from broker.core.publishing.delay import count_delayed, delays_of
from broker.core.schedule import SLICE, soonest_first
from broker.core.vhosts.definitions import restore_message
from tests.yard import Yard

MILLION = 1_000_000


@pytest.mark.nightly
def test_a_million_scattered_dates_are_each_kept_to_the_millisecond() -> None:
    yard = Yard()
    queue = yard.queue()
    choice = random.Random(1)
    route = yard.vhost.publisher.route("", "q")
    began = yard.clock.date()
    dates: list[int] = []
    for number in range(MILLION):
        message = Message(route.address, b"", 0, False, 0)
        message.date = began + choice.randrange(1, 100_000)
        message.marks = message.marks | DELAYED
        dates.append(message.date)
        if number % 2:
            restore_message(queue, message, False)  # as after a restart
        else:
            yard.vhost.publisher.publish_carefully(route, message)
    assert (queue.ready, count_delayed(queue)) == (0, MILLION)
    dates.sort()
    soonest = soonest_first(delays_of(queue, yard.vhost).places())
    assert [next(soonest).date for _ in range(1000)] == dates[:1000]
    rings = done = 0
    while yard.clock.wakes:
        due = yard.clock.wakes[-1]
        yard.clock.wakes.clear()
        yard.clock.now = max(yard.clock.now, due)
        yard.clock.schedule.run()
        rings += 1
        while done < MILLION and dates[done] <= yard.clock.date():
            done += 1
        assert done - 10 * SLICE <= queue.ready <= done, "each comes in the millisecond in which it is due"
    assert (queue.ready, count_delayed(queue)) == (MILLION, 0)
    assert rings <= 100_000 + MILLION // SLICE, "one ring for each millisecond with something due, or a slice"
    arrived = [entry.message.date for entry in queue.entries]
    assert arrived == sorted(arrived)
    assert all(came >= date for came, date in zip(arrived, dates, strict=True)), "none is early"
    assert sum(came - date for came, date in zip(arrived, dates, strict=True)) == 0, "none is late"
