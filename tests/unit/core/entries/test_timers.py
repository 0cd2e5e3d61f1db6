"""Timers, compared with a list of times, also a million timers with a single alarm."""

import random

import pytest

from broker.core.entries.entry import QueueEntry, Timer
from broker.core.entries.timers import Timers
from broker.core.message import NEVER, Message
from broker.core.queues.limits import SLICE
from tests.support.core.queue_bench import message
from tests.support.core.timed_vhost import VhostBench


def entry(number: int) -> QueueEntry:
    return QueueEntry(message(number), number)


def test_the_first_of_no_timers_is_none() -> None:
    timers = Timers()
    assert timers.first() is None
    assert timers.count == 0


def waiting(timers: Timers, *times: int) -> list[QueueEntry]:
    """Entries with timers that run until these times."""
    entries = []
    for number, time in enumerate(times):
        made = entry(number)
        made.timer = Timer(time)
        timers.start(made.timer, made, True)
        entries.append(made)
    return entries


def stop(timers: Timers, entries: list[QueueEntry]) -> None:
    for each in entries:
        assert each.timer is not None
        timers.stop(each.timer)


def test_timers_returned_in_order_are_in_their_places_and_in_no_heap() -> None:
    timers = Timers()
    entries = waiting(timers, *range(100, 1100))
    stop(timers, entries[:500])
    timers.start_again(entries[:500])
    assert (timers.count, timers._heap) == (1000, [])
    stop(timers, entries)
    timers.start_again(entries[:3])
    timers.start_again(entries[:6])
    timers.start_again(entries[900:])
    assert (timers.count, timers._heap) == (106, []), "it begins with those, and ends with these"
    for expected in [*entries[:6], *entries[900:]]:
        first = timers.first()
        assert first is expected.timer
        assert first is not None
        timers.stop(first)


@pytest.mark.parametrize("apart", [0, 1], ids=["at one time", "one after the other"])
def test_timers_returned_in_slices_ring_in_order_and_are_in_no_heap(apart: int) -> None:
    timers = Timers()
    entries = waiting(timers, *[100 + number * apart for number in range(50)])
    rest = waiting(timers, 200)
    stop(timers, entries)
    for start in range(0, 50, 10):
        timers.start_again(entries[start : start + 10])
    assert (timers.count, timers._heap) == (51, [])
    called = []
    while (first := timers.first()) is not None:
        called.append(first.entry)
        timers.stop(first)
    assert called == [*entries, *rest]


@pytest.mark.parametrize("seed", range(20))
def test_timers_returned_in_any_order_ring_in_time(seed: int) -> None:
    choice = random.Random(seed)
    timers = Timers()
    spread = choice.choice([1, 5, 500])
    entries = waiting(timers, *[number + choice.randrange(spread) for number in range(300)])
    for each in entries:
        each.own_time = choice.random() < 0.1
    for _ in range(30):
        some = choice.sample(entries, choice.choice([1, 30, 300]))
        stop(timers, some)
        back = choice.sample(entries, choice.choice([1, 30, 300]))
        timers.start_again(sorted(back) if choice.random() < 0.7 else back)
        running = [each.timer for each in entries if each.timer is not None and each.timer.entry is not None]
        assert timers.count == len(running)
        first = timers.first()
        assert (first.due if first else None) == min((timer.due for timer in running), default=None)
    timers.start_again(entries)
    called = []
    while (first := timers.first()) is not None:
        assert first.entry is not None
        called.append(first.due)
        timers.stop(first)
    assert called == sorted(each.timer.due for each in entries if each.timer is not None)


def test_stopping_twice_is_stopping_once() -> None:
    timers = Timers()
    one, other = Timer(5), Timer(6)
    timers.start(one, entry(1), True)
    timers.start(other, entry(2), True)
    timers.stop(one)
    timers.stop(one)
    assert (timers.count, timers.first()) == (1, other)
    assert one.entry is None


