"""A purge of many messages in slices: no consumer gets an entry that is to be purged."""

from typing import Any

import pytest

from broker.core.operators.operation import mark, unmark
from broker.core.queues.attach import detach, get_one
from broker.core.queues.consumer import BLOCKED_BY_PURGE
from broker.core.queues.purge import SLICE, Purge, PurgeWaiter, purge
from broker.core.queues.queue import Queue
from broker.core.queues.returns import release_entries
from broker.core.vhosts.alteration import stop_queue
from tests.support.core.queue_bench import Client
from tests.support.core.timed_vhost import VhostBench, entry_of, numbers
from tests.support.core.topology import RecordingStore


class Waiter(PurgeWaiter):
    """A waiter that records its calls."""

    def __init__(self, *purges: Purge) -> None:
        self.purged_counts: list[int] = []
        for each in purges:
            each.set_waiter(self)

    def on_purged(self, purge: Purge) -> None:
        assert purge.over
        self.purged_counts.append(int(purge.dropped))


def turn(bench: VhostBench) -> None:
    """Run the schedule once."""
    bench.clock.wakes.clear()
    bench.clock.schedule.run()


def begun(count: int, most: int, **arguments: object) -> tuple[VhostBench, Queue, Purge]:
    """Return a queue of `count` messages and its purge of `most` entries a turn, after the first turn."""
    bench = VhostBench()
    queue = bench.queue(**arguments)  # type: ignore[arg-type]
    bench.publish(count=count)
    return bench, queue, purge(queue, bench.clock.schedule, most)


def client_of(bench: VhostBench, queue: Queue, prefetch: int = 0, **options: Any) -> Client:
    client = bench.client(queue, prefetch, **options)
    bench.run()
    return client


@pytest.mark.parametrize("kind", [{}, {"max_priority": 2}, {"message_ttl": 60_000}], ids=str)
def test_a_million_would_take_many_turns(kind: dict[str, Any]) -> None:
    store = RecordingStore()
    bench = VhostBench(store)
    queue = bench.queue(durable=True, **kind)
    bench.publish(count=int(SLICE) * 2 + 500, persistent=True)
    asked = bench.vhost.declarations.purge_queue("q")
    gone = [int(asked.dropped)]
    while not asked.over:
        turn(bench)
        gone.append(int(asked.dropped))
    assert gone == [SLICE, 2 * SLICE, 2 * SLICE + 500]
    assert len(store.settled) == gone[-1]
    assert (queue.ready, queue.ready_bytes, numbers(queue)) == (0, 0, [])
    bench.clock.advance(60_000)
    assert bench.died() == {}, "no timer of it runs any more"


def test_a_small_purge_is_done_at_once() -> None:
    bench = VhostBench()
    queue = bench.queue()
    client = client_of(bench, queue, 1)
    bench.publish(count=10)
    bench.run()
    asked = bench.vhost.declarations.purge_queue("q")
    assert (asked.over, asked.dropped, numbers(queue)) == (True, 9, [1])
    assert Waiter(asked).purged_counts == [9]
    assert client.consumer.blockers & BLOCKED_BY_PURGE == 0
    assert queue.browsers is None


@pytest.mark.parametrize("kind", [{}, {"max_priority": 3}], ids=str)
def test_later_arrivals_stay_and_are_delivered_after_the_purge(kind: dict[str, Any]) -> None:
    bench, queue, asked = begun(10, 4, **kind)
    waiter = Waiter(asked)
    bench.publish(count=2)
    bench.publish(priority=1)
    client = client_of(bench, queue)
    assert (client.numbers, waiter.purged_counts) == ([], [])
    turn(bench)
    bench.run()
    assert (client.numbers, waiter.purged_counts) == ([], [])
    bench.clock.advance(0)
    bench.run()
    assert waiter.purged_counts == [10]
    assert sorted(client.numbers) == [11, 12, 13]
    assert (queue.ready, queue.browsers, queue.manager.purges) == (0, None, [])


def test_consumers_get_no_message_before_the_end_of_the_purge() -> None:
    bench = VhostBench()
    queue = bench.queue()
    clients = [client_of(bench, queue, 2), client_of(bench, queue, 2, priority=1)]
    bench.publish(count=20)
    bench.run()
    held = [list(client.numbers) for client in clients]
    asked = purge(queue, bench.clock.schedule, 5)
    notified = [client.notified for client in clients]
    for client in clients:
        client.ack()
        bench.run()
    assert [client.numbers for client in clients] == held
    assert [client.notified for client in clients] == notified, "nobody is woken for what is to go"
    bench.publish()
    bench.clock.advance(0)
    bench.run()
    assert (asked.over, asked.dropped) == (True, 16)
    assert [*clients[0].numbers, *clients[1].numbers] == [*held[0], *held[1], 21]


