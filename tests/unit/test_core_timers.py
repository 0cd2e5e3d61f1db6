"""Timers against a list of times."""

import random

import pytest

from broker.core.entry import QueueEntry
from broker.core.timers import Timer, Timers
from tests.dispatch import message


def entry(number: int) -> QueueEntry:
    return QueueEntry(message(number), number)


def test_the_first_of_none_is_none() -> None:
    timers = Timers()
    assert timers.first() is None
    assert timers.count == 0


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
