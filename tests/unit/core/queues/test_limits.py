"""x-max-length, x-max-length-bytes and x-overflow: exact limits, and the order of drops."""

import random

import pytest

from broker.core.message import NEVER
from broker.core.publishing.publisher import REFUSED, ROUTED
from broker.core.queues import limits
from broker.core.queues.limits import SLICE
from broker.core.queues.queue import Queue
from broker.core.vhosts.definitions import restore_message
from tests.support.core.purge import purge
from tests.support.core.queue_bench import number_of
from tests.support.core.timed_vhost import VhostBench, delivered_bench, numbers
from tests.support.core.topology import RecordingStore


def levels(queue: Queue) -> list[tuple[int, int]]:
    """Return the priority and number of each entry."""
    return [(entry.message.priority, number_of(entry)) for entry in queue.entries]


def test_max_length_drops_the_oldest_message() -> None:
    bench = VhostBench()
    queue = bench.queue(max_length=3)
    held = []
    for _ in range(5):
        bench.publish()
        held.append(numbers(queue))
    assert held == [[1], [1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert bench.died() == {"maxlen": 2}


def test_bytes_count_the_bodies_of_ready_messages() -> None:
    bench = VhostBench()
    queue = bench.queue(max_length_bytes=10)
    bench.publish(size=4, count=2)
    bench.publish(size=3)
    assert numbers(queue) == [2, 3]
    bench.publish(size=10)
    assert numbers(queue) == [4]
    bench.publish(size=11)
    assert numbers(queue) == []
    assert queue.ready_bytes == 0


def test_the_tighter_of_length_and_bytes_limit_applies() -> None:
    bench = VhostBench()
    queue = bench.queue(max_length=2, max_length_bytes=10)
    bench.publish(size=1, count=3)
    assert numbers(queue) == [2, 3]
    bench.publish(size=10)
    assert numbers(queue) == [4]


def test_acquired_entries_do_not_count() -> None:
    bench = VhostBench()
    queue = bench.queue(max_length=1)
    bench.client(queue, prefetch=2)
    bench.publish(count=4)
    bench.run()
    assert (queue.unacked, queue.ready) == (2, 1)
    assert numbers(queue) == [1, 2, 4]


def test_waiting_consumers_get_messages_instead_of_their_drop() -> None:
    bench = VhostBench()
    queue = bench.queue(max_length=1)
    client = bench.client(queue, prefetch=3)
    bench.publish(count=4)
    assert client.numbers == [1, 2, 3], "they have had no turn yet"
    assert numbers(queue) == [1, 2, 3, 4]
    bench.publish()
    assert numbers(queue) == [1, 2, 3, 5]
    bench.run()
    assert client.numbers == [1, 2, 3]


def test_a_length_of_0_is_delivery_at_once_or_none() -> None:
    bench = VhostBench()
    queue = bench.queue(max_length=0)
    bench.publish()
    assert numbers(queue) == []
    client = bench.client(queue, prefetch=1)
    bench.publish(count=2)
    assert client.numbers == [2]
    assert bench.died() == {"maxlen": 2}


def test_returned_entries_may_exceed_the_limit() -> None:
    bench, queue, client = delivered_bench(count=3, prefetch=3, max_length=3)
    bench.publish(count=2)
    client.close()
    client.nack()
    assert numbers(queue) == [3, 4, 5]
    assert queue.ready == 3
    assert bench.died() == {"maxlen": 2}


def test_in_a_priority_queue_the_lowest_priority_goes_first_and_of_it_the_oldest() -> None:
    bench = VhostBench()
    queue = bench.queue(max_length=3, max_priority=5)
    bench.publish(priority=3)
    bench.publish(priority=1, count=2)
    bench.publish(priority=5)
    assert levels(queue) == [(5, 4), (3, 1), (1, 3)]
    bench.publish(priority=4)
    assert levels(queue) == [(5, 4), (4, 5), (3, 1)]
    bench.publish(priority=0)
    assert levels(queue) == [(5, 4), (4, 5), (3, 1)], "it is the lowest itself"


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("priorities", [0, 3], ids=["fifo", "priorities"])
def test_max_length_drops_the_right_message_after_random_operations(seed: int, priorities: int) -> None:
    choice = random.Random(seed)
    bench = VhostBench()
    limit = choice.choice((1, 3, 8))
    if priorities:
        queue = bench.queue(max_length=limit, max_priority=priorities)
    else:
        queue = bench.queue(max_length=limit)
    clients = [bench.client(queue, prefetch=choice.choice((1, 4))) for _ in range(2)]
    ready: dict[int, int] = {}  # priority by number
    for _ in range(400):
        draw = choice.random()
        if draw < 0.5:
            for client in clients:
                client.session.set_flow(False)
            priority = choice.randrange(priorities + 1)
            bench.publish(priority=priority)
            ready[bench.published] = priority
        elif draw < 0.7:
            for client in clients:
                client.session.set_flow(True)
            bench.run()
            for client in clients:
                for entry in client.held:
                    ready.pop(number_of(entry), None)
        else:
            client = choice.choice(clients)
            taken = {number_of(entry): entry.message.priority for entry in client.held}
            client.session.set_flow(False)
            for other in clients:
                other.session.set_flow(False)
            if draw < 0.85:
                client.ack()
            else:
                ready |= taken
                client.nack()
        while len(ready) > limit:
            del ready[min(ready, key=lambda number: (ready[number], number))]
        found = [entry for entry in queue.entries if entry.owner is None]
        assert {number_of(entry) for entry in found} == set(ready)
        assert queue.ready == len(ready) <= limit


def test_reject_publish_refuses_exactly_the_messages_beyond_max_length() -> None:
    bench = VhostBench()
    queue = bench.queue(max_length=2, overflow="reject-publish")
    answers = [bench.publish() for _ in range(4)]
    assert answers == [ROUTED, ROUTED, REFUSED, REFUSED]
    assert numbers(queue) == [1, 2]
    assert bench.counters.overflowed == 2
    purge(queue)
    assert bench.publish() is ROUTED


def test_reject_publish_counts_bytes() -> None:
    bench = VhostBench()
    queue = bench.queue(max_length_bytes=10, overflow="reject-publish")
    assert [bench.publish(size=size) for size in (4, 7, 6, 1)] == [ROUTED, REFUSED, ROUTED, REFUSED]
    assert numbers(queue) == [1, 3]


def test_a_refused_message_is_in_no_queue_and_not_in_the_log() -> None:
    store = RecordingStore()
    bench = VhostBench(store)
    roomy = bench.queue("roomy", durable=True)
    full = bench.queue("full", durable=True, max_length=0, overflow="reject-publish")
    for queue in (roomy, full):
        bench.vhost.declarations.bind_queue(queue.name, "amq.fanout", "", {})
    assert bench.publish(exchange="amq.fanout", persistent=True) == REFUSED
    assert numbers(roomy) == numbers(full) == []
    assert store.enqueued == []


def test_with_reject_publish_even_waiting_consumers_do_not_get_a_message_too_many() -> None:
    bench = VhostBench()
    queue = bench.queue(max_length=0, overflow="reject-publish")
    client = bench.client(queue)
    assert bench.publish() == REFUSED
    bench.run()
    assert client.numbers == []


def test_returned_entries_are_not_refused() -> None:
    bench, queue, client = delivered_bench(count=2, prefetch=2, max_length=2, overflow="reject-publish")
    bench.publish(count=2)
    client.close()
    client.nack()
    assert numbers(queue) == [1, 2, 3, 4]
    assert bench.publish() == REFUSED


def test_limits_that_change_take_hold_in_slices() -> None:
    bench = VhostBench()
    queue = bench.queue()
    bench.publish(count=1000)
    queue.effective = {"x-max-length": 10}
    limits.apply(queue, bench.vhost)
    left = []
    while bench.clock.wakes:
        bench.clock.wakes.clear()
        left.append(queue.ready)
        bench.clock.schedule.run()
    assert left == list(range(1000, 10, -SLICE))
    assert numbers(queue) == list(range(991, 1001))


def test_a_message_that_displaces_very_many_does_so_in_slices() -> None:
    bench = VhostBench()
    queue = bench.queue(max_length_bytes=5000)
    bench.publish(count=5000)
    bench.publish(size=5000)
    assert queue.ready == 4001
    bench.clock.advance(1)
    assert numbers(queue) == [5001]


def test_limits_hold_after_a_restart() -> None:
    bench = VhostBench()
    queue = bench.queue(max_length=2)
    bench.publish(count=2)
    restored = bench.queue("r", max_length=2)
    for entry in list(queue.entries) * 2:
        restore_message(restored, entry.message, False)
    assert restored.ready == 4
    bench.clock.advance(0)
    assert numbers(restored) == [1, 2]


def test_time_and_space_together() -> None:
    bench = VhostBench()
    queue = bench.queue(max_length=2, message_ttl=100)
    bench.publish(count=3)
    bench.publish(expiration=50)
    assert numbers(queue) == [3, 4]
    bench.clock.advance(50)
    assert numbers(queue) == [3]
    assert queue.limits is not None
    assert queue.limits.timers.count == 1
    assert bench.publish(expiration=NEVER) is ROUTED
