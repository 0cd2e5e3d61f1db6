"""Message groups. Cases of Broker-J, ActiveMQ and Artemis, and costs counted in entries."""

from collections import Counter

import pytest

from broker.core.delivery.credit import Credit
from broker.core.delivery.session import Connection, PullingTarget, Session
from broker.core.entries.entry import QueueEntry
from broker.core.entries.list import FifoEntryList
from broker.core.entries.priority import PriorityEntryList
from broker.core.operators.operation import mark
from broker.core.queues import gate
from broker.core.queues.attach import get_one
from broker.core.queues.consumer import ConsumerTarget, QueueConsumer
from broker.core.queues.group import holding_of
from broker.core.queues.immediate import enqueue_immediate
from broker.core.queues.limits import Limits
from broker.core.queues.queue import drop
from tests.property.queue_model import Multiples
from tests.support.core.group_bench import GroupBench, NumberFilter
from tests.support.core.hand_clock import HandClock
from tests.support.core.queue_bench import Client, message, number_of
from tests.support.core.topology import new_vhost
from tests.unit.core.queues.test_queue import CountingList

both = pytest.mark.parametrize("sticky", [True, False])


def settle_one(client: Client) -> None:
    client.ack(number_of(client.held[0]))


@both
def test_two_groups_and_two_consumers(sticky: bool) -> None:
    """[Broker-J simpleGroupAssignment]"""
    bench = GroupBench(sticky=sticky)
    first, second = bench.client(1), bench.client(1)
    bench.send("a", "b", "a", "b")
    bench.run()
    assert (first.numbers, second.numbers) == ([1], [2])
    second.ack()
    bench.run()
    assert (first.numbers, second.numbers) == ([1], [2, 4]), "3 is of a group that is with the first"
    first.ack()
    bench.run()
    assert (first.numbers, second.numbers) == ([1, 3], [2, 4])


@both
def test_a_consumer_that_is_cancelled_keeps_its_group_until_it_has_settled(sticky: bool) -> None:
    """[Broker-J consumerCloseGroupAssignment]"""
    bench = GroupBench(sticky=sticky)
    first = bench.client(1)
    bench.send("a", "b", "a", "a", "b")
    bench.run()
    second = bench.client(1)
    bench.run()
    first.cancel()
    bench.run()
    assert (first.numbers, second.numbers) == ([1], [2])
    second.ack()
    bench.run()
    assert second.numbers == [2, 5]
    second.ack()
    bench.run()
    assert second.numbers == [2, 5], "the rest of the first group waits"
    first.ack()
    bench.run()
    assert second.numbers == [2, 5, 3]


@both
def test_the_successor_of_a_lost_consumer_gets_everything_in_order(sticky: bool) -> None:
    """[Broker-J consumerCloseWithRelease]"""
    bench = GroupBench(sticky=sticky)
    first = bench.client(1)
    bench.send("a", "a", "b", "a")
    bench.run()
    second = bench.client(3)
    bench.run()
    assert (first.numbers, second.numbers) == ([1], [3])
    first.vanish()
    bench.run()
    assert second.numbers == [3, 1, 2]
    assert second.flags == [False, True, False]
    second.ack(3)
    bench.run()
    assert second.numbers == [3, 1, 2, 4]


@both
def test_the_state_of_an_empty_group(sticky: bool) -> None:
    """[Broker-J groupAssignmentSurvivesEmpty, sharedGroupAssignmentDoesNotSurviveEmpty]"""
    bench = GroupBench(sticky=sticky)
    first, second = bench.client(1), bench.client(1)
    bench.send("a")
    bench.run()
    assert first.numbers == [1]
    first.ack()
    bench.run()
    bench.send("a")
    bench.run()
    assert (first.numbers, second.numbers) == (([1, 2], []) if sticky else ([1], [2]))


def test_a_shared_group_with_many_consumers() -> None:
    """[Broker-J singleSharedGroupWithMultipleConsumers]"""
    bench = GroupBench(sticky=False)
    clients = [bench.client(1) for _ in range(4)]
    bench.send(*["a"] * 100)
    served: list[int] = []
    for _ in range(100):
        bench.run()
        holders = [client for client in clients if client.held]
        assert len(holders) == 1, "one at a time"
        served.append(number_of(holders[0].held[0]))
        holders[0].ack()
    bench.run()
    assert served == list(range(1, 101))
    assert all(client.numbers for client in clients), "they share it"


