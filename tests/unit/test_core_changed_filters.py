"""A consumer that sees other entries than before is still the same consumer, in its place."""

import pytest

from broker.core.errors import PreconditionFailed
from broker.core.queues.attach import change_filter
from broker.core.queues.election import Election
from broker.core.queues.queue import FILTERS_MAX
from tests.dispatch import Bench
from tests.grouping import GroupBench, Numbers


def test_it_gets_only_what_the_filter_passes_and_others_get_the_rest() -> None:
    bench = Bench()
    first = bench.client(1)
    bench.publish(4)
    bench.run()
    change_filter(bench.queue, first.consumer, Numbers(lambda number: number % 2 == 0))
    first.nack()
    bench.run()
    assert first.numbers == [1, 2]
    second = bench.client()
    bench.run()
    assert second.numbers == [1, 3, 4]
    assert list(bench.queue.manager.all) == [first.consumer, second.consumer]


def test_one_that_waits_for_its_byte_window_looks_again() -> None:
    bench = Bench()
    client = bench.client(0, prefetch_bytes=10)
    bench.publish(1, size=6)
    bench.publish(1, size=6)
    bench.publish(1, size=4)
    bench.run()
    assert client.numbers == [1]
    change_filter(bench.queue, client.consumer, Numbers(lambda number: number != 2))
    bench.run()
    assert client.numbers == [1, 3]
    assert not bench.queue.waiting
    assert not bench.queue.waiters


@pytest.mark.parametrize("others", [0, 1])
def test_the_active_one_stays_so_whatever_it_holds(others: int) -> None:
    bench = Bench()
    bench.queue.election = Election(bench.queue)
    first = bench.client()
    for _ in range(others):
        bench.client()
    bench.publish(2)
    bench.run()
    told = list(first.activities)
    change_filter(bench.queue, first.consumer, Numbers(lambda number: number != 1))
    first.nack(1)
    bench.publish(1)
    bench.run()
    assert first.numbers == [1, 2, 3]
    assert first.activities == told
    assert bench.queue.election.active is first.consumer


def test_one_filter_too_many_changes_nothing() -> None:
    bench = Bench()
    clients = [bench.client(1) for _ in range(FILTERS_MAX + 1)]
    filters = [Numbers(lambda number: number != 1) for _ in clients]
    for client, entry_filter in zip(clients[:-1], filters, strict=False):
        change_filter(bench.queue, client.consumer, entry_filter)
    with pytest.raises(PreconditionFailed, match="different selectors"):
        change_filter(bench.queue, clients[-1].consumer, filters[-1])
    change_filter(bench.queue, clients[0].consumer, filters[-1])  # its own makes room
    assert len(bench.queue.filtered) == FILTERS_MAX
    bench.publish(1)
    bench.run()
    assert clients[-1].numbers == [1]


def test_its_groups_stay_its_own_but_for_the_one_that_is_sent_away() -> None:
    yard = GroupBench()
    first = yard.client()
    yard.send("away", "b", "b", "c")
    yard.run()
    first.ack(2, 3)
    second = yard.client()
    entries = [entry for entry in first.held if entry.message.content == b"1"]
    change_filter(yard.queue, first.consumer, Numbers(lambda number: number != 1))
    yard.groups.note_exclusion(first.consumer, entries)
    first.nack(1)
    yard.send("b", "c", "b", "c")
    yard.run()
    assert (first.numbers, second.numbers) == ([1, 2, 3, 4, 5, 6, 7, 8], [1])
    yard.send("away")
    yard.run()
    assert second.numbers == [1, 9]
