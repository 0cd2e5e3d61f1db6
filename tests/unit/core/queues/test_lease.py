"""Deliveries that are not settled in time, on a clock that is moved by hand."""

import pytest
from mypy_extensions import i64

from broker.core.queues.lease import SLICE, TRIM, Lease, LeaseHolder, lease_milliseconds
from tests.support.core.hand_clock import HandClock
from tests.support.core.topology import new_vhost


class Holder(LeaseHolder):
    """A session that knows which of its deliveries are unsettled, and when leases ended."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.unsettled: set[int] = set()
        self.ended: list[tuple[int, list[int]]] = []
        self.questions = 0

    def is_unsettled(self, number: i64) -> bool:
        self.questions += 1
        return number in self.unsettled

    def on_leases_ended(self, numbers: list[i64]) -> None:
        self.unsettled -= set(numbers)
        self.ended.append((self.clock.now, list(numbers)))


class LeaseBench:
    """A lease of 100 ms on a clock that stands at 1000."""

    def __init__(self) -> None:
        self.clock = HandClock(now=1000)
        self.holder = Holder(self.clock)
        self.lease = Lease(self.clock.schedule, self.holder, 100)

    def deliver(self, *numbers: int) -> None:
        for number in numbers:
            self.holder.unsettled.add(number)
            self.lease.begin(number)


@pytest.fixture
def bench() -> LeaseBench:
    return LeaseBench()


def test_each_ends_at_its_own_time(bench: LeaseBench) -> None:
    bench.deliver(1)
    bench.clock.advance(30)
    bench.deliver(2, 3)
    bench.clock.advance(69)
    assert bench.holder.ended == []
    bench.clock.advance(1)
    assert bench.holder.ended == [(1100, [1])]
    bench.clock.advance(1000)
    assert bench.holder.ended == [(1100, [1]), (1130, [2, 3])]
    assert bench.lease.due == 0


def test_a_delivery_settled_in_time_does_not_end(bench: LeaseBench) -> None:
    bench.deliver(1, 2, 3)
    bench.holder.unsettled -= {1, 3}
    bench.clock.advance(1000)
    assert bench.holder.ended == [(1100, [2])]


def test_the_alarm_is_for_the_first_that_is_unsettled(bench: LeaseBench) -> None:
    for number in range(1, 6):
        bench.deliver(number)
        bench.clock.advance(10)
    bench.holder.unsettled = {5}
    bench.clock.advance(50)
    assert bench.holder.ended == []
    assert bench.lease.due == 1140, "one ring found out about the four that are settled"
    bench.clock.advance(100)
    assert bench.holder.ended == [(1140, [5])]


def test_a_lease_rests_without_deliveries_and_starts_again(bench: LeaseBench) -> None:
    bench.deliver(1)
    bench.holder.unsettled.clear()
    bench.clock.advance(500)
    assert bench.lease.due == 0
    bench.deliver(2)
    bench.clock.advance(100)
    assert bench.holder.ended == [(1600, [2])]


def test_many_at_once_end_in_slices(bench: LeaseBench) -> None:
    count = 2 * SLICE + 1
    bench.deliver(*range(count))
    bench.clock.advance(99)
    assert bench.holder.ended == []
    bench.clock.advance(1)
    assert [len(numbers) for _, numbers in bench.holder.ended] == [SLICE, SLICE, 1]
    assert [number for _, numbers in bench.holder.ended for number in numbers] == list(range(count))
    assert {time for time, _ in bench.holder.ended} == {1100}


def test_a_delivery_costs_the_same_however_many_are_out(bench: LeaseBench) -> None:
    """Settled deliveries behind an unsettled one are forgotten, and not visited again and again."""
    bench.deliver(0)
    for number in range(1, 50 * TRIM):
        bench.deliver(number)
        bench.holder.unsettled.discard(number)
    assert len(bench.lease._ends) <= 2 * TRIM, "no more is kept than is out"
    assert bench.holder.questions <= 100 * TRIM


def test_a_delivery_costs_the_same_however_many_stay_out(bench: LeaseBench) -> None:
    bench.deliver(*range(50 * TRIM))
    assert bench.holder.questions <= 100 * TRIM


def test_stopping(bench: LeaseBench) -> None:
    bench.deliver(1)
    bench.lease.stop()
    bench.clock.advance(1000)
    assert bench.holder.ended == []
    assert bench.lease.due == 0


def test_the_consumer_s_word_comes_before_the_queue_s_and_that_before_the_broker_s() -> None:
    vhost = new_vhost()
    plain = vhost.declarations.declare_queue("plain", False, None, False, {})
    timed = vhost.declarations.declare_queue("timed", False, None, False, {"x-consumer-timeout": 5000})
    assert lease_milliseconds(plain, None, 0) == 0
    assert lease_milliseconds(plain, None, 60_000) == 60_000
    assert lease_milliseconds(timed, None, 60_000) == 5000
    assert lease_milliseconds(timed, 700, 60_000) == 700
    assert lease_milliseconds(timed, 0, 60_000) == 0, "0 asks for as long as it takes"
