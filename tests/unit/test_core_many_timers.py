"""A million timers: exact, one alarm, and work only for what is due."""

import random

import pytest

from broker.core.message import NEVER, Message
from broker.core.queues.limits import SLICE
from tests.yard import Yard

MILLION = 1_000_000


@pytest.mark.nightly
def test_a_million_scattered_times_are_each_kept_to_the_millisecond() -> None:
    yard = Yard()
    queue = yard.queue(max_priority=3)
    choice = random.Random(1)
    route = yard.vhost.publisher.route("", "q")
    ends: list[int] = []
    for number in range(MILLION):
        message = Message(route.address, b"", 0, False, number % 4)
        message.expiration = choice.randrange(10_000, 100_000)
        ends.append(message.expiration)
        yard.vhost.publisher.publish_carefully(route, message)
    assert queue.rules is not None
    assert queue.rules.timers.count == queue.ready == MILLION
    began, rings, sets = yard.clock.now, 0, 0
    ends.sort()
    done = 0
    while yard.clock.wakes:
        sets += len(yard.clock.wakes)
        due = yard.clock.wakes[-1]
        yard.clock.wakes.clear()
        yard.clock.now = max(yard.clock.now, due)
        yard.clock.schedule.run()
        rings += 1
        elapsed = yard.clock.now - began
        while done < MILLION and ends[done] <= elapsed:
            done += 1
        left = MILLION - done
        assert left <= queue.ready <= left + SLICE * 10, "each goes in the millisecond in which it is due"
    assert queue.ready == 0
    assert rings <= 90_000 + MILLION // SLICE, "one ring for each millisecond with something due, or a slice"
    assert sets <= 2 * rings + 40, "the alarm is moved to the front when something is due earlier, no more"


@pytest.mark.nightly
def test_a_million_of_one_age_behind_one_that_stays() -> None:
    yard = Yard()
    queue = yard.queue(message_ttl=10_000)
    plain = yard.queue("plain")
    yard.publish("plain", expiration=NEVER)
    route = yard.vhost.publisher.route("", "q")
    for number in range(MILLION):
        if number % 1000 == 0:
            yard.clock.now += 1
        yard.vhost.publisher.publish(route, Message(route.address, b"", 0, False, 0))
    assert queue.ready == MILLION
    assert yard.clock.wakes == [1001 + 10_000], "one alarm, set once"
    yard.clock.advance(10_000 - 1001)
    assert queue.ready == MILLION
    yard.clock.advance(1001)
    assert (queue.ready, plain.ready) == (0, 1)