def test_many_acquired_entries_stay() -> None:
    bench = VhostBench()
    queue = bench.queue()
    client = client_of(bench, queue, 7)
    bench.publish(count=12)
    bench.run()
    asked = purge(queue, bench.clock.schedule, 3)
    client.ack(3)  # on which it stands
    turn(bench)
    client.ack(1, 2)
    client.nack(6)  # the purge has passed this entry
    assert not asked.over
    bench.clock.advance(0)
    bench.run()
    assert (asked.over, asked.dropped, numbers(queue)) == (True, 5, [4, 5, 6, 7])
    assert client.numbers[7:] == [6]


def test_several_purges_run_in_turn() -> None:
    bench, queue, first = begun(10, 4)
    bench.publish(count=5)
    second = purge(queue, bench.clock.schedule, 4)
    bench.publish(count=1)
    third = purge(queue, bench.clock.schedule, 4)
    bench.publish(count=1)
    waiter = Waiter(first, second, third)
    client = client_of(bench, queue)
    bench.clock.advance(0)
    assert waiter.purged_counts == [10, 5, 1]
    bench.run()
    assert client.numbers == [17]


def test_the_queue_is_deleted_during_the_purge() -> None:
    bench, queue, asked = begun(10, 4)
    after = purge(queue, bench.clock.schedule, 4)
    client = client_of(bench, queue)
    waiter = Waiter(asked, after)
    bench.vhost.declarations.delete_queue("q", False, False)
    assert (len(client.cancelled), waiter.purged_counts) == (1, [])
    again = bench.queue()
    bench.publish()
    bench.clock.advance(0)
    assert (waiter.purged_counts, numbers(again), asked.over) == ([4, 0], [11], True)


def test_basic_get_during_a_purge_may_return_its_message() -> None:
    bench, queue, asked = begun(6, 2)
    taker = VhostBench().client(queue, 0).consumer
    detach(queue, taker, [])
    entry = get_one(queue, taker)
    assert entry is not None
    assert entry is entry_of(queue, 3)
    turn(bench)
    release_entries(queue, [entry], taker)
    bench.clock.advance(0)
    assert (asked.over, asked.dropped, numbers(queue)) == (True, 5, [3])


def test_a_purge_passes_over_entries_of_an_operation() -> None:
    bench, queue, asked = begun(6, 2)
    taker = client_of(bench, queue).consumer
    entries = [entry_of(queue, number) for number in (3, 6)]
    for entry in entries:
        mark(queue, entry, taker)
    turn(bench)
    unmark(queue, entries, taker)
    bench.clock.advance(0)
    bench.run()
    assert (asked.over, asked.dropped, numbers(queue)) == (True, 5, [3])


def test_entries_that_wait_for_a_retry_are_purged_too() -> None:
    bench = VhostBench()
    queue = bench.queue(retry_min=1000)
    client = client_of(bench, queue)
    bench.publish(count=6)
    bench.run()
    client.nack()
    assert queue.held == 6
    asked = purge(queue, bench.clock.schedule, 2)
    bench.clock.advance(1000)
    bench.run()
    assert (asked.dropped, queue.held, queue.ready, len(client.numbers)) == (6, 0, 0, 6)


def test_entries_that_expire_during_the_purge_count_as_expired() -> None:
    bench, queue, asked = begun(6, 2, message_ttl=5)
    bench.clock.now += 5
    bench.clock.advance(0)
    assert asked.over
    assert numbers(queue) == []
    assert bench.died() == {"expired": 6 - asked.dropped}


def test_a_newcomer_that_is_the_first_of_all_stays() -> None:
    bench = VhostBench()
    queue = bench.queue(max_priority=1)
    bench.publish(count=4)
    asked = purge(queue, bench.clock.schedule, 2)
    bench.publish(priority=1)  # before all others
    bench.clock.advance(0)
    assert (asked.dropped, numbers(queue)) == (4, [5])


def test_a_stopped_queue_stays_stopped() -> None:
    bench, queue, asked = begun(6, 2)
    client = client_of(bench, queue)
    stop_queue(bench.vhost.topology, queue, ["dequeue"])
    bench.publish()
    bench.clock.advance(0)
    bench.run()
    assert (asked.over, client.numbers) == (True, [])
    stop_queue(bench.vhost.topology, queue, [])
    bench.run()
    assert client.numbers == [7]


def test_stopping_and_starting_during_a_purge_serves_no_consumer() -> None:
    bench, queue, asked = begun(6, 2)
    client = client_of(bench, queue)
    stop_queue(bench.vhost.topology, queue, ["dequeue"])
    stop_queue(bench.vhost.topology, queue, [])
    bench.publish()
    bench.run()
    assert client.numbers == []
    bench.clock.advance(0)
    bench.run()
    assert (asked.over, client.numbers) == (True, [7])
