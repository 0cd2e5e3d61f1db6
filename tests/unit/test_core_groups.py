"""Message groups. Cases of Broker-J's MessageGroupTest and of ActiveMQ's message groups."""

import pytest

from broker.core.delivery.credit import Credit
from broker.core.delivery.session import Connection, PullingTarget, Session
from broker.core.entries.entry import QueueEntry
from broker.core.entries.priority import PriorityEntryList
from broker.core.queues.attach import get_one
from broker.core.queues.consumer import ConsumerTarget, QueueConsumer
from broker.core.queues.immediate import enqueue_immediate
from broker.core.queues.queue import drop
from tests.dispatch import Client, message, number_of
from tests.grouping import GroupBench, Numbers
from tests.property.queue_model import Multiples

both = pytest.mark.parametrize("sticky", [True, False])


def settle_one(client: Client) -> None:
    client.ack(number_of(client.held[0]))


@both
def test_two_groups_and_two_consumers(sticky: bool) -> None:
    """[Broker-J simpleGroupAssignment]"""
    yard = GroupBench(sticky=sticky)
    first, second = yard.client(1), yard.client(1)
    yard.send("a", "b", "a", "b")
    yard.run()
    assert (first.numbers, second.numbers) == ([1], [2])
    second.ack()
    yard.run()
    assert (first.numbers, second.numbers) == ([1], [2, 4]), "3 is of a group that is with the first"
    first.ack()
    yard.run()
    assert (first.numbers, second.numbers) == ([1, 3], [2, 4])


@both
def test_a_consumer_that_is_cancelled_keeps_its_group_until_it_has_settled(sticky: bool) -> None:
    """[Broker-J consumerCloseGroupAssignment]"""
    yard = GroupBench(sticky=sticky)
    first = yard.client(1)
    yard.send("a", "b", "a", "a", "b")
    yard.run()
    second = yard.client(1)
    yard.run()
    first.cancel()
    yard.run()
    assert (first.numbers, second.numbers) == ([1], [2])
    second.ack()
    yard.run()
    assert second.numbers == [2, 5]
    second.ack()
    yard.run()
    assert second.numbers == [2, 5], "the rest of the first group waits"
    first.ack()
    yard.run()
    assert second.numbers == [2, 5, 3]


@both
def test_the_successor_of_a_lost_consumer_gets_everything_in_order(sticky: bool) -> None:
    """[Broker-J consumerCloseWithRelease]"""
    yard = GroupBench(sticky=sticky)
    first = yard.client(1)
    yard.send("a", "a", "b", "a")
    yard.run()
    second = yard.client(3)
    yard.run()
    assert (first.numbers, second.numbers) == ([1], [3])
    first.vanish()
    yard.run()
    assert second.numbers == [3, 1, 2]
    assert second.flags == [False, True, False]
    second.ack(3)
    yard.run()
    assert second.numbers == [3, 1, 2, 4]


@both
def test_what_an_empty_group_remembers(sticky: bool) -> None:
    """[Broker-J groupAssignmentSurvivesEmpty, sharedGroupAssignmentDoesNotSurviveEmpty]"""
    yard = GroupBench(sticky=sticky)
    first, second = yard.client(1), yard.client(1)
    yard.send("a")
    yard.run()
    assert first.numbers == [1]
    first.ack()
    yard.run()
    yard.send("a")
    yard.run()
    assert (first.numbers, second.numbers) == (([1, 2], []) if sticky else ([1], [2]))


def test_a_shared_group_with_many_consumers() -> None:
    """[Broker-J singleSharedGroupWithMultipleConsumers]"""
    yard = GroupBench(sticky=False)
    clients = [yard.client(1) for _ in range(4)]
    yard.send(*["a"] * 100)
    served: list[int] = []
    for _ in range(100):
        yard.run()
        holders = [client for client in clients if client.held]
        assert len(holders) == 1, "one at a time"
        served.append(number_of(holders[0].held[0]))
        holders[0].ack()
    yard.run()
    assert served == list(range(1, 101))
    assert all(client.numbers for client in clients), "they share it"


def test_a_new_consumer_gets_new_groups_and_none_that_has_an_owner() -> None:
    """[ActiveMQ MessageGroupNewConsumerTest]"""
    yard = GroupBench()
    first = yard.client(1)
    yard.send("a", "b", "a", "b")
    yard.run()
    settle_one(first)
    yard.run()
    second = yard.client(2)
    yard.send("c", "a")
    yard.run()
    assert (first.numbers, second.numbers) == ([1, 2], [5])


def test_messages_without_a_group_are_for_everybody() -> None:
    yard = GroupBench()
    first, second = yard.client(1), yard.client(1)
    yard.send("", "", "a", "")
    yard.run()
    assert sorted(first.numbers + second.numbers) == [1, 2]
    assert yard.groups.by_key["a"].owner is None


