"""Timed tasks are done at their time, once, in order; chores are done in slices."""

import random

import pytest

from broker.core.schedule import FAILURE_MS, STALE_MIN, Chore, TimedTask
from tests.clock import HandClock


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


def test_one_that_is_set_again_at_the_same_time_after_a_cancel_rings_once() -> None:
    clock = HandClock()
    bell = Bell(clock)
    clock.schedule.set(bell, 2_000)
    clock.schedule.cancel(bell)
    clock.schedule.set(bell, 2_000)
    clock.advance(5_000)
    assert bell.rung == [2_000]


def test_what_sets_itself_again_for_now_does_not_keep_the_others_waiting() -> None:
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


def test_one_that_fails_does_not_stop_the_others() -> None:
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
