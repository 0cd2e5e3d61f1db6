"""A purge of many messages in slices: no consumer gets an entry that is to be purged."""

from typing import Any

import pytest

from broker.core.operators.operation import mark, unmark
from broker.core.queues.attach import detach, get_one
from broker.core.queues.consumer import BLOCKED_BY_PURGE
from broker.core.queues.purge import SLICE, Purge, PurgeWaiter, purge
from broker.core.queues.queue import Queue
from broker.core.queues.returns import release_entries
from broker.core.vhosts.vhost import stop_queue
from tests.support.core.queue_bench import Client
from tests.support.core.timed_vhost import VhostBench, entry_of, numbers
from tests.support.core.topology import RecordingStore


class Waiter(PurgeWaiter):
    """A waiter that records its calls."""

    def __init__(self, *purges: Purge) -> None:
        self.told: list[int] = []
        for each in purges:
            each.tell(self)

    def on_purged(self, purge: Purge) -> None:
        assert purge.over
        self.told.append(int(purge.dropped))


def turn(yard: VhostBench) -> None:
    """Run the schedule once."""
    yard.clock.wakes.clear()
    yard.clock.schedule.run()


def begun(count: int, most: int, **arguments: object) -> tuple[VhostBench, Queue, Purge]:
    """Return a queue of `count` messages and its purge of `most` entries a turn, after the first turn."""
    yard = VhostBench()
    queue = yard.queue(**arguments)  # type: ignore[arg-type]
    yard.publish(count=count)
    return yard, queue, purge(queue, yard.clock.schedule, most)


def client_of(yard: VhostBench, queue: Queue, prefetch: int = 0, **options: Any) -> Client:
    client = yard.client(queue, prefetch, **options)
    yard.run()
    return client


@pytest.mark.parametrize("kind", [{}, {"max_priority": 2}, {"message_ttl": 60_000}], ids=str)
def test_a_million_would_take_many_turns(kind: dict[str, Any]) -> None:
    store = RecordingStore()
    yard = VhostBench(store)
    queue = yard.queue(durable=True, **kind)
    yard.publish(count=int(SLICE) * 2 + 500, persistent=True)
    asked = yard.vhost.purge_queue("q")
    gone = [int(asked.dropped)]
    while not asked.over:
        turn(yard)
        gone.append(int(asked.dropped))
    assert gone == [SLICE, 2 * SLICE, 2 * SLICE + 500]
    assert len(store.settled) == gone[-1]
    assert (queue.ready, queue.ready_bytes, numbers(queue)) == (0, 0, [])
    yard.clock.advance(60_000)
    assert yard.died() == {}, "no timer of it runs any more"


def test_a_small_purge_is_done_at_once() -> None:
    yard = VhostBench()
    queue = yard.queue()
    client = client_of(yard, queue, 1)
    yard.publish(count=10)
    yard.run()
    asked = yard.vhost.purge_queue("q")
    assert (asked.over, asked.dropped, numbers(queue)) == (True, 9, [1])
    assert Waiter(asked).told == [9]
    assert client.consumer.blockers & BLOCKED_BY_PURGE == 0
    assert queue.browsers is None


@pytest.mark.parametrize("kind", [{}, {"max_priority": 3}], ids=str)
def test_later_arrivals_stay_and_are_delivered_after_the_purge(kind: dict[str, Any]) -> None:
    yard, queue, asked = begun(10, 4, **kind)
    waiter = Waiter(asked)
    yard.publish(count=2)
    yard.publish(priority=1)
    client = client_of(yard, queue)
    assert (client.numbers, waiter.told) == ([], [])
    turn(yard)
    yard.run()
    assert (client.numbers, waiter.told) == ([], [])
    yard.clock.advance(0)
    yard.run()
    assert waiter.told == [10]
    assert sorted(client.numbers) == [11, 12, 13]
    assert (queue.ready, queue.browsers, queue.manager.purges) == (0, None, [])


def test_consumers_that_are_there_get_nothing_before_it_is_over() -> None:
    yard = VhostBench()
    queue = yard.queue()
    clients = [client_of(yard, queue, 2), client_of(yard, queue, 2, priority=1)]
    yard.publish(count=20)
    yard.run()
    held = [list(client.numbers) for client in clients]
    asked = purge(queue, yard.clock.schedule, 5)
    notified = [client.notified for client in clients]
    for client in clients:
        client.ack()
        yard.run()
    assert [client.numbers for client in clients] == held
    assert [client.notified for client in clients] == notified, "nobody is woken for what is to go"
    yard.publish()
    yard.clock.advance(0)
    yard.run()
    assert (asked.over, asked.dropped) == (True, 16)
    assert [*clients[0].numbers, *clients[1].numbers] == [*held[0], *held[1], 21]