@both
def test_a_closing_message_lets_the_group_go_when_all_is_settled(sticky: bool) -> None:
    """[ActiveMQ MessageGroupCloseTest: never past an unfinished close]"""
    yard = GroupBench(sticky=sticky)
    first = yard.client(5)
    yard.send("a", "a", "a-", "a", "a")
    yard.run()
    second = yard.client(5)
    yard.run()
    assert (first.numbers, second.numbers) == ([1, 2, 3], [])
    first.ack(3)
    first.ack(1)
    yard.run()
    assert (first.numbers, second.numbers) == ([1, 2, 3], []), "2 is still out"
    first.ack(2)
    yard.run()
    assert sorted([first.numbers, second.numbers], key=len) in ([[4, 5], [1, 2, 3]], [[], [1, 2, 3, 4, 5]])


def test_a_free_group_goes_to_the_highest_priority_and_an_owned_one_to_its_owner() -> None:
    yard = GroupBench()
    low = yard.client(10)
    yard.send("a")
    yard.run()
    high = yard.client(10, priority=5)
    yard.send("a", "b", "a", "b")
    yard.run()
    assert (low.numbers, high.numbers) == ([1, 2, 4], [3, 5])


def test_a_filter_owns_the_group_and_what_it_does_not_see_waits() -> None:
    yard = GroupBench()
    even = yard.client(10, entry_filter=Multiples(2))
    yard.send("a", "a", "a", "a")
    yard.run()
    everything = yard.client(10)
    yard.run()
    assert (even.numbers, everything.numbers) == ([2, 4], [])
    even.vanish()
    yard.run()
    assert everything.numbers == [1, 2, 3, 4]


def test_get_takes_from_free_groups_and_owns_them_meanwhile() -> None:
    yard = GroupBench()
    client = yard.client(1)
    yard.send("a", "a", "b", "b")
    yard.run()
    getter = yard.getter()
    entry = get_one(yard.queue, getter)
    assert entry is not None
    assert number_of(entry) == 3
    assert get_one(yard.queue, yard.getter()) is None
    client.ack()
    yard.run()
    client.ack()
    yard.run()
    assert client.numbers == [1, 2], "b is with who got it"
    yard.queue.settle(entry)
    yard.run()
    assert client.numbers == [1, 2, 4]


def test_a_consumer_whose_next_entry_comes_to_be_anothers_looks_again() -> None:
    """A low one waits on an entry that is left to a higher one; then its group gets an owner."""
    yard = GroupBench()
    low = yard.client(1)
    even = yard.client(priority=5, entry_filter=Numbers(lambda number: number % 2 == 0))
    eight = yard.client(priority=5, entry_filter=Numbers(lambda number: number == 8))
    for number, group in ((4, "a"), (3, ""), (8, "a")):
        yard.names[number] = group
        yard.queue.enqueue(message(number))
    for client in (low, eight, even):
        connection = client.session.connection
        assert connection.scheduled
        yard.scheduler.prefer(connection)
        yard.scheduler.step()
        assert client is not low or client.consumer.waiting_on is not None
    yard.run()
    assert low.numbers == [3]


def test_strict_groups_have_one_message_out_each() -> None:
    yard = GroupBench(strict=True)
    client = yard.client(10)
    yard.send("a", "a", "b", "", "b", "")
    yard.run()
    assert client.numbers == [1, 3, 4, 6]
    client.nack(1)
    yard.run()
    assert client.numbers == [1, 3, 4, 6, 1]
    client.ack(1)
    yard.run()
    assert client.numbers == [1, 3, 4, 6, 1, 2]


@both
def test_the_first_of_a_strict_group_makes_way_when_it_leaves_without_having_been_given_out(
    sticky: bool,
) -> None:
    yard = GroupBench(strict=True, sticky=sticky)
    even = yard.client(10, entry_filter=Multiples(2))
    yard.send("a", "a", "a", "a")
    yard.run()
    assert even.numbers == [], "nobody sees the first"
    drop(yard.queue, next(iter(yard.queue.entries)))
    yard.run()
    assert even.numbers == [2]
    even.ack()
    yard.run()
    drop(yard.queue, next(iter(yard.queue.entries)))
    yard.run()
    assert even.numbers == [2, 4]


def test_immediate_goes_to_the_owner() -> None:
    yard = GroupBench()
    low, high = yard.client(5), yard.client(5, priority=5)
    yard.send("a")
    yard.run()
    high.cancel()
    assert (low.numbers, high.numbers) == ([], [1])
    assert not enqueue_immediate(yard.queue, yard.next("a")), "its owner has gone, but not settled"
    high.ack()
    assert enqueue_immediate(yard.queue, yard.next("a"))
    assert low.numbers == [3]


def test_who_takes_a_group_out_of_its_turn_gets_the_rest_of_it_too() -> None:
    yard = GroupBench(PriorityEntryList(2))
    told, idle = yard.client(), yard.client()
    yard.send("a")
    assert enqueue_immediate(yard.queue, yard.next("a", priority=1))
    yard.run()
    assert (told.numbers, idle.numbers) == ([], [2, 1])