def test_a_new_consumer_gets_only_groups_without_an_owner() -> None:
    """[ActiveMQ MessageGroupNewConsumerTest]"""
    bench = GroupBench()
    first = bench.client(1)
    bench.send("a", "b", "a", "b")
    bench.run()
    settle_one(first)
    bench.run()
    second = bench.client(2)
    bench.send("c", "a")
    bench.run()
    assert (first.numbers, second.numbers) == ([1, 2], [5])


def test_messages_without_a_group_go_to_any_consumer() -> None:
    bench = GroupBench()
    first, second = bench.client(1), bench.client(1)
    bench.send("", "", "a", "")
    bench.run()
    assert sorted(first.numbers + second.numbers) == [1, 2]
    assert bench.groups.by_key["a"].owner is None


@both
def test_a_closing_message_lets_the_group_go_when_all_is_settled(sticky: bool) -> None:
    """[ActiveMQ MessageGroupCloseTest: never past an unfinished close]"""
    bench = GroupBench(sticky=sticky)
    first = bench.client(5)
    bench.send("a", "a", "a-", "a", "a")
    bench.run()
    second = bench.client(5)
    bench.run()
    assert (first.numbers, second.numbers) == ([1, 2, 3], [])
    first.ack(3)
    first.ack(1)
    bench.run()
    assert (first.numbers, second.numbers) == ([1, 2, 3], []), "2 is still out"
    first.ack(2)
    bench.run()
    assert sorted([first.numbers, second.numbers], key=len) in ([[4, 5], [1, 2, 3]], [[], [1, 2, 3, 4, 5]])


def test_a_free_group_goes_to_the_highest_priority_and_an_owned_one_to_its_owner() -> None:
    bench = GroupBench()
    low = bench.client(10)
    bench.send("a")
    bench.run()
    high = bench.client(10, priority=5)
    bench.send("a", "b", "a", "b")
    bench.run()
    assert (low.numbers, high.numbers) == ([1, 2, 4], [3, 5])


def test_a_filter_owns_the_group_and_what_it_does_not_see_waits() -> None:
    bench = GroupBench()
    even = bench.client(10, entry_filter=Multiples(2))
    bench.send("a", "a", "a", "a")
    bench.run()
    everything = bench.client(10)
    bench.run()
    assert (even.numbers, everything.numbers) == ([2, 4], [])
    even.vanish()
    bench.run()
    assert everything.numbers == [1, 2, 3, 4]


def test_get_takes_from_free_groups_and_owns_them_meanwhile() -> None:
    bench = GroupBench()
    client = bench.client(1)
    bench.send("a", "a", "b", "b")
    bench.run()
    getter = bench.getter()
    entry = get_one(bench.queue, getter)
    assert entry is not None
    assert number_of(entry) == 3
    assert get_one(bench.queue, bench.getter()) is None
    client.ack()
    bench.run()
    client.ack()
    bench.run()
    assert client.numbers == [1, 2], "b is with who got it"
    bench.queue.settle(entry)
    bench.run()
    assert client.numbers == [1, 2, 4]


def test_a_consumer_whose_next_entry_comes_to_be_anothers_looks_again() -> None:
    """A low consumer waits at an entry left to a higher one; then the entry's group gets an owner."""
    bench = GroupBench()
    low = bench.client(1)
    even = bench.client(priority=5, entry_filter=NumberFilter(lambda number: number % 2 == 0))
    eight = bench.client(priority=5, entry_filter=NumberFilter(lambda number: number == 8))
    for number, group in ((4, "a"), (3, ""), (8, "a")):
        bench.names[number] = group
        bench.queue.enqueue(message(number))
    for client in (low, eight, even):
        connection = client.session.connection
        assert connection.scheduled
        bench.scheduler.prefer(connection)
        bench.scheduler.step()
        assert client is not low or client.consumer.waiting_on is not None
    bench.run()
    assert low.numbers == [3]


def test_strict_groups_have_one_message_out_each() -> None:
    bench = GroupBench(strict=True)
    client = bench.client(10)
    bench.send("a", "a", "b", "", "b", "")
    bench.run()
    assert client.numbers == [1, 3, 4, 6]
    client.nack(1)
    bench.run()
    assert client.numbers == [1, 3, 4, 6, 1]
    client.ack(1)
    bench.run()
    assert client.numbers == [1, 3, 4, 6, 1, 2]


