"""What groups may cost, in entries looked at: never in proportion to what is parked or out."""

import pytest

from broker.core.entries.list import FifoEntryList
from broker.core.queues.limits import Rules
from tests.clock import HandClock
from tests.grouping import GroupBench, Numbers
from tests.topology import new_vhost
from tests.unit.test_core_costs import CountingList


def counted(**options: bool | int) -> tuple[GroupBench, CountingList]:
    counting = CountingList(FifoEntryList())
    return GroupBench(counting, **options), counting


@pytest.mark.parametrize("sticky", [True, False])
@pytest.mark.parametrize("parked", [100, 5000])
def test_settling_in_long_runs_of_groups(sticky: bool, parked: int) -> None:
    """[Broker-J QPID-6621: the earliest entry of the group was looked for anew]"""
    bench, counting = counted(sticky=sticky)
    first, second = bench.client(1), bench.client(1)
    bench.send(*["a"] * parked, *["b"] * parked)
    bench.run()
    assert (first.numbers, second.numbers) == ([1], [parked + 1])
    counting.steps = 0
    for _ in range(50):
        for client in (first, second):
            client.ack()
            bench.run()
    assert len(first.numbers) + len(second.numbers) == 102
    assert counting.steps <= 3 * 100, "each step finds the end, or one entry"


@pytest.mark.parametrize("strict", [True, False])
def test_an_arrival_for_an_owner_behind_many_that_are_parked(strict: bool) -> None:
    bench, counting = counted(strict=strict)
    busy = bench.client(1)
    bench.send(*["a"] * 5000)
    bench.run()
    idle = bench.client(1)
    bench.run()
    assert (busy.numbers, idle.numbers) == ([1], [])
    counting.steps = 0
    for number in range(100):
        bench.send(f"new {number}")
        bench.run()
        idle.ack()
        bench.run()
    assert len(idle.numbers) == 100
    assert counting.steps <= 500


def test_the_oldest_goes_where_a_length_is_limited_parked_or_not() -> None:
    bench, _ = counted()
    vhost = new_vhost(clock=HandClock())
    bench.queue.rules = Rules(bench.queue, vhost)
    bench.queue.rules.apply({"x-max-length": 3})
    owner, other = bench.client(1), bench.client(1)
    bench.send("a", "a", "a", "a")
    bench.run()
    assert (owner.numbers, other.numbers) == ([1], [])
    bench.send("a", "a")
    bench.run()
    assert bench.numbers() == [1, 4, 5, 6]
    bench.queue.rules.apply({"x-max-length": 2})  # a policy has changed: what is parked is known to it too
    bench.send("a")
    assert bench.numbers() == [1, 6, 7]
    for _ in range(2):
        owner.ack()
        bench.run()
    assert owner.numbers == [1, 6, 7]


def test_the_oldest_is_found_behind_many_that_those_with_selectors_have() -> None:
    bench, counting = counted()
    bench.queue.rules = Rules(bench.queue, new_vhost(clock=HandClock()))
    bench.queue.rules.apply({"x-max-length": 3000})
    first = bench.client(entry_filter=Numbers(lambda number: number <= 2000))
    bench.send(*["a"] * 5000)
    bench.run()
    assert len(first.numbers) == 2000
    bench.queue.rules.apply({"x-max-length": 2})
    bench.send(*["b"] * 4)
    assert bench.queue.ready == 2
    counting.steps = 0
    bench.send(*["b"] * 100)
    assert counting.steps <= 500
    first.nack()
    assert bench.numbers() == [5103, 5104], "what comes back is the oldest again"


def test_who_has_come_and_gone_with_a_selector_of_its_own_leaves_little() -> None:
    bench, _ = counted()
    owner = bench.client(1)
    bench.send("a", "a", "a")
    bench.run()
    for _ in range(200):
        bench.client(entry_filter=Numbers(lambda number: number > 1)).vanish()
        bench.client(entry_filter=Numbers(lambda number: number > 1)).cancel()
    group = bench.groups.by_key["a"]
    assert group.owner is owner.consumer
    assert len(group.parked) <= 3
