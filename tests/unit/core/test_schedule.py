"""Timed tasks are done at their time, once, in order; chores are done in slices."""

import random

import pytest

from broker.core.message import Address, Message
from broker.core.schedule import (
    FAILURE_MS,
    LOOK_MS,
    SLICE,
    STALE_DATES_MIN,
    STALE_MIN,
    Chore,
    TimedTask,
    Timetable,
)
from tests.support.core.hand_clock import HandClock


class Bell(TimedTask):
    """Notes when it rang."""

    def __init__(self, clock: HandClock, name: str = "", every: int = 0) -> None:
        super().__init__()
        self.clock = clock
        self.name = name
        self.every = every
        self.rung: list[int] = []

    def do_due_work(self) -> None:
        self.rung.append(self.clock.now)
        if self.every:
            self.clock.schedule.set(self, self.clock.now + self.every)


def test_a_task_is_done_once_at_its_time() -> None:
    clock = HandClock()
    bell = Bell(clock)
    clock.schedule.set(bell, 1_500)
    assert clock.wakes == [1_500]
    clock.advance(499)
    assert bell.rung == []
    clock.advance(1)
    assert bell.rung == [1_500]
    assert bell.due == 0
    clock.advance(10_000)
    assert bell.rung == [1_500]


def test_a_task_moves_and_is_cancelled() -> None:
    clock = HandClock()
    earlier, later, never = Bell(clock), Bell(clock), Bell(clock)
    for bell in (earlier, later, never):
        clock.schedule.set(bell, 2_000)
    clock.schedule.set(earlier, 1_200)
    clock.schedule.set(later, 3_000)
    clock.schedule.cancel(never)
    clock.schedule.cancel(never)
    clock.advance(5_000)
    assert (earlier.rung, later.rung, never.rung) == ([1_200], [3_000], [])


def test_an_alarm_set_again_at_the_same_time_after_a_cancel_rings_once() -> None:
    clock = HandClock()
    bell = Bell(clock)
    clock.schedule.set(bell, 2_000)
    clock.schedule.cancel(bell)
    clock.schedule.set(bell, 2_000)
    clock.advance(5_000)
    assert bell.rung == [2_000]


def test_an_alarm_that_rearms_itself_for_now_does_not_delay_other_alarms() -> None:
    clock = HandClock()

    class Greedy(Bell):
        def do_due_work(self) -> None:
            super().do_due_work()
            if len(self.rung) < 5:
                clock.schedule.set(self, 0)

    greedy, other = Greedy(clock), Bell(clock)
    clock.schedule.set(greedy, 1_100)
    clock.schedule.set(other, 1_100)
    clock.now = 1_100
    clock.wakes.clear()
    clock.schedule.run()
    assert (len(greedy.rung), len(other.rung)) == (1, 1)
    assert clock.wakes, "it is to be called again"
    clock.advance(0)
    assert len(greedy.rung) == 5


def test_an_alarm_that_fails_does_not_stop_the_others() -> None:
    clock = HandClock()

    class Broken(Bell):
        def do_due_work(self) -> None:
            raise RuntimeError("broken")

    broken, other = Broken(clock), Bell(clock)
    clock.schedule.set(broken, 1_100)
    clock.schedule.set(other, 1_100)
    with pytest.raises(RuntimeError):
        clock.advance(200)
    clock.advance(200)
    assert other.rung == [1_100]


def test_moving_tasks_leaves_no_heap_of_dead_marks() -> None:
    clock = HandClock()
    bells = [Bell(clock, every=50) for _ in range(10)]
    rng = random.Random(5)
    for _ in range(10_000):
        bell = rng.choice(bells)
        if rng.random() < 0.1:
            clock.schedule.cancel(bell)
        else:
            clock.schedule.set(bell, clock.now + rng.randrange(1, 1000))
        if rng.random() < 0.2:
            clock.advance(rng.randrange(20))
        assert len(clock.schedule._marks) <= 2 * len(bells) + STALE_MIN + 1
    assert all(bell.rung for bell in bells)
    assert all(
        later > earlier for bell in bells for earlier, later in zip(bell.rung, bell.rung[1:], strict=False)
    )


def test_many_tasks_that_take_long_are_done_in_several_turns() -> None:
    class Slow(TimedTask):
        def do_due_work(self) -> None:
            rung.append(clock.now)
            clock.now += 2

    rung: list[int] = []
    clock = HandClock()
    for _ in range(7):
        clock.schedule.set(Slow(), clock.now)
    turns = []
    while clock.wakes:
        clock.wakes.clear()
        clock.schedule.run()
        turns.append(len(rung))
    assert turns == [3, 6, 7]


def test_a_wait_is_not_shorter_by_the_part_of_a_millisecond_that_is_over() -> None:
    clock = HandClock()
    schedule = clock.schedule
    assert (schedule.after(5), schedule.date_after(5)) == (schedule.now() + 5, schedule.date() + 5)
    clock.fraction = 1
    assert (schedule.now(), schedule.date()) == (clock.now, clock.date())
    assert (schedule.after(5), schedule.date_after(5)) == (schedule.now() + 6, schedule.date() + 6)
    clock.fraction = 999_999
    assert (schedule.after(0), schedule.date_after(0)) == (schedule.now() + 1, schedule.date() + 1)


ADDRESS = Address("x", "k")