@both
def test_the_first_of_a_strict_group_makes_way_when_it_leaves_without_having_been_given_out(
    sticky: bool,
) -> None:
    bench = GroupBench(strict=True, sticky=sticky)
    even = bench.client(10, entry_filter=Multiples(2))
    bench.send("a", "a", "a", "a")
    bench.run()
    assert even.numbers == [], "nobody sees the first"
    drop(bench.queue, next(iter(bench.queue.entries)))
    bench.run()
    assert even.numbers == [2]
    even.ack()
    bench.run()
    drop(bench.queue, next(iter(bench.queue.entries)))
    bench.run()
    assert even.numbers == [2, 4]


def test_immediate_goes_to_the_owner() -> None:
    bench = GroupBench()
    low, high = bench.client(5), bench.client(5, priority=5)
    bench.send("a")
    bench.run()
    high.cancel()
    assert (low.numbers, high.numbers) == ([], [1])
    assert not enqueue_immediate(bench.queue, bench.next("a")), "its owner has gone, but not settled"
    high.ack()
    assert enqueue_immediate(bench.queue, bench.next("a"))
    assert low.numbers == [3]


def test_a_consumer_that_takes_an_entry_out_of_order_gets_the_rest_of_its_group() -> None:
    bench = GroupBench(PriorityEntryList(2))
    notified, idle = bench.client(), bench.client()
    bench.send("a")
    assert enqueue_immediate(bench.queue, bench.next("a", priority=1))
    bench.run()
    assert (notified.numbers, idle.numbers) == ([], [2, 1])


def test_an_arrival_of_higher_priority_is_found_by_the_owner() -> None:
    bench = GroupBench(PriorityEntryList(3))
    first, second = bench.client(1), bench.client(1)
    bench.send("a", "a", "a")
    bench.run()
    bench.send("a", priority=1)
    bench.send("a", priority=2)
    bench.run()
    for _ in range(4):
        first.ack()
        bench.run()
    assert (first.numbers, second.numbers) == ([1, 5, 4, 2, 3], [])


def promise(bench: GroupBench, client: Client, *numbers: int) -> None:
    """A transaction of the client settles these, which it has."""
    for entry in client.held:
        if number_of(entry) in numbers:
            bench.groups.note_promise(entry, client.consumer)


@both
def test_a_single_transaction_takes_several_of_a_strict_group_in_order(sticky: bool) -> None:
    bench = GroupBench(strict=True, sticky=sticky)
    first, second = bench.client(10), bench.client(10)
    bench.send("a", "a", "b", "a", "b", "a")
    bench.run()
    assert sorted([first.numbers, second.numbers]) == [[1], [3]]
    holder, other = (first, second) if first.numbers == [1] else (second, first)
    promise(bench, holder, 1)
    bench.run()
    assert (holder.numbers, other.numbers) == ([1, 2], [3])
    bench.run()
    assert holder.numbers == [1, 2], "the second is out"
    promise(bench, holder, 2)
    bench.run()
    promise(bench, holder, 4)
    bench.run()
    assert (holder.numbers, other.numbers) == ([1, 2, 4, 6], [3])
    holder.ack(1, 2, 4)
    bench.send("a")
    bench.run()
    assert holder.numbers == [1, 2, 4, 6], "6 is in no transaction"
    promise(bench, holder, 6)
    bench.run()
    assert holder.numbers == [1, 2, 4, 6, 7]


@both
def test_arrivals_go_to_the_owner_while_all_of_a_strict_group_is_to_leave(sticky: bool) -> None:
    bench = GroupBench(strict=True, sticky=sticky)
    first, second = bench.client(10), bench.client(10)
    bench.send("a")
    bench.run()
    holder, other = (first, second) if first.held else (second, first)
    promise(bench, holder, 1)
    bench.send("a")
    bench.run()
    assert (holder.numbers, other.numbers) == ([1, 2], [])


