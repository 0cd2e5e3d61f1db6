"""Filters of consumers: costs, shared results, and a filter that changes."""

import pytest

from broker.core.entries.cursor import FILTER_COST, LOAD_COST, SCAN_BUDGET
from broker.core.entries.entry import EntryFilter, QueueEntry
from broker.core.errors import PreconditionFailed
from broker.core.message import Address, Message
from broker.core.queues.attach import attach, change_filter, detach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.election import Election
from broker.core.queues.queue import FILTERS_MAX, TOLD_MAX
from broker.core.queues.returns import release_entries
from tests.support.core.group_bench import GroupBench, NumberFilter
from tests.support.core.queue_bench import Client, QueueBench


class Nth(EntryFilter):
    """A filter for every `n`th entry, for no entry if `n` is 0, which counts its calls."""

    def __init__(self, n: int, key: str = "") -> None:
        super().__init__(key or f"every {n}")
        self.n = n
        self.asked = 0

    def passes(self, entry: QueueEntry) -> bool:
        self.asked += 1
        return self.n > 0 and entry.order % self.n == 0


def consumer(bench: QueueBench, sieve: EntryFilter, prefetch: int = 0) -> Client:
    """A client with a filter."""
    client = bench.client(prefetch)
    detach(bench.queue, client.consumer, [])
    client.consumer = QueueConsumer(client, bench.queue, entry_filter=sieve)
    attach(bench.queue, client.consumer)
    return client


def test_consumers_with_one_filter_ask_once() -> None:
    bench = QueueBench()
    bench.publish(3000)
    sieves = [Nth(100) for _ in range(3)]
    clients = [consumer(bench, sieve, prefetch=1) for sieve in sieves]
    for _ in range(12):
        bench.run()
        for client in clients:
            client.ack()
    assert sorted(n for client in clients for n in client.numbers) == list(range(100, 3001, 100))
    assert sum(sieve.asked for sieve in sieves) <= 3000 + 2 * 30


