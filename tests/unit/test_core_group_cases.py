"""Message groups: what Broker-J, ActiveMQ and Artemis test of theirs, if `test_core_groups` has it not."""

from collections import Counter

import pytest

from broker.core.operators.operation import mark
from broker.core.queues import election
from tests.clock import HandClock
from tests.dispatch import Client
from tests.grouping import GroupBench
from tests.topology import new_vhost

both = pytest.mark.parametrize("sticky", [True, False])


def owners(yard: GroupBench, *clients: Client) -> dict[str, set[Client]]:
    """Who has had messages of each group."""
    found: dict[str, set[Client]] = {}
    for client in clients:
        for number in client.numbers:
            found.setdefault(yard.names[number].rstrip("-"), set()).add(client)
    return found


@both
def test_one_group_goes_to_one_of_two_and_in_order_to_the_other_when_that_is_lost(sticky: bool) -> None:
    """[ActiveMQ MessageGroupTest: testGroupedMessagesDeliveredToOnlyOneConsumer, testClosingMessageGroup]"""
    yard = GroupBench(sticky=sticky)
    first, second = yard.client(3), yard.client(10)
    yard.send(*["a"] * 6)
    yard.run()
    assert (first.numbers, second.numbers) == ([1, 2, 3], [])
    first.ack(1)
    yard.run()
    first.vanish()
    yard.run()
    assert second.numbers == [2, 3, 4, 5, 6]
    assert second.flags == [True, True, True, False, False]


def test_each_run_up_to_a_close_is_with_one_consumer() -> None:
    """[ActiveMQ MessageGroupCloseTest: every key is closed twice]"""
    yard = GroupBench()
    clients = [yard.client(1) for _ in range(3)]
    yard.send("a", "b", "a", "b", "a-", "b-", "a", "b", "a", "b", "a-", "b-")
    for _ in range(12):
        yard.run()
        for client in clients:
            client.ack()
    yard.run()
    for run in ([1, 3, 5], [2, 4, 6], [7, 9, 11], [8, 10, 12]):
        had = [[number for number in client.numbers if number in run] for client in clients]
        assert sorted(had) == [[], [], run]
    assert not yard.groups.by_key, "closed, and nothing is left of them"


def test_closing_a_group_frees_no_other() -> None:
    """[ActiveMQ: in its map of buckets it does]"""
    yard = GroupBench()
    first, second = yard.client(), yard.client()
    yard.send("a", "b", "a-")
    yard.run()
    owner = {key: next(iter(had)) for key, had in owners(yard, first, second).items()}
    first.ack()
    second.ack()
    yard.send("a", "b", "b")
    yard.run()
    assert owners(yard, first, second)["b"] == {owner["b"]}


@both
def test_what_an_owner_rolls_back_comes_first_and_stays_in_order(sticky: bool) -> None:
    """[Artemis testGroupingRollbackOnClose]"""
    yard = GroupBench(sticky=sticky)
    first, second = yard.client(3), yard.client(3)
    yard.send(*["a"] * 4)
    yard.run()
    first.nack()
    yard.run()
    again = first.numbers[3:] or second.numbers
    assert again == [1, 2, 3]
    if sticky:
        assert second.numbers == [], "it is still its owner"
    holder = first if first.held else second
    holder.vanish()
    yard.run()
    other = second if holder is first else first
    assert other.numbers[-3:] == [1, 2, 3]
    assert other.flags[-3:] == [True] * 3


@both
def test_an_owner_that_is_full_holds_up_nobody_else(sticky: bool) -> None:
    """[Artemis testGroupMessageWithManyConsumers; there a full owner stops the queue]"""
    yard = GroupBench(sticky=sticky)
    full = yard.client(1)
    yard.send("a", "a", "a")
    yard.run()
    other = yard.client()
    yard.send("b", "", "a", "c")
    yard.run()
    assert (full.numbers, other.numbers) == ([1], [4, 5, 7])


def test_consumers_that_come_back_share_the_groups() -> None:
    """[ActiveMQ MessageGroupReconnectDistributionTest]"""
    yard = GroupBench()
    keys = [f"group {number}" for number in range(30)]
    before = [yard.client(1) for _ in range(3)]
    yard.send(*keys, *keys)
    yard.run()
    for client in before:
        client.vanish()
    clients = [yard.client(1) for _ in range(3)]
    while yard.queue.depth:
        yard.run()
        for client in clients:
            client.ack()
    had = owners(yard, *clients)
    assert set(had) == set(keys)
    assert all(len(them) == 1 for them in had.values())
    assert sorted(Counter(client for them in had.values() for client in them).values()) == [10, 10, 10]


def test_groups_wait_for_all_consumers_and_are_shared_then() -> None:
    """[ActiveMQ MessageGroupDelayedTest: consumersBeforeDispatchStarts]"""
    yard = GroupBench()
    yard.queue.arguments["x-consumers-before-dispatch"] = 3
    election.apply(yard.queue, new_vhost(clock=HandClock()))
    yard.send("a", "b", "c", "a", "b", "c")
    clients = [yard.client(2)]
    yard.run()
    clients.append(yard.client(2))
    yard.run()
    assert not any(client.numbers for client in clients)
    clients.append(yard.client(2))
    yard.run()
    assert sorted(client.numbers for client in clients) == [[1, 4], [2, 5], [3, 6]]


def test_one_that_comes_late_gets_what_nobody_has_begun() -> None:
    """[ActiveMQ MessageGroupLateArrivalsTest, MessageGroupTest.testAddingConsumer]"""
    yard = GroupBench()
    early = yard.client(1)
    yard.send("a", "b", "b", "a")
    yard.run()
    late = yard.client(1)
    yard.run()
    assert (early.numbers, late.numbers) == ([1], [2])
    for _ in range(2):
        early.ack()
        late.ack()
        yard.run()
    assert (early.numbers, late.numbers) == ([1, 4], [2, 3])


def test_who_waits_for_room_for_one_of_a_group_goes_on_when_an_operator_closes_that() -> None:
    yard = GroupBench()
    client = yard.client(prefetch_bytes=10)
    yard.send("a")
    large = yard.next("a")
    large.size = 100
    yard.queue.enqueue(large)
    yard.send("a-", "")
    yard.run()
    assert client.numbers == [1]
    closing = list(yard.queue.entries)[2]
    mark(yard.queue, closing, yard.getter())
    yard.run()
    assert client.numbers == [1, 4]
