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

    def leases_ended(self, numbers: list[i64]) -> None:
        self.unsettled -= set(numbers)
        self.ended.append((self.clock.now, list(numbers)))


class Desk:
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
def desk() -> Desk:
    return Desk()


def test_each_ends_at_its_own_time(desk: Desk) -> None:
    desk.deliver(1)
    desk.clock.advance(30)
    desk.deliver(2, 3)
    desk.clock.advance(69)
    assert desk.holder.ended == []
    desk.clock.advance(1)
    assert desk.holder.ended == [(1100, [1])]
    desk.clock.advance(1000)
    assert desk.holder.ended == [(1100, [1]), (1130, [2, 3])]
    assert desk.lease.due == 0


def test_a_delivery_settled_in_time_does_not_end(desk: Desk) -> None:
    desk.deliver(1, 2, 3)
    desk.holder.unsettled -= {1, 3}
    desk.clock.advance(1000)
    assert desk.holder.ended == [(1100, [2])]


def test_the_alarm_is_for_the_first_that_is_unsettled(desk: Desk) -> None:
    for number in range(1, 6):
        desk.deliver(number)
        desk.clock.advance(10)
    desk.holder.unsettled = {5}
    desk.clock.advance(50)
    assert desk.holder.ended == []
    assert desk.lease.due == 1140, "one ring found out about the four that are settled"
    desk.clock.advance(100)
    assert desk.holder.ended == [(1140, [5])]


def test_a_lease_rests_without_deliveries_and_starts_again(desk: Desk) -> None:
    desk.deliver(1)
    desk.holder.unsettled.clear()
    desk.clock.advance(500)
    assert desk.lease.due == 0
    desk.deliver(2)
    desk.clock.advance(100)
    assert desk.holder.ended == [(1600, [2])]


def test_many_at_once_end_in_slices(desk: Desk) -> None:
    count = 2 * SLICE + 1
    desk.deliver(*range(count))
    desk.clock.advance(99)
    assert desk.holder.ended == []
    desk.clock.advance(1)
    assert [len(numbers) for _, numbers in desk.holder.ended] == [SLICE, SLICE, 1]
    assert [number for _, numbers in desk.holder.ended for number in numbers] == list(range(count))
    assert {time for time, _ in desk.holder.ended} == {1100}


def test_a_delivery_costs_the_same_however_many_are_out(desk: Desk) -> None:
    """Settled deliveries behind an unsettled one are forgotten, and not visited again and again."""
    desk.deliver(0)
    for number in range(1, 50 * TRIM):
        desk.deliver(number)
        desk.holder.unsettled.discard(number)
    assert len(desk.lease._ends) <= 2 * TRIM, "no more is kept than is out"
    assert desk.holder.questions <= 100 * TRIM


def test_a_delivery_costs_the_same_however_many_stay_out(desk: Desk) -> None:
    desk.deliver(*range(50 * TRIM))
    assert desk.holder.questions <= 100 * TRIM


def test_stopping(desk: Desk) -> None:
    desk.deliver(1)
    desk.lease.stop()
    desk.clock.advance(1000)
    assert desk.holder.ended == []
    assert desk.lease.due == 0


def test_the_consumer_s_word_comes_before_the_queue_s_and_that_before_the_broker_s() -> None:
    vhost = new_vhost()
    plain = vhost.declare_queue("plain", False, None, False, {})
    timed = vhost.declare_queue("timed", False, None, False, {"x-consumer-timeout": 5000})
    assert lease_milliseconds(plain, None, 0) == 0
    assert lease_milliseconds(plain, None, 60_000) == 60_000
    assert lease_milliseconds(timed, None, 60_000) == 5000
    assert lease_milliseconds(timed, 700, 60_000) == 700
    assert lease_milliseconds(timed, 0, 60_000) == 0, "0 asks for as long as it takes"