def test_an_arrival_of_higher_priority_is_found_by_the_owner() -> None:
    yard = GroupBench(PriorityEntryList(3))
    first, second = yard.client(1), yard.client(1)
    yard.send("a", "a", "a")
    yard.run()
    yard.send("a", priority=1)
    yard.send("a", priority=2)
    yard.run()
    for _ in range(4):
        first.ack()
        yard.run()
    assert (first.numbers, second.numbers) == ([1, 5, 4, 2, 3], [])


def promise(yard: GroupBench, client: Client, *numbers: int) -> None:
    """A transaction of the client settles these, which it has."""
    for entry in client.held:
        if number_of(entry) in numbers:
            yard.groups.note_promise(entry, client.consumer)


@both
def test_one_transaction_takes_several_of_a_strict_group_in_order(sticky: bool) -> None:
    yard = GroupBench(strict=True, sticky=sticky)
    first, second = yard.client(10), yard.client(10)
    yard.send("a", "a", "b", "a", "b", "a")
    yard.run()
    assert sorted([first.numbers, second.numbers]) == [[1], [3]]
    holder, other = (first, second) if first.numbers == [1] else (second, first)
    promise(yard, holder, 1)
    yard.run()
    assert (holder.numbers, other.numbers) == ([1, 2], [3])
    yard.run()
    assert holder.numbers == [1, 2], "the second is out"
    promise(yard, holder, 2)
    yard.run()
    promise(yard, holder, 4)
    yard.run()
    assert (holder.numbers, other.numbers) == ([1, 2, 4, 6], [3])
    holder.ack(1, 2, 4)
    yard.send("a")
    yard.run()
    assert holder.numbers == [1, 2, 4, 6], "6 is in no transaction"
    promise(yard, holder, 6)
    yard.run()
    assert holder.numbers == [1, 2, 4, 6, 7]


@both
def test_what_comes_while_all_of_a_strict_group_is_to_leave_goes_to_its_owner(sticky: bool) -> None:
    yard = GroupBench(strict=True, sticky=sticky)
    first, second = yard.client(10), yard.client(10)
    yard.send("a")
    yard.run()
    holder, other = (first, second) if first.held else (second, first)
    promise(yard, holder, 1)
    yard.send("a")
    yard.run()
    assert (holder.numbers, other.numbers) == ([1, 2], [])


@pytest.mark.parametrize("lost", [True, False])
def test_a_rollback_or_loss_keeps_the_order_of_a_strict_group(lost: bool) -> None:
    yard = GroupBench(strict=True, sticky=False)
    first, second = yard.client(10), yard.client(10)
    yard.send("a", "a", "a", "a")
    yard.run()
    holder, other = (first, second) if first.held else (second, first)
    promise(yard, holder, 1)
    yard.run()
    promise(yard, holder, 2)
    yard.run()
    yard.groups.note_withdrawal(holder.held[:2])
    yard.run()
    assert (holder.numbers, other.numbers) == ([1, 2, 3], [])
    if lost:
        holder.vanish()
    else:
        holder.nack()
        holder.cancel()
    for number in (1, 2, 3, 4):
        yard.run()
        assert other.numbers[-1] == number
        other.ack()
    assert other.numbers == [1, 2, 3, 4]


def test_what_comes_back_waits_for_the_end_of_a_transaction_that_has_something_later() -> None:
    yard = GroupBench(strict=True, sticky=False)
    client = yard.client(10)
    yard.send("a", "a", "a")
    yard.run()
    promise(yard, client, 1)
    yard.run()
    promise(yard, client, 2)
    yard.run()
    assert client.numbers == [1, 2, 3]
    client.nack(1, 3)
    yard.run()
    assert client.numbers == [1, 2, 3], "2 may be rolled back"
    client.nack(2)
    yard.run()
    assert client.numbers == [1, 2, 3, 1]


def test_requests_of_one_session_take_several_of_a_strict_group_in_one_transaction() -> None:
    yard = GroupBench(strict=True)
    yard.send("a", "b", "a", "a", "b")
    mine = PullingTarget(Session(Connection(yard.scheduler)), Credit())
    taken: list[int] = []

    def take(target: ConsumerTarget) -> tuple[QueueEntry, QueueConsumer] | None:
        consumer = QueueConsumer(target, yard.queue)
        entry = get_one(yard.queue, consumer)
        if entry is None:
            return None
        taken.append(number_of(entry))
        return entry, consumer

    out: list[QueueEntry] = []
    for _ in range(2):  # 1 and 2, the first of each group
        found = take(mine)
        assert found is not None
        out.append(found[0])
        yard.groups.note_promise(*found)
    assert take(PullingTarget(Session(Connection(yard.scheduler)), Credit())) is None
    found = take(mine)
    assert found is not None
    assert taken == [1, 2, 3]
    found_too = take(mine)
    assert found_too is not None
    assert taken == [1, 2, 3, 5], "3 is in no transaction, so 4 waits"
    yard.groups.note_promise(*found)
    assert take(mine) is not None
    assert taken == [1, 2, 3, 5, 4]
    for entry in list(yard.queue.entries):
        yard.queue.settle(entry)
    assert not yard.groups._gets
    assert not yard.groups.by_key
