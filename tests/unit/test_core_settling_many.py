"""Many deliveries that are settled at once: the same as one after the other, and counted together."""

import random
from collections.abc import Callable

import pytest
from pamqp.commands import Basic

from broker.core.entries.list import FifoEntryList
from broker.core.entries.priority import PriorityEntryList
from broker.core.queues.election import Election
from broker.core.queues.purge import dispose
from broker.core.queues.returns import release_entries, settle_all
from tests.bench.loop import Site
from tests.clock import HandClock
from tests.dispatch import Bench, Client
from tests.grouping import GroupBench, Numbers


def plain() -> Bench:
    return Bench(logged=True)


def ranked() -> Bench:
    return Bench(PriorityEntryList(3), logged=True)


def grouped() -> Bench:
    return GroupBench()


def elected() -> Bench:
    bench = Bench()
    bench.queue.election = Election(bench.queue)
    return bench


def one_by_one(client: Client, numbers: list[int]) -> None:
    for number in numbers:
        client.ack(number)


def at_once(client: Client, numbers: list[int]) -> None:
    chosen = [client.deliveries[client.numbers.index(number)] for number in numbers]
    assert client.consumer.acquires
    settle_all(chosen, client.consumer)
    client.held = [entry for entry in client.held if entry not in chosen]


def history(make: Callable[[], Bench], settle: Callable[[Client, list[int]], None], seed: int) -> object:
    """What is left, and what everybody has seen, after many turns."""
    chance = random.Random(seed)
    bench = make()
    clients = [bench.client(chance.choice([3, 10, 100])) for _ in range(2)]
    odd = bench.client(5, prefetch_bytes=9, entry_filter=Numbers(lambda number: number % 2 == 1))
    browser = bench.client(acquires=False)
    for _ in range(30):
        for new in range(chance.randrange(8)):
            if isinstance(bench, GroupBench):
                bench.send(str(chance.randrange(6)))
            else:
                bench.publish(priority=(bench.published + new) % 3)
        for each in bench.queue.entries:
            each.message.sequence = 1
        bench.run(chance.choice([1, 16]))
        client = chance.choice([*clients, odd])
        held = [client.numbers[client.deliveries.index(entry)] for entry in client.held]
        numbers = chance.choice([held, held[: len(held) // 2], chance.sample(held, len(held) // 2)])
        settle(client, numbers)
        if chance.random() < 0.2:
            clients[0].nack()
    bench.run()
    queue = bench.queue
    counts = (queue.ready, queue.unacked, queue.unacked_bytes, queue.acked, queue.counters.acked)
    settled = [message.content for message, _ in bench.store.settled]
    seen = [(client.numbers, client.credit.used, client.consumer.inflight) for client in bench.clients]
    return bench.numbers(), counts, settled, seen, browser.numbers


@pytest.mark.parametrize("make", [plain, ranked, grouped, elected])
@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_same_as_one_after_the_other(make: Callable[[], Bench], seed: int) -> None:
    assert history(make, at_once, seed) == history(make, one_by_one, seed)


def test_only_what_the_consumer_has_is_settled() -> None:
    bench = Bench(FifoEntryList())
    client, other = bench.client(2), bench.client(2)
    bench.publish(5)
    bench.run()
    mine, others = list(client.held), list(other.held)
    release_entries(bench.queue, [mine[0]], client.consumer)
    settle_all([*mine, *others, mine[1]], client.consumer)
    assert (bench.queue.acked, bench.queue.unacked, client.consumer.inflight) == (1, 2, 0)
    dispose(bench.queue, HandClock().schedule)
    settle_all(others, other.consumer)
    assert bench.queue.acked == 1


def test_one_frame_has_a_client_look_for_more_once() -> None:
    site = Site()
    queue = site.declare("q")
    site.fill(site.open(), "q", 300)
    client = site.consumer("q", 100)
    site.loop.run()
    woken, turns = int(queue.manager.wakeups), site.loop.turns
    for tag in range(1, 51):
        site.ask(client, Basic.Ack(tag))
    site.ask(client, Basic.Ack(100, True))
    assert queue.acked == 100
    assert queue.manager.wakeups == woken + 1
    site.loop.run()
    assert (queue.unacked, queue.ready) == (100, 100)
    assert site.loop.turns - turns < 60
