"""What selectors cost: each entry is asked about once for all consumers with one, and so many in a turn."""

from broker.core.entries.cursor import FILTER_COST, LOAD_COST, SCAN_BUDGET
from broker.core.entries.entry import EntryFilter, QueueEntry
from broker.core.message import Address, Message
from broker.core.queues.attach import attach, detach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import TOLD_MAX
from broker.core.queues.returns import release_entries
from tests.dispatch import Bench, Client


class Nth(EntryFilter):
    """Lets pass every `n`th entry, `n` of 0 none, and counts how often it was asked."""

    def __init__(self, n: int, key: str = "") -> None:
        super().__init__(key or f"every {n}")
        self.n = n
        self.asked = 0

    def passes(self, entry: QueueEntry) -> bool:
        self.asked += 1
        return self.n > 0 and entry.order % self.n == 0


def consumer(bench: Bench, sieve: EntryFilter, prefetch: int = 0) -> Client:
    """A client with a filter."""
    client = bench.client(prefetch)
    detach(bench.queue, client.consumer, [])
    client.consumer = QueueConsumer(client, bench.queue, entry_filter=sieve)
    attach(bench.queue, client.consumer)
    return client


def test_consumers_with_one_filter_ask_once() -> None:
    bench = Bench()
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
    bench = Bench()
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


def test_what_is_found_counts_too() -> None:
    bench = Bench()
    bench.publish(5 * SCAN_BUDGET // FILTER_COST)
    sieve = Nth(50)
    client = consumer(bench, sieve)
    bench.scheduler.step(1024)
    assert 2 <= len(client.numbers) <= SCAN_BUDGET // FILTER_COST // 50 + 1


def test_what_is_on_disk_costs_more() -> None:
    bench = Bench()
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
    bench = Bench()
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
    bench = Bench()
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
