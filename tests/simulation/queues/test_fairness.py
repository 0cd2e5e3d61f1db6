"""Equal consumers get equal shares, and few are woken for nothing."""

import pytest

from tests.simulation.queues.fairness import CONSUMERS, WINDOW, bursts, jain, singles, steady
from tests.simulation.queues.invariants import InvariantError


def test_the_index_tells() -> None:
    assert jain([5] * 10) == 1
    assert jain([10] + [0] * 9) == pytest.approx(0.1)


@pytest.mark.parametrize("prefetch", [1, 10])
def test_equal_consumers_get_equal_shares_of_a_backlog(prefetch: int) -> None:
    fair = steady(CONSUMERS * WINDOW + 10_000, prefetch)
    fair.check_shares(WINDOW, 0.99)
    fair.check_shares(20, 0.99)
    fair.check_gaps(4 * CONSUMERS * prefetch)


def test_bursts_are_shared_too() -> None:
    fair = bursts(CONSUMERS * WINDOW + 10_000, seed=1)
    fair.check_shares(WINDOW, 0.95)
    fair.check_wakeups()


@pytest.mark.parametrize("prefetch", [0, 1, 10, 250])
def test_consumers_that_share_a_connection_get_as_much_of_a_backlog_as_others(prefetch: int) -> None:
    fair = steady(50 * 200, prefetch, consumers=50, shared=25)
    fair.check_shares(100, 0.98)
    fair.check_gaps(4 * 50 * max(prefetch, 1))


@pytest.mark.parametrize("prefetch", [0, 1, 10, 250])
def test_consumers_that_share_a_connection_get_as_much_of_bursts_as_others(prefetch: int) -> None:
    fair = bursts(50 * 200, seed=2, consumers=50, prefetch=prefetch, shared=25)
    fair.check_shares(100, 0.98)
    fair.check_wakeups()


def test_single_messages_wake_one_consumer_each_in_turn() -> None:
    fair = singles(CONSUMERS * 30)
    fair.check_shares(30, 0.9999)
    fair.check_gaps(CONSUMERS)
    fair.check_wakeups()


def test_unfair_shares_are_told() -> None:
    fair = singles(100, consumers=2)
    fair.served[:] = [0] * 100
    with pytest.raises(InvariantError, match="F1: equal consumers"):
        fair.check_shares(50, 0.95)
    fair.served.append(1)
    with pytest.raises(InvariantError, match="F2: everybody"):
        fair.check_gaps(50)
