"""A consumer that owns very many groups: they become free bit by bit, and to consumers all at once."""

from collections.abc import Callable
from typing import Any

import pytest

from broker.core.queues.attach import detach, get_one
from broker.core.queues.group import holding_of
from broker.core.queues.purge import dispose
from broker.core.queues.returns import release_entries
from broker.core.queues.stops import DEQUEUE, set_stopped
from tests.support.core.group_bench import GroupBench
from tests.support.core.queue_bench import Client, number_of

MOST = 100
MANY = 2 * MOST + 1


def turn(bench: GroupBench) -> None:
    """Run the schedule once."""
    bench.clock.wakes.clear()
    bench.clock.schedule.run()


def owned(bench: GroupBench) -> int:
    return sum(group.owner is not None for group in bench.groups.by_key.values())


def lose(client: Client) -> None:
    """Close the client faster than `Client.vanish` does with many deliveries."""
    entries, client.held = client.held, []
    client.close()
    detach(client.queue, client.consumer, entries)


def settle(client: Client) -> None:
    """Acknowledge faster than `Client.ack` does with many deliveries."""
    entries, client.held = client.held, []
    for entry in entries:
        client.queue.settle(entry)
        client.restore_credit(entry.message.size)


def owning(count: int, most: int = MOST, **options: Any) -> tuple[GroupBench, Client]:
    """Return a consumer that owns `count` groups by a delivery of each; each group has a further entry."""
    bench = GroupBench(**options)
    bench.groups.most = most
    client = bench.client(count)
    bench.send(*[str(number) for number in range(count)] * 2)
    bench.run()
    assert client.numbers == list(range(1, count + 1))
    return bench, client


def lose_what_is_out(bench: GroupBench, client: Client) -> None:
    lose(client)


def lose_what_is_parked(bench: GroupBench, client: Client) -> None:
    client.close()
    settle(client)
    lose(client)


@pytest.mark.parametrize("ending", [lose_what_is_out, lose_what_is_parked])
@pytest.mark.parametrize("strict", [True, False])
def test_groups_of_a_lost_owner_are_freed_in_slices(ending: Callable[..., None], strict: bool) -> None:
    bench, client = owning(MANY, strict=strict)
    other = bench.client()
    bench.run()
    ready = int(bench.queue.ready)
    ending(bench, client)
    left = [owned(bench)]
    assert (bench.queue.ready, bench.queue.unacked) == (len(bench.numbers()), 0)
    while bench.groups.pauses:
        bench.run()
        assert other.numbers == []
        turn(bench)
        left.append(owned(bench))
    assert left[:4] == [MANY, MANY - MOST, MANY - 2 * MOST, 0]
    assert ready == MANY
    expected = bench.numbers()
    bench.run()
    while other.held:
        settle(other)
        bench.run()
    assert other.numbers == expected, "in the order of the queue, whatever was freed first"
    assert (bench.queue.depth, bench.clock.schedule.now()) == (0, bench.clock.now)


def test_returned_entries_of_groups_without_an_owner() -> None:
    bench, client = owning(MANY, sticky=False)
    entries, client.held = client.held, []
    release_entries(bench.queue, entries, client.consumer)
    client.credit.resize(0, 0)
    assert (bench.queue.unacked, owned(bench)) == (0, MANY)
    bench.run()
    assert len(client.numbers) == MANY, "nor does it get any, until all are free"
    bench.clock.advance(0)
    assert owned(bench) == 0
    other = bench.client()
    bench.run()
    assert sorted({*client.numbers[MANY:], *other.numbers}) == bench.numbers()


def test_groups_that_move_to_a_new_consumer() -> None:
    bench, client = owning(MANY, rebalances=True)
    settle(client)
    client.credit.resize(1, 0)
    bench.run()
    assert client.numbers[MANY:] == [MANY + 1]
    other = bench.client()
    late = bench.client(priority=5)
    left = [owned(bench)]
    while bench.groups.pauses:
        bench.run()
        turn(bench)
        left.append(owned(bench))
    assert (left[0], left[1], left[-1]) == (MANY, MANY - MOST, 1)
    bench.run()
    assert late.numbers == list(range(MANY + 2, 2 * MANY + 1)), "priorities hold as ever"
    assert (other.numbers, client.numbers[MANY + 1 :]) == ([], [])


def test_a_new_consumer_rebalances_many_groups_in_later_turns() -> None:
    bench, client = owning(MANY, rebalances=True)
    other = bench.client()  # for it they are free in turns to come, and it passes none by until then
    holding = holding_of(client.consumer)
    assert holding is not None
    assert not any(group.shut for group in bench.groups.by_key.values())
    assert len(holding.groups) == MANY
    left = []
    while bench.groups.pauses:
        bench.run()
        turn(bench)
        left.append(sum(not group.shut for group in bench.groups.by_key.values()))
    assert left == [MANY - MOST, MANY - 2 * MOST, 0]
    assert not holding.groups
    settle(client)
    bench.run()
    assert sorted([*client.numbers, *other.numbers]) == list(range(1, 2 * MANY + 1))


