"""From one active consumer to the next: the old one drains first. [RabbitMQ single active consumer]"""

import pytest

from broker.core.queues.consumer import DRAINING, SINGLE_ACTIVE, WAITING
from broker.core.queues.election import Election, activity_of
from tests.dispatch import Bench, Client


@pytest.fixture
def bench() -> Bench:
    """A queue with a single active consumer."""
    bench = Bench()
    bench.queue.election = Election(bench.queue)
    return bench


def activities(*clients: Client) -> list[str]:
    return [activity_of(client.consumer) for client in clients]


def test_a_cancelled_one_settles_what_it_has_before_the_next_one_starts(bench: Bench) -> None:
    first, second = bench.client(2), bench.client()
    bench.publish(4)
    bench.run()
    first.cancel()
    bench.run()
    assert activities(second) == [WAITING]
    first.ack(1)
    bench.run()
    assert second.numbers == []
    first.ack(2)
    bench.run()
    assert second.numbers == [3, 4]
    assert activities(second) == [SINGLE_ACTIVE]


@pytest.mark.parametrize("back", [(1, 3), (3, 1), (2,), (1, 2, 3)])
def test_what_a_cancelled_one_gives_back_comes_first_and_in_order(
    bench: Bench, back: tuple[int, ...]
) -> None:
    first, second = bench.client(3), bench.client()
    bench.publish(5)
    bench.run()
    first.cancel()
    for number in back:
        first.nack(number)
        bench.run()
        assert second.numbers == [] or not first.held
    first.ack()
    bench.run()
    assert second.numbers == [*sorted(back), 4, 5]
    assert second.flags == [True] * len(back) + [False, False]


def test_refusing_for_good_ends_a_delivery_too(bench: Bench) -> None:
    first, second = bench.client(1), bench.client()
    bench.publish(2)
    bench.run()
    first.cancel()
    first.reject(1)
    bench.run()
    assert second.numbers == [2]


def test_a_consumer_without_acknowledgements_never_drains(bench: Bench) -> None:
    first, second = bench.client(no_ack=True), bench.client(no_ack=True)
    bench.publish(2)
    bench.run()
    first.cancel()
    bench.publish()
    bench.run()
    assert (first.numbers, second.numbers) == ([1, 2], [3])


def test_a_higher_priority_takes_over_by_draining(bench: Bench) -> None:
    low = bench.client(2)
    bench.publish(4)
    bench.run()
    high = bench.client(priority=1)
    bench.run()
    assert high.numbers == []
    assert activities(low, high) == [DRAINING, WAITING]
    low.ack(1)
    low.nack(2)
    bench.run()
    assert high.numbers == [2, 3, 4]
    assert activities(low, high) == [WAITING, SINGLE_ACTIVE]
    assert low.numbers == [1, 2]


def test_a_higher_priority_takes_over_at_once_from_one_that_holds_nothing(bench: Bench) -> None:
    low, high = bench.client(), bench.client(priority=1)
    bench.publish()
    bench.run()
    assert (low.numbers, high.numbers) == ([], [1])


def test_equal_and_lower_priorities_do_not_take_over(bench: Bench) -> None:
    first = bench.client(priority=5)
    lower, equal, highest = (bench.client(priority=priority) for priority in (4, 5, 6))
    assert activities(first, lower, equal, highest) == [WAITING, WAITING, WAITING, SINGLE_ACTIVE]
    for gone, active in ((highest, first), (first, equal), (equal, lower)):
        gone.cancel()
        assert activities(active) == [SINGLE_ACTIVE]


def test_one_that_drains_goes_on_when_who_outranked_it_has_gone(bench: Bench) -> None:
    low = bench.client(1)
    bench.publish(2)
    bench.run()
    high = bench.client(priority=1)
    high.cancel()
    assert activities(low) == [SINGLE_ACTIVE]
    low.ack()
    bench.run()
    assert low.numbers == [1, 2]


def test_one_that_drains_may_go_altogether(bench: Bench) -> None:
    low, standby = bench.client(), bench.client()
    bench.publish(2)
    bench.run()
    high = bench.client(priority=1)
    low.vanish()
    bench.run()
    assert (high.numbers, standby.numbers) == ([1, 2], [])


def test_one_that_drains_and_is_cancelled_is_still_waited_for(bench: Bench) -> None:
    low = bench.client()
    bench.publish(2)
    bench.run()
    high = bench.client(priority=1)
    low.cancel()
    bench.run()
    assert high.numbers == []
    low.ack()
    bench.publish()
    bench.run()
    assert high.numbers == [3]


def test_successors_that_go_before_they_start(bench: Bench) -> None:
    first, second, third = (bench.client(1) for _ in range(3))
    bench.publish(2)
    bench.run()
    first.cancel()
    second.cancel()
    bench.run()
    assert activities(third) == [WAITING]
    first.nack()
    bench.run()
    assert third.numbers == [1]


def test_a_newcomer_waits_for_one_that_was_cancelled_before_it_came(bench: Bench) -> None:
    first = bench.client()
    bench.publish(2)
    bench.run()
    first.cancel()
    second = bench.client()
    bench.publish()
    bench.run()
    assert second.numbers == []
    first.ack(1)
    first.nack(2)
    bench.run()
    assert second.numbers == [2, 3]


def test_an_active_one_that_waits_for_bytes_hands_over(bench: Bench) -> None:
    first = bench.client(prefetch_bytes=10)
    bench.publish(2, size=8)
    bench.run()
    assert first.consumer.waiting_on is not None
    high = bench.client(priority=1)
    first.ack(1)
    bench.run()
    assert high.numbers == [2]
    high.cancel()
    high.nack()
    bench.run()
    assert first.numbers == [1, 2]