@pytest.mark.parametrize("lost", [True, False])
def test_a_rollback_or_loss_keeps_the_order_of_a_strict_group(lost: bool) -> None:
    bench = GroupBench(strict=True, sticky=False)
    first, second = bench.client(10), bench.client(10)
    bench.send("a", "a", "a", "a")
    bench.run()
    holder, other = (first, second) if first.held else (second, first)
    promise(bench, holder, 1)
    bench.run()
    promise(bench, holder, 2)
    bench.run()
    bench.groups.note_withdrawal(holder.held[:2])
    bench.run()
    assert (holder.numbers, other.numbers) == ([1, 2, 3], [])
    if lost:
        holder.vanish()
    else:
        holder.nack()
        holder.cancel()
    for number in (1, 2, 3, 4):
        bench.run()
        assert other.numbers[-1] == number
        other.ack()
    assert other.numbers == [1, 2, 3, 4]


def test_returned_entries_wait_for_the_end_of_a_transaction_with_later_entries() -> None:
    bench = GroupBench(strict=True, sticky=False)
    client = bench.client(10)
    bench.send("a", "a", "a")
    bench.run()
    promise(bench, client, 1)
    bench.run()
    promise(bench, client, 2)
    bench.run()
    assert client.numbers == [1, 2, 3]
    client.nack(1, 3)
    bench.run()
    assert client.numbers == [1, 2, 3], "2 may be rolled back"
    client.nack(2)
    bench.run()
    assert client.numbers == [1, 2, 3, 1]


def test_requests_of_one_session_take_several_of_a_strict_group_in_one_transaction() -> None:
    bench = GroupBench(strict=True)
    bench.send("a", "b", "a", "a", "b")
    mine = PullingTarget(Session(Connection(bench.scheduler)), Credit())
    taken: list[int] = []

    def take(target: ConsumerTarget) -> tuple[QueueEntry, QueueConsumer] | None:
        consumer = QueueConsumer(target, bench.queue)
        entry = get_one(bench.queue, consumer)
        if entry is None:
            return None
        taken.append(number_of(entry))
        return entry, consumer

    out: list[QueueEntry] = []
    for _ in range(2):  # 1 and 2, the first of each group
        found = take(mine)
        assert found is not None
        out.append(found[0])
        bench.groups.note_promise(*found)
    assert take(PullingTarget(Session(Connection(bench.scheduler)), Credit())) is None
    found = take(mine)
    assert found is not None
    assert taken == [1, 2, 3]
    found_too = take(mine)
    assert found_too is not None
    assert taken == [1, 2, 3, 5], "3 is in no transaction, so 4 waits"
    bench.groups.note_promise(*found)
    assert take(mine) is not None
    assert taken == [1, 2, 3, 5, 4]
    for entry in list(bench.queue.entries):
        bench.queue.settle(entry)
    assert not bench.groups._gets
    assert not bench.groups.by_key


def owners(bench: GroupBench, *clients: Client) -> dict[str, set[Client]]:
    """Return the clients that have had messages of each group."""
    found: dict[str, set[Client]] = {}
    for client in clients:
        for number in client.numbers:
            found.setdefault(bench.names[number].rstrip("-"), set()).add(client)
    return found


@both
def test_a_group_goes_to_a_single_consumer_and_in_order_to_the_next_when_that_is_lost(sticky: bool) -> None:
    """[ActiveMQ MessageGroupTest: testGroupedMessagesDeliveredToOnlyOneConsumer, testClosingMessageGroup]"""
    bench = GroupBench(sticky=sticky)
    first, second = bench.client(3), bench.client(10)
    bench.send(*["a"] * 6)
    bench.run()
    assert (first.numbers, second.numbers) == ([1, 2, 3], [])
    first.ack(1)
    bench.run()
    first.vanish()
    bench.run()
    assert second.numbers == [2, 3, 4, 5, 6]
    assert second.flags == [True, True, True, False, False]


def test_all_messages_of_a_group_up_to_its_close_go_to_one_consumer() -> None:
    """[ActiveMQ MessageGroupCloseTest: every key is closed twice]"""
    bench = GroupBench()
    clients = [bench.client(1) for _ in range(3)]
    bench.send("a", "b", "a", "b", "a-", "b-", "a", "b", "a", "b", "a-", "b-")
    for _ in range(12):
        bench.run()
        for client in clients:
            client.ack()
    bench.run()
    for run in ([1, 3, 5], [2, 4, 6], [7, 9, 11], [8, 10, 12]):
        had = [[number for number in client.numbers if number in run] for client in clients]
        assert sorted(had) == [[], [], run]
    assert not bench.groups.by_key, "closed, and nothing is left of them"


