"""Delays never end before their milliseconds have passed, also if they begin within a millisecond."""

import pytest
from mypy_extensions import i64

from broker.core.hashing import Chance
from broker.core.message import Address, Message
from broker.core.publishing.delay import due_date
from broker.core.queues.lease import Lease, LeaseHolder
from broker.core.routing.graph import Resolution
from tests.support.core.hand_clock import HandClock
from tests.support.core.timed_vhost import delivered_bench
from tests.support.core.topology import view_of

HALF = 500_000  # ns


@pytest.fixture
def clock() -> HandClock:
    """Half a millisecond after its time."""
    clock = HandClock()
    clock.fraction = HALF
    return clock


def test_a_retry_delay() -> None:
    bench, queue, client = delivered_bench(retry_min=100)
    bench.clock.fraction = HALF
    client.nack(1)
    bench.clock.fraction = 0
    bench.clock.advance(100)
    assert (queue.ready, queue.held) == (0, 1), "99.5 ms have passed"
    bench.clock.advance(1)
    assert (queue.ready, queue.held) == (1, 0)


def test_a_delay_of_the_publisher(clock: HandClock) -> None:
    assert due_date(view_of(headers={"x-delay": 100}), clock.schedule) == clock.date() + 101


def test_a_delay_of_the_exchange(clock: HandClock) -> None:
    resolution = Resolution(Chance(str))
    resolution.delay = 100
    message = Message(Address("", "key"), b"", 0, False, 0)
    resolution.delay_message(message, clock.schedule)
    assert message.date == clock.date() + 101


def test_a_date_is_that_date(clock: HandClock) -> None:
    date = clock.date() + 100
    assert due_date(view_of(headers={"x-delivery-time": date}), clock.schedule) == date


class Holder(LeaseHolder):
    """A session with a single unsettled delivery."""

    def __init__(self) -> None:
        self.ended = False

    def is_unsettled(self, number: i64) -> bool:
        return not self.ended

    def on_leases_ended(self, numbers: list[i64]) -> None:
        self.ended = True


def test_a_lease(clock: HandClock) -> None:
    holder = Holder()
    Lease(clock.schedule, holder, 100).begin(1)
    clock.fraction = 0
    clock.advance(100)
    assert not holder.ended
    clock.advance(1)
    assert holder.ended