def test_parked_entries_of_moved_groups_are_forgotten_in_slices() -> None:
    bench, client = owning(MANY)
    other = bench.client()
    bench.run()
    holding = holding_of(client.consumer)
    assert holding is not None
    before = len(holding.heads)
    assert before >= MANY
    other.close()
    lose(other)
    chosen = bench.client(candidate=True)
    for _ in range(MANY // MOST + 1):
        turn(bench)
        assert before - len(holding.heads) <= 3 * MOST
        before = len(holding.heads)
    assert (before, bench.groups.pauses) == (0, False)
    client.nack()
    bench.clock.advance(0)
    bench.run()
    assert chosen.numbers == list(range(1, 2 * MANY + 1))


def test_a_group_settled_before_its_slice_is_free_at_once_and_forgotten() -> None:
    bench = GroupBench(idle_max=1)
    bench.groups.most = 2
    client = bench.client()
    bench.send("0", "1", "2", "3", "4", "5")
    bench.run()
    bench.client(candidate=True)
    assert bench.groups.pauses
    for number in (1, 2):
        client.ack(number)
    assert list(bench.groups.by_key) == ["2", "3", "4", "5"]
    assert not bench.groups.idle


def test_a_consumer_may_attach_during_rebalancing_and_groups_keep_their_owners() -> None:
    bench, client = owning(6, most=2, rebalances=True)
    settle(client)
    client.credit.resize(1, 0)
    bench.run()
    assert client.numbers[6:] == [7]
    other = bench.client(1)
    assert bench.groups.pauses
    turn(bench)
    bench.client(1).cancel()
    bench.clock.advance(0)
    assert (owned(bench), bench.groups.pauses) == (1, False)
    bench.run()
    assert other.numbers == [8]
    client.ack()
    other.ack()
    bench.run()
    assert sorted([*client.numbers[7:], *other.numbers[1:]]) == [9, 10]
    client.ack()
    other.ack()
    owners = {key: group.owner for key, group in bench.groups.by_key.items() if group.owner is not None}
    assert owners.pop("1") is other.consumer, "which stays, although nothing of it is left"
    assert sorted(owners) == ["2", "3"]
    assert set(owners.values()) == {client.consumer, other.consumer}


def test_a_get_that_takes_several_gets_no_more_of_groups_that_move() -> None:
    bench = GroupBench(rebalances=True)
    bench.send("a", "b", "a", "c")
    getter = bench.getter()
    first = get_one(bench.queue, getter)
    assert first is not None
    bench.client()
    second, third = get_one(bench.queue, getter), get_one(bench.queue, getter)
    assert [number_of(entry) for entry in (first, second, third) if entry] == [1, 2, 4]
    assert get_one(bench.queue, getter) is None
    bench.queue.settle(first)
    entry = get_one(bench.queue, getter)
    assert entry is not None
    assert number_of(entry) == 3, "it is free, and for whoever comes first"


def test_few_are_free_at_once() -> None:
    bench, client = owning(5, most=5)
    other = bench.client()
    lose(client)
    assert (owned(bench), bench.groups.pauses) == (0, False)
    bench.run()
    assert other.numbers == list(range(1, 11))


def test_basic_get_takes_from_freed_groups_and_owns_its_group() -> None:
    bench, client = owning(6, most=2)
    other = bench.client()
    lose(client)
    getter = bench.getter()
    assert get_one(bench.queue, getter) is None
    turn(bench)
    entry = get_one(bench.queue, getter)
    assert entry is not None
    assert number_of(entry) == 5, "what its owner took last is free first"
    bench.clock.advance(0)
    bench.run()
    assert other.numbers == [1, 2, 3, 4, 6, 7, 8, 9, 10, 12], "11 is in the group of 5"
    release_entries(bench.queue, [entry], getter)
    bench.run()
    assert other.numbers[-2:] == [5, 11]


def test_settlements_and_arrivals_while_groups_move() -> None:
    bench, client = owning(6, most=2)
    client.cancel()
    other = bench.client()
    held = client.held
    release_entries(bench.queue, held[:4], client.consumer)
    assert bench.groups.pauses
    for entry in held[4:]:
        bench.queue.settle(entry)
    bench.send("0", "new")
    bench.run()
    assert (other.numbers, owned(bench)) == ([], 4)
    bench.clock.advance(0)
    bench.run()
    assert other.numbers == [1, 2, 3, 4, *range(7, 15)]
    assert owned(bench) == 7


def test_a_queue_stopped_while_groups_are_freed_delivers_after_its_start() -> None:
    bench, client = owning(6, most=2)
    other = bench.client()
    lose(client)
    set_stopped(bench.queue, [DEQUEUE])
    bench.clock.advance(0)
    bench.run()
    assert (other.numbers, owned(bench)) == ([], 0)
    set_stopped(bench.queue, [])
    bench.run()
    assert other.numbers == list(range(1, 13))


def test_a_queue_may_be_deleted_while_groups_are_freed() -> None:
    bench, client = owning(6, most=2)
    other = bench.client()
    lose(client)
    dispose(bench.queue, bench.clock.schedule)
    bench.clock.advance(1)
    bench.run()
    assert (other.numbers, len(other.cancelled), bench.groups.pauses) == ([], 1, False)
    assert bench.numbers() == []


def test_a_single_consumer_gets_all_in_order_after_the_earlier_one_has_left() -> None:
    bench, client = owning(6, most=2)
    bench.send("5", "6")
    chosen = bench.client(candidate=True)
    assert bench.groups.pauses
    bench.run()
    assert chosen.numbers == []
    lose(client)
    bench.clock.advance(0)
    bench.run()
    assert chosen.numbers == list(range(1, 15))