def test_closing_a_group_keeps_the_owners_of_other_groups() -> None:
    """[ActiveMQ: in its map of buckets it does]"""
    bench = GroupBench()
    first, second = bench.client(), bench.client()
    bench.send("a", "b", "a-")
    bench.run()
    owner = {key: next(iter(had)) for key, had in owners(bench, first, second).items()}
    first.ack()
    second.ack()
    bench.send("a", "b", "b")
    bench.run()
    assert owners(bench, first, second)["b"] == {owner["b"]}


@both
def test_entries_that_the_owner_rolls_back_come_first_and_in_order(sticky: bool) -> None:
    """[Artemis testGroupingRollbackOnClose]"""
    bench = GroupBench(sticky=sticky)
    first, second = bench.client(3), bench.client(3)
    bench.send(*["a"] * 4)
    bench.run()
    first.nack()
    bench.run()
    again = first.numbers[3:] or second.numbers
    assert again == [1, 2, 3]
    if sticky:
        assert second.numbers == [], "it is still its owner"
    holder = first if first.held else second
    holder.vanish()
    bench.run()
    other = second if holder is first else first
    assert other.numbers[-3:] == [1, 2, 3]
    assert other.flags[-3:] == [True] * 3


@both
def test_an_owner_that_is_full_holds_up_nobody_else(sticky: bool) -> None:
    """[Artemis testGroupMessageWithManyConsumers; there a full owner stops the queue]"""
    bench = GroupBench(sticky=sticky)
    full = bench.client(1)
    bench.send("a", "a", "a")
    bench.run()
    other = bench.client()
    bench.send("b", "", "a", "c")
    bench.run()
    assert (full.numbers, other.numbers) == ([1], [4, 5, 7])


def test_consumers_that_come_back_share_the_groups() -> None:
    """[ActiveMQ MessageGroupReconnectDistributionTest]"""
    bench = GroupBench()
    keys = [f"group {number}" for number in range(30)]
    before = [bench.client(1) for _ in range(3)]
    bench.send(*keys, *keys)
    bench.run()
    for client in before:
        client.vanish()
    clients = [bench.client(1) for _ in range(3)]
    while bench.queue.depth:
        bench.run()
        for client in clients:
            client.ack()
    had = owners(bench, *clients)
    assert set(had) == set(keys)
    assert all(len(them) == 1 for them in had.values())
    assert sorted(Counter(client for them in had.values() for client in them).values()) == [10, 10, 10]


def test_groups_wait_for_all_consumers_and_are_shared_then() -> None:
    """[ActiveMQ MessageGroupDelayedTest: consumersBeforeDispatchStarts]"""
    bench = GroupBench()
    bench.queue.arguments["x-consumers-before-dispatch"] = 3
    gate.apply(bench.queue, new_vhost(clock=HandClock()))
    bench.send("a", "b", "c", "a", "b", "c")
    clients = [bench.client(2)]
    bench.run()
    clients.append(bench.client(2))
    bench.run()
    assert not any(client.numbers for client in clients)
    clients.append(bench.client(2))
    bench.run()
    assert sorted(client.numbers for client in clients) == [[1, 4], [2, 5], [3, 6]]


def test_a_late_consumer_gets_groups_without_deliveries() -> None:
    """[ActiveMQ MessageGroupLateArrivalsTest, MessageGroupTest.testAddingConsumer]"""
    bench = GroupBench()
    early = bench.client(1)
    bench.send("a", "b", "b", "a")
    bench.run()
    late = bench.client(1)
    bench.run()
    assert (early.numbers, late.numbers) == ([1], [2])
    for _ in range(2):
        early.ack()
        late.ack()
        bench.run()
    assert (early.numbers, late.numbers) == ([1, 4], [2, 3])