def test_a_turn_ends_when_looking_has_cost_enough() -> None:
    bench = QueueBench()
    bench.publish(5 * SCAN_BUDGET // FILTER_COST)
    sieve = Nth(0)
    client = consumer(bench, sieve)
    most = SCAN_BUDGET // FILTER_COST + 1
    turns = 0
    while True:
        before = sieve.asked
        if not bench.scheduler.step(1024):
            break
        turns += 1
        assert sieve.asked - before <= most
    assert (client.numbers, turns) == ([], 5)


def test_matching_entries_count_in_the_budget() -> None:
    bench = QueueBench()
    bench.publish(5 * SCAN_BUDGET // FILTER_COST)
    sieve = Nth(50)
    client = consumer(bench, sieve)
    bench.scheduler.step(1024)
    assert 2 <= len(client.numbers) <= SCAN_BUDGET // FILTER_COST // 50 + 1


def test_entries_on_disk_cost_more() -> None:
    bench = QueueBench()
    for _ in range(200):
        message = Message(Address("", "q"), None, 1, True, 0)
        message.length = 128 * LOAD_COST
        bench.queue.enqueue(message)
    sieve = Nth(0)
    consumer(bench, sieve)
    asked = sieve.asked
    bench.scheduler.step(1024)
    assert sieve.asked - asked <= SCAN_BUDGET // (2 * LOAD_COST) + 1


def test_many_filters_do_not_look_all_at_once() -> None:
    bench = QueueBench()
    sieves = [Nth(0, str(number)) for number in range(60)]
    for sieve in sieves:
        consumer(bench, sieve)
    plain = bench.client(1, priority=1)
    bench.publish(SCAN_BUDGET)
    for sieve in sieves:
        sieve.asked = 0
    bench.scheduler.step(1)  # the plain one has its message, and somebody else is to take over
    assert (plain.numbers, len(plain.held)) == ([1], 1)
    assert 0 < sum(sieve.asked for sieve in sieves) <= 2 * SCAN_BUDGET // FILTER_COST
    bench.run()
    assert all(sieve.asked >= SCAN_BUDGET - 1 for sieve in sieves), "they have looked at everything after all"


def test_filters_are_not_asked_at_once_about_all_that_comes_back() -> None:
    bench = QueueBench()
    count = 4000
    bench.publish(count)
    holder = bench.client(count)
    bench.run(count)
    none, few = Nth(0), Nth(1000)
    hopeless, late = consumer(bench, none), consumer(bench, few, prefetch=1)
    bench.run()
    asked = none.asked, few.asked
    release_entries(bench.queue, holder.held, holder.consumer)
    at_once = TOLD_MAX + SCAN_BUDGET // FILTER_COST
    assert none.asked - asked[0] <= at_once
    assert few.asked - asked[1] <= at_once
    bench.run()
    for _ in range(4):
        late.ack()
        bench.run()
    assert (late.numbers, hopeless.numbers) == ([1000, 2000, 3000, 4000], [])


def test_a_changed_filter_gets_only_matching_entries_and_others_get_the_rest() -> None:
    bench = QueueBench()
    first = bench.client(1)
    bench.publish(4)
    bench.run()
    change_filter(bench.queue, first.consumer, NumberFilter(lambda number: number % 2 == 0))
    first.nack()
    bench.run()
    assert first.numbers == [1, 2]
    second = bench.client()
    bench.run()
    assert second.numbers == [1, 3, 4]
    assert list(bench.queue.manager.all) == [first.consumer, second.consumer]


def test_a_consumer_suspended_by_its_byte_window_looks_again() -> None:
    bench = QueueBench()
    client = bench.client(0, prefetch_bytes=10)
    bench.publish(1, size=6)
    bench.publish(1, size=6)
    bench.publish(1, size=4)
    bench.run()
    assert client.numbers == [1]
    change_filter(bench.queue, client.consumer, NumberFilter(lambda number: number != 2))
    bench.run()
    assert client.numbers == [1, 3]
    assert not bench.queue.waiting
    assert not bench.queue.waiters


@pytest.mark.parametrize("others", [0, 1])
def test_changing_the_filter_keeps_the_active_consumer(others: int) -> None:
    bench = QueueBench()
    bench.queue.election = Election(bench.queue)
    first = bench.client()
    for _ in range(others):
        bench.client()
    bench.publish(2)
    bench.run()
    earlier = list(first.activities)
    change_filter(bench.queue, first.consumer, NumberFilter(lambda number: number != 1))
    first.nack(1)
    bench.publish(1)
    bench.run()
    assert first.numbers == [1, 2, 3]
    assert first.activities == earlier
    assert bench.queue.election.active is first.consumer


def test_a_filter_beyond_the_limit_is_refused() -> None:
    bench = QueueBench()
    clients = [bench.client(1) for _ in range(FILTERS_MAX + 1)]
    filters = [NumberFilter(lambda number: number != 1) for _ in clients]
    for client, entry_filter in zip(clients[:-1], filters, strict=False):
        change_filter(bench.queue, client.consumer, entry_filter)
    with pytest.raises(PreconditionFailed, match="different selectors"):
        change_filter(bench.queue, clients[-1].consumer, filters[-1])
    change_filter(bench.queue, clients[0].consumer, filters[-1])  # the client's own filter makes room
    assert len(bench.queue.filtered) == FILTERS_MAX
    bench.publish(1)
    bench.run()
    assert clients[-1].numbers == [1]


def test_groups_stay_with_their_owner_except_the_revoked_one() -> None:
    bench = GroupBench()
    first = bench.client()
    bench.send("away", "b", "b", "c")
    bench.run()
    first.ack(2, 3)
    second = bench.client()
    entries = [entry for entry in first.held if entry.message.content == b"1"]
    change_filter(bench.queue, first.consumer, NumberFilter(lambda number: number != 1))
    bench.groups.note_exclusion(first.consumer, entries)
    first.nack(1)
    bench.send("b", "c", "b", "c")
    bench.run()
    assert (first.numbers, second.numbers) == ([1, 2, 3, 4, 5, 6, 7, 8], [1])
    bench.send("away")
    bench.run()
    assert second.numbers == [1, 9]
