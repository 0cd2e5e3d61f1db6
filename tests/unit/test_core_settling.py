"""How entries leave a queue: settled, refused, purged, deleted with it; what is counted, and stored."""

import pytest

from broker.core.entries.entry import AVAILABLE, DEQUEUED
from broker.core.entries.priority import PriorityEntryList
from broker.core.queues.consumer import REMOVED
from broker.core.queues.purge import dispose
from broker.core.queues.returns import release_entries
from broker.core.vhosts.definitions import restore_message
from tests.clock import HandClock
from tests.dispatch import Bench, message
from tests.purging import purge


def test_an_entry_is_settled_once() -> None:
    bench = Bench()
    client = bench.client()
    bench.publish()
    bench.run()
    entry = client.held[0]
    for _ in range(2):
        bench.queue.settle(entry)
        bench.queue.discard(entry)
        release_entries(bench.queue, [entry], client.consumer)
    assert entry.state == DEQUEUED
    assert entry.owner is None
    assert (bench.queue.acked, bench.queue.unacked, client.consumer.inflight) == (1, 0, 0)


def test_settling_what_was_released_meanwhile_changes_nothing() -> None:
    bench = Bench()
    client = bench.client()
    bench.publish()
    bench.run()
    entry = client.held[0]
    client.vanish()
    bench.queue.settle(entry)
    bench.queue.discard(entry)
    assert entry.state == AVAILABLE
    assert bench.numbers() == [1]


def test_counts() -> None:
    bench = Bench()
    queue = bench.queue
    client = bench.client(2)
    bench.publish(5, size=10)
    bench.run()
    assert (queue.ready, queue.ready_bytes, queue.unacked, queue.unacked_bytes) == (3, 30, 2, 20)
    client.nack(1)
    client.ack(2)
    bench.run()
    assert (queue.ready, queue.ready_bytes, queue.unacked, queue.unacked_bytes) == (2, 20, 2, 20)
    client.reject()
    bench.run()
    assert (queue.published, queue.delivered, queue.acked, queue.redelivered) == (5, 6, 1, 1)
    assert (bench.counters.delivered, bench.counters.acked, bench.counters.redelivered) == (6, 1, 1)
    assert queue.consumer_count == 1


def test_no_ack_settles_at_delivery_and_is_not_an_acknowledgement() -> None:
    bench = Bench(logged=True)
    client = bench.client(no_ack=True)
    sent = message(1)
    sent.sequence = 5
    bench.queue.enqueue(sent)
    bench.run()
    assert client.deliveries[0].state == DEQUEUED
    assert (bench.queue.delivered, bench.queue.acked, bench.queue.unacked) == (1, 0, 0)
    assert bench.store.settled == [(sent, "q")]
    assert bench.numbers() == []


@pytest.mark.parametrize(
    ("logged", "sequence", "told"), [(True, 1, True), (True, 0, False), (False, 1, False)]
)
def test_the_store_learns_what_a_logged_queue_no_longer_holds(
    logged: bool, sequence: int, told: bool
) -> None:
    bench = Bench(logged=logged)
    client = bench.client()
    sent = [message(n) for n in range(3)]
    for each in sent:
        each.sequence = sequence
        bench.queue.enqueue(each)
    bench.run()
    client.ack(0)
    client.reject(1)
    client.nack(2)
    client.cancel()
    purge(bench.queue)
    assert bench.store.settled == ([(each, "q") for each in sent] if told else [])


def test_restored_entries_are_delivered_like_others() -> None:
    bench = Bench()
    restore_message(bench.queue, message(1), False)
    restore_message(bench.queue, message(2), True)
    assert bench.queue.published == 0
    client = bench.client()
    bench.run()
    assert client.numbers == [1, 2]
    assert client.flags == [False, True]


def test_purge_drops_what_is_available_and_leaves_what_is_out() -> None:
    bench = Bench()
    client = bench.client(2)
    bench.publish(5)
    bench.run()
    assert purge(bench.queue) == 3
    assert bench.numbers() == [1, 2]
    assert purge(bench.queue) == 0
    client.nack()
    bench.publish()
    bench.run()
    assert client.numbers == [1, 2, 1, 2]
    client.ack()
    bench.run()
    assert client.numbers == [1, 2, 1, 2, 6]


def test_purge_of_returned_entries_behind_the_cursor() -> None:
    bench = Bench()
    client = bench.client()
    bench.publish(3)
    bench.run()
    client.cancel()
    client.nack(1, 3)
    assert purge(bench.queue) == 2
    client.nack(2)
    bench.publish()
    late = bench.client()
    bench.run()
    assert late.numbers == [2, 4]


def test_dispose_takes_everything_back_and_tells_everybody() -> None:
    bench = Bench(PriorityEntryList(3), logged=True)
    client = bench.client(2)
    browser = bench.client(acquires=False)
    sent = [message(n, priority=n % 3) for n in range(4)]
    for each in sent[:3]:
        each.sequence = 1
    for each in sent:
        bench.queue.enqueue(each)
    bench.run()
    held = list(client.held)
    dispose(bench.queue, HandClock().schedule)
    assert bench.queue.deleted
    assert client.cancelled == [client.consumer]
    assert browser.cancelled == [browser.consumer]
    assert client.removed == held
    assert client.credit.used == 0
    assert client.consumer.state == REMOVED
    assert client.consumers == []
    assert (bench.queue.ready, bench.queue.unacked, bench.queue.consumer_count) == (0, 0, 0)
    assert sorted(each.content for each in bench.store.forgotten if each.content) == [b"0", b"1", b"2"]
    assert bench.store.settled == []
    for entry in held:
        assert (entry.state, entry.owner, entry.prev, entry.next) == (DEQUEUED, None, None, None)
        bench.queue.settle(entry)
    client.vanish()
    bench.run()
    assert bench.queue.acked == 0


def test_an_idle_queue_keeps_no_entry_alive() -> None:
    """[QPID-6528, QPID-7593: an idle consumer's pointer kept everything since]"""
    bench = Bench(PriorityEntryList(2))
    bench.client(acquires=False)
    client = bench.client()
    for priority in (0, 1, 0, 1):
        bench.publish(50, priority=priority)
        bench.run()
    client.nack(7, 11, 150)
    bench.run()
    client.deliveries.clear()
    client.held, held = [], client.held
    for entry in reversed(held):
        bench.queue.settle(entry)
    queue = bench.queue
    assert queue.entries.next(queue.entries.head) is None
    assert queue.browsers is not None
    for context in (queue.context, *queue.browsers.cursors):
        assert context.last is queue.entries.head
        assert context.behind == []