def test_a_suspended_consumer_continues_when_an_operator_marks_the_closing_entry() -> None:
    bench = GroupBench()
    client = bench.client(prefetch_bytes=10)
    bench.send("a")
    large = bench.next("a")
    large.size = 100
    bench.queue.enqueue(large)
    bench.send("a-", "")
    bench.run()
    assert client.numbers == [1]
    closing = list(bench.queue.entries)[2]
    mark(bench.queue, closing, bench.getter())
    bench.run()
    assert client.numbers == [1, 4]


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
    bench.queue.limits = Limits(bench.queue, vhost)
    bench.queue.limits.apply({"x-max-length": 3})
    owner, other = bench.client(1), bench.client(1)
    bench.send("a", "a", "a", "a")
    bench.run()
    assert (owner.numbers, other.numbers) == ([1], [])
    bench.send("a", "a")
    bench.run()
    assert bench.numbers() == [1, 4, 5, 6]
    bench.queue.limits.apply({"x-max-length": 2})  # a policy has changed: what is parked is known to it too
    bench.send("a")
    assert bench.numbers() == [1, 6, 7]
    for _ in range(2):
        owner.ack()
        bench.run()
    assert owner.numbers == [1, 6, 7]


def test_the_oldest_ready_entry_is_found_behind_many_acquired_entries() -> None:
    bench, counting = counted()
    bench.queue.limits = Limits(bench.queue, new_vhost(clock=HandClock()))
    bench.queue.limits.apply({"x-max-length": 3000})
    first = bench.client(entry_filter=NumberFilter(lambda number: number <= 2000))
    bench.send(*["a"] * 5000)
    bench.run()
    assert len(first.numbers) == 2000
    bench.queue.limits.apply({"x-max-length": 2})
    bench.send(*["b"] * 4)
    assert bench.queue.ready == 2
    counting.steps = 0
    bench.send(*["b"] * 100)
    assert counting.steps <= 500
    first.nack()
    assert bench.numbers() == [5103, 5104], "what comes back is the oldest again"


def test_a_consumer_with_its_own_selector_leaves_little_behind() -> None:
    bench, _ = counted()
    owner = bench.client(1)
    bench.send("a", "a", "a")
    bench.run()
    for _ in range(200):
        bench.client(entry_filter=NumberFilter(lambda number: number > 1)).vanish()
        bench.client(entry_filter=NumberFilter(lambda number: number > 1)).cancel()
    group = bench.groups.by_key["a"]
    assert group.owner is owner.consumer
    assert len(group.parked) <= 3


def test_rebalancing_moves_groups_without_outstanding_deliveries() -> None:
    """[Artemis testGroupRebalancePauseDispatch]"""
    bench = GroupBench(rebalances=True)
    first = bench.client(2)
    bench.send("a", "b", "a", "b")
    bench.run()
    second = bench.client(1)
    bench.run()
    assert (first.numbers, second.numbers) == ([1, 2], []), "they wait for what is out"
    first.ack(1)
    bench.run()
    assert second.numbers + first.numbers[2:] == [3]
    first.ack(2)
    bench.run()
    assert sorted(second.numbers + first.numbers) == [1, 2, 3, 4]


def test_acquired_entries_stay_after_groups_have_moved() -> None:
    bench = GroupBench(rebalances=True)
    first = bench.client()
    bench.send("a")
    bench.run()
    first.ack()
    bench.client().cancel()
    assert not bench.groups.by_key
    bench.send("b")
    bench.run()
    first.ack()
    assert bench.groups.by_key["b"].owner is first.consumer


def test_groups_that_are_idle_for_longest_are_forgotten() -> None:
    bench = GroupBench(idle_max=2)
    first = bench.client()
    bench.send("a", "b", "a", "c")
    bench.run()
    assert list(bench.groups.by_key) == ["a", "b", "c"]
    for number in (2, 1, 3, 4):
        first.ack(number)
    assert list(bench.groups.by_key) == ["a", "c"]
    holding = holding_of(first.consumer)
    assert holding is not None
    assert len(holding.groups) == 2
    bench.send("a", "d")
    bench.run()
    first.ack()
    assert set(bench.groups.by_key) == {"a", "d"}


@pytest.mark.parametrize("limit", [0, 1024])
def test_nothing_is_left_of_groups_that_are_gone(limit: int) -> None:
    bench = GroupBench(idle_max=limit)
    first, second = bench.client(), bench.client()
    bench.send(*[f"group {number}" for number in range(3000)])
    bench.run()
    first.ack()
    second.ack()
    assert len(bench.groups.by_key) == limit
    first.vanish()
    second.vanish()
    assert not bench.groups.by_key