@pytest.mark.parametrize("seed", range(30))
def test_the_first_is_always_the_one_with_the_least_time(seed: int) -> None:
    choice = random.Random(seed)
    timers = Timers()
    running: list[Timer] = []
    stopped: list[Timer] = []
    ordered = choice.random()  # how many of them come in the order of their times
    now = 0
    for number in range(1500):
        draw = choice.random()
        if draw < 0.55 or not running:
            now += choice.randrange(3)
            in_turn = choice.random() < ordered
            due = now + (1000 if in_turn else choice.randrange(3000))
            timer = stopped.pop() if stopped and choice.random() < 0.2 else Timer(due)
            timers.start(timer, entry(number), in_turn)
            running.append(timer)
        elif draw < 0.8:
            timer = running.pop(choice.randrange(len(running)))
            timers.stop(timer)
            stopped.append(timer)
        else:
            first = timers.first()
            assert first is not None
            timers.stop(first)
            running.remove(first)
        assert timers.count == len(running)
        first = timers.first()
        assert (first.due if first else None) == min((timer.due for timer in running), default=None)
    while running:
        first = timers.first()
        assert first is not None
        assert first.entry is not None
        assert first.due == min(timer.due for timer in running)
        timers.stop(first)
        running.remove(first)
    assert timers.first() is None


@pytest.mark.parametrize("in_turn", [True, False])
def test_entries_due_together_leave_in_the_queue_s_order(in_turn: bool) -> None:
    timers = Timers()
    entries = [entry(number) for number in range(40)]
    for each in entries:
        each.timer = Timer(7)
        timers.start(each.timer, each, in_turn and each.order % 2 == 0)
    for each in entries:
        first = timers.first()
        assert first is not None
        assert first.entry is each
        timers.stop(first)


MILLION = 1_000_000


@pytest.mark.nightly
def test_a_million_scattered_times_are_each_kept_to_the_millisecond() -> None:
    bench = VhostBench()
    queue = bench.queue(max_priority=3)
    choice = random.Random(1)
    route = bench.vhost.publisher.route("", "q")
    ends: list[int] = []
    for number in range(MILLION):
        message = Message(route.address, b"", 0, False, number % 4)
        message.expiration = choice.randrange(10_000, 100_000)
        ends.append(message.expiration)
        bench.vhost.publisher.publish_carefully(route, message)
    assert queue.limits is not None
    assert queue.limits.timers.count == queue.ready == MILLION
    began, rings, sets = bench.clock.now, 0, 0
    ends.sort()
    done = 0
    while bench.clock.wakes:
        sets += len(bench.clock.wakes)
        due = bench.clock.wakes[-1]
        bench.clock.wakes.clear()
        bench.clock.now = max(bench.clock.now, due)
        bench.clock.schedule.run()
        rings += 1
        elapsed = bench.clock.now - began
        while done < MILLION and ends[done] <= elapsed:
            done += 1
        left = MILLION - done
        assert left <= queue.ready <= left + SLICE * 10, "each goes in the millisecond in which it is due"
    assert queue.ready == 0
    assert rings <= 90_000 + MILLION // SLICE, "one ring for each millisecond with something due, or a slice"
    assert sets <= 2 * rings + 40, "the alarm is moved to the front when something is due earlier, no more"


@pytest.mark.nightly
def test_a_million_messages_expire_behind_a_message_without_a_ttl() -> None:
    bench = VhostBench()
    queue = bench.queue(message_ttl=10_000)
    plain = bench.queue("plain")
    bench.publish("plain", expiration=NEVER)
    route = bench.vhost.publisher.route("", "q")
    for number in range(MILLION):
        if number % 1000 == 0:
            bench.clock.now += 1
        bench.vhost.publisher.publish(route, Message(route.address, b"", 0, False, 0))
    assert queue.ready == MILLION
    assert bench.clock.wakes == [1001 + 10_000], "one alarm, set once"
    bench.clock.advance(10_000 - 1001)
    assert queue.ready == MILLION
    bench.clock.advance(1001)
    assert (queue.ready, plain.ready) == (0, 1)