def test_many_acquired_entries_stay() -> None:
    yard = VhostBench()
    queue = yard.queue()
    client = client_of(yard, queue, 7)
    yard.publish(count=12)
    yard.run()
    asked = purge(queue, yard.clock.schedule, 3)
    client.ack(3)  # on which it stands
    turn(yard)
    client.ack(1, 2)
    client.nack(6)  # it has passed that
    assert not asked.over
    yard.clock.advance(0)
    yard.run()
    assert (asked.over, asked.dropped, numbers(queue)) == (True, 5, [4, 5, 6, 7])
    assert client.numbers[7:] == [6]


def test_several_go_on_one_after_the_other() -> None:
    yard, queue, first = begun(10, 4)
    yard.publish(count=5)
    second = purge(queue, yard.clock.schedule, 4)
    yard.publish(count=1)
    third = purge(queue, yard.clock.schedule, 4)
    yard.publish(count=1)
    waiter = Waiter(first, second, third)
    client = client_of(yard, queue)
    yard.clock.advance(0)
    assert waiter.told == [10, 5, 1]
    yard.run()
    assert client.numbers == [17]


def test_the_queue_is_deleted_during_the_purge() -> None:
    yard, queue, asked = begun(10, 4)
    after = purge(queue, yard.clock.schedule, 4)
    client = client_of(yard, queue)
    waiter = Waiter(asked, after)
    yard.vhost.delete_queue("q", False, False)
    assert (len(client.cancelled), waiter.told) == (1, [])
    again = yard.queue()
    yard.publish()
    yard.clock.advance(0)
    assert (waiter.told, numbers(again), asked.over) == ([4, 0], [11], True)


def test_a_get_comes_before_it_and_may_give_back_what_it_got() -> None:
    yard, queue, asked = begun(6, 2)
    taker = VhostBench().client(queue, 0).consumer
    detach(queue, taker, [])
    entry = get_one(queue, taker)
    assert entry is not None
    assert entry is entry_of(queue, 3)
    turn(yard)
    release_entries(queue, [entry], taker)
    yard.clock.advance(0)
    assert (asked.over, asked.dropped, numbers(queue)) == (True, 5, [3])


def test_an_operation_that_has_some_of_it() -> None:
    yard, queue, asked = begun(6, 2)
    taker = client_of(yard, queue).consumer
    entries = [entry_of(queue, number) for number in (3, 6)]
    for entry in entries:
        mark(queue, entry, taker)
    turn(yard)
    unmark(queue, entries, taker)
    yard.clock.advance(0)
    yard.run()
    assert (asked.over, asked.dropped, numbers(queue)) == (True, 5, [3])


def test_entries_that_wait_for_a_retry_are_purged_too() -> None:
    yard = VhostBench()
    queue = yard.queue(retry_min=1000)
    client = client_of(yard, queue)
    yard.publish(count=6)
    yard.run()
    client.nack()
    assert queue.held == 6
    asked = purge(queue, yard.clock.schedule, 2)
    yard.clock.advance(1000)
    yard.run()
    assert (asked.dropped, queue.held, queue.ready, len(client.numbers)) == (6, 0, 0, 6)


def test_entries_that_expire_during_the_purge_count_as_expired() -> None:
    yard, queue, asked = begun(6, 2, message_ttl=5)
    yard.clock.now += 5
    yard.clock.advance(0)
    assert asked.over
    assert numbers(queue) == []
    assert yard.died() == {"expired": 6 - asked.dropped}


def test_a_newcomer_that_is_the_first_of_all_stays() -> None:
    yard = VhostBench()
    queue = yard.queue(max_priority=1)
    yard.publish(count=4)
    asked = purge(queue, yard.clock.schedule, 2)
    yard.publish(priority=1)  # before all others
    yard.clock.advance(0)
    assert (asked.dropped, numbers(queue)) == (4, [5])


def test_a_stopped_queue_stays_stopped() -> None:
    yard, queue, asked = begun(6, 2)
    client = client_of(yard, queue)
    stop_queue(yard.vhost, queue, ["dequeue"])
    yard.publish()
    yard.clock.advance(0)
    yard.run()
    assert (asked.over, client.numbers) == (True, [])
    stop_queue(yard.vhost, queue, [])
    yard.run()
    assert client.numbers == [7]


def test_a_switch_meanwhile_serves_nobody() -> None:
    yard, queue, asked = begun(6, 2)
    client = client_of(yard, queue)
    stop_queue(yard.vhost, queue, ["dequeue"])
    stop_queue(yard.vhost, queue, [])
    yard.publish()
    yard.run()
    assert client.numbers == []
    yard.clock.advance(0)
    yard.run()
    assert (asked.over, client.numbers) == (True, [7])
