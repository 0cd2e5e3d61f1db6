"""How groups are let go of: when consumers come, when they are idle for long, when everything has gone."""

import pytest

from broker.core.queues.group import holding_of
from tests.grouping import GroupBench


def test_rebalancing_moves_groups_when_nothing_of_them_is_out() -> None:
    """[Artemis testGroupRebalancePauseDispatch]"""
    yard = GroupBench(rebalances=True)
    first = yard.client(2)
    yard.send("a", "b", "a", "b")
    yard.run()
    second = yard.client(1)
    yard.run()
    assert (first.numbers, second.numbers) == ([1, 2], []), "they wait for what is out"
    first.ack(1)
    yard.run()
    assert second.numbers + first.numbers[2:] == [3]
    first.ack(2)
    yard.run()
    assert sorted(second.numbers + first.numbers) == [1, 2, 3, 4]


def test_what_is_taken_after_groups_have_moved_stays() -> None:
    yard = GroupBench(rebalances=True)
    first = yard.client()
    yard.send("a")
    yard.run()
    first.ack()
    yard.client().cancel()
    assert not yard.groups.by_key
    yard.send("b")
    yard.run()
    first.ack()
    assert yard.groups.by_key["b"].owner is first.consumer


def test_groups_that_are_idle_for_longest_are_forgotten() -> None:
    yard = GroupBench(idle_max=2)
    first = yard.client()
    yard.send("a", "b", "a", "c")
    yard.run()
    assert list(yard.groups.by_key) == ["a", "b", "c"]
    for number in (2, 1, 3, 4):
        first.ack(number)
    assert list(yard.groups.by_key) == ["a", "c"]
    holding = holding_of(first.consumer)
    assert holding is not None
    assert len(holding.groups) == 2
    yard.send("a", "d")
    yard.run()
    first.ack()
    assert set(yard.groups.by_key) == {"a", "d"}


@pytest.mark.parametrize("limit", [0, 1024])
def test_nothing_is_left_of_groups_that_are_gone(limit: int) -> None:
    yard = GroupBench(idle_max=limit)
    first, second = yard.client(), yard.client()
    yard.send(*[f"group {number}" for number in range(3000)])
    yard.run()
    first.ack()
    second.ack()
    assert len(yard.groups.by_key) == limit
    first.vanish()
    second.vanish()
    assert not yard.groups.by_key