class Notes(Timetable):
    """A timetable that records its releases and their times."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock.schedule)
        self.clock = clock
        self.released: list[tuple[int, int]] = []  # size, and how late
        self.wait = 0

    def release(self, message: Message) -> int:
        if self.wait == 0:
            self.released.append((message.size, self.clock.date() - message.date))
        return self.wait


def due(clock: HandClock, wait: int, number: int = 0) -> Message:
    message = Message(ADDRESS, b"", number, True, 0)
    message.date = clock.date() + wait
    return message


def test_each_message_is_released_at_its_date_and_those_of_one_date_in_their_order() -> None:
    clock = HandClock()
    table = Notes(clock)
    waits = [random.Random(5).randrange(100) for _ in range(500)]
    for number, wait in enumerate(waits):
        table.add(due(clock, wait, number))
    assert len(table) == 500
    assert [message.size for message in table] == sorted(range(500), key=lambda n: waits[n])
    clock.advance(99)
    assert [number for number, _ in table.released] == sorted(range(500), key=lambda n: waits[n])
    assert all(late == 0 for _, late in table.released)
    assert len(table) == 0


def test_no_message_is_released_between_two_dates() -> None:
    clock = HandClock()
    table = Notes(clock)
    table.add(due(clock, 30_000))
    table.add(due(clock, 20_000))
    clock.wakes.clear()
    for _ in range(1000):
        table.add(due(clock, 40_000))
    assert clock.wakes == []
    clock.advance(19_999)
    assert table.released == []


def test_a_date_that_is_past_is_now() -> None:
    clock = HandClock()
    table = Notes(clock)
    table.add(due(clock, -5))
    assert table.released == [], "not within the add"
    clock.advance(0)
    assert len(table.released) == 1


def test_many_messages_of_one_date_are_released_in_slices() -> None:
    clock = HandClock()
    table = Notes(clock)
    for number in range(3 * SLICE):
        table.add(due(clock, 10, number))
    clock.now += 10
    for turn in range(1, 4):
        clock.schedule.run()
        assert len(table.released) == turn * SLICE


def test_a_message_that_cannot_be_released_yet_stays_the_first() -> None:
    clock = HandClock()
    table = Notes(clock)
    table.wait = 500
    for number in range(3):
        table.add(due(clock, 10, number))
    clock.advance(400)
    assert (table.released, len(table)) == ([], 3)
    table.wait = 0
    clock.advance(200)
    assert table.released == [(0, 500), (1, 500), (2, 500)]


def test_cancelled_messages_are_not_released() -> None:
    clock = HandClock()
    table = Notes(clock)
    held = [table.add(due(clock, number, number)) for number in range(1000)]
    for place in held[:990]:
        table.cancel(place)
        table.cancel(place)
    assert len(table) == 10
    assert sum(map(len, table.places())) <= 20 + STALE_DATES_MIN + 1
    clock.advance(2_000)
    assert [number for number, _ in table.released] == list(range(990, 1000))
    table.cancel(held[995])
    assert len(table) == 0


def test_taken_messages_are_not_released() -> None:
    clock = HandClock()
    table = Notes(clock)
    places = [table.add(due(clock, wait, wait)) for wait in (30, 10, 20, 40, 25)]
    table.cancel(places[2])
    taken = [message.size for message in table.take(2)]
    assert (len(taken), len(table)) == (2, 2)
    clock.advance(1_000)
    assert sorted([*taken, *(size for size, _ in table.released)]) == [10, 25, 30, 40]
    assert (table.take(9), len(table)) == ([], 0)


def test_a_calendar_that_is_set_is_noticed() -> None:
    clock = HandClock()
    table = Notes(clock)
    table.add(due(clock, 3_600_000))
    clock.offset += 3_600_000
    clock.advance(LOOK_MS)
    assert len(table.released) == 1
    table.add(due(clock, 1_000))
    clock.offset -= 3_600_000
    clock.advance(1_000)
    assert len(table.released) == 1, "not yet"


class Digging(Chore):
    """Takes numbers away, up to the budget; fails once before it takes `fault`."""

    def __init__(self, clock: HandClock, count: int, fault: int = -1) -> None:
        super().__init__(clock.schedule, 2)
        self.left = list(range(count))
        self.fault = fault
        self.steps: list[int] = []

    def step(self, budget: int) -> bool:
        self.steps.append(len(self.left))
        for _ in range(budget):
            if self.left and self.left[-1] == self.fault:
                self.fault = -1
                raise KeyError(1)
            if self.left:
                self.left.pop()
        return bool(self.left)


def turn(clock: HandClock) -> None:
    clock.wakes.clear()
    clock.schedule.run()


def test_a_chore_does_one_slice_in_each_turn() -> None:
    clock = HandClock()
    chore = Digging(clock, 5)
    chore.continue_soon()
    for left in (3, 1, 0):
        turn(clock)
        assert len(chore.left) == left
    assert (chore.due, chore.steps) == (0, [5, 3, 1])


def test_a_chore_is_finished_in_one_turn() -> None:
    clock = HandClock()
    chore = Digging(clock, 5)
    chore.do_due_work()
    chore.finish()
    assert (chore.due, chore.left, chore.steps) == (0, [], [5, 3, 1])


@pytest.mark.parametrize("at_once", [False, True])
def test_a_chore_continues_after_a_step_that_failed(at_once: bool) -> None:
    clock = HandClock()
    chore = Digging(clock, 5, fault=1)
    chore.do_due_work()
    with pytest.raises(KeyError):
        chore.finish() if at_once else clock.advance(0)
    assert chore.due == clock.now + FAILURE_MS
    clock.advance(int(FAILURE_MS))
    assert (chore.due, chore.left) == (0, [])
