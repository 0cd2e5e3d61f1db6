"""Queues: order, release, ownership, counts, settlement, costs. [Broker-J AbstractQueueTestBase]"""

import pytest

from broker.core.entries.entry import ACQUIRED, AVAILABLE, DEQUEUED, QueueEntry
from broker.core.entries.list import FifoEntryList, QueueEntryList
from broker.core.entries.priority import PriorityEntryList
from broker.core.errors import AccessRefused
from broker.core.message import Message
from broker.core.queues.attach import get_one
from broker.core.queues.consumer import INTERESTED, NOT_INTERESTED, NOTIFIED, REMOVED
from broker.core.queues.purge import dispose
from broker.core.queues.returns import release_entries
from broker.core.vhosts.definitions import restore_message
from tests.support.core.hand_clock import HandClock
from tests.support.core.purge import purge
from tests.support.core.queue_bench import QueueBench, message


def test_register_consumer_then_enqueue() -> None:
    bench = QueueBench()
    client = bench.client()
    bench.publish()
    assert client.numbers == [], "notifying never delivers"
    bench.run()
    assert client.numbers == [1]
    assert client.deliveries[0].state == ACQUIRED
    assert client.deliveries[0].owner is client.consumer


def test_enqueue_then_register_consumer() -> None:
    bench = QueueBench()
    bench.publish(2)
    client = bench.client()
    bench.run()
    assert client.numbers == [1, 2]


def test_released_message_is_resent_to_subscriber() -> None:
    bench = QueueBench()
    client = bench.client()
    bench.publish(3)
    bench.run()
    client.nack(1)
    bench.run()
    assert client.numbers == [1, 2, 3, 1]
    assert client.flags == [False, False, False, True]
    assert [entry.delivery_count for entry in client.deliveries] == [2, 1, 1, 2]


def test_released_out_of_comparable_order_are_redelivered() -> None:
    """[QPID-2900, QPID-3704]"""
    bench = QueueBench()
    client = bench.client()
    bench.publish(3)
    bench.run()
    client.nack(3)
    client.nack(1)
    bench.run()
    assert client.numbers == [1, 2, 3, 1, 3]


def test_release_for_queue_with_multiple_consumers() -> None:
    bench = QueueBench()
    clients = [bench.client(), bench.client()]
    bench.publish(3)
    bench.run(1)
    holder = next(client for client in clients if client.held)
    holder.nack(holder.numbers[0])
    bench.run(1)
    assert sum(len(client.deliveries) for client in clients) == 4
    assert sum(client.flags.count(True) for client in clients) == 1


def test_a_released_entry_is_delivered_before_anything_later_that_waits() -> None:
    bench = QueueBench()
    client = bench.client(2)
    bench.publish(5)
    bench.run()
    client.nack(1)
    bench.run()
    client.ack(1, 2)
    bench.run()
    assert client.numbers == [1, 2, 1, 3, 4]


def test_order_is_restored_when_two_consumers_return_their_messages() -> None:
    """All entries are returned before any consumer is notified. [QPID-5877]"""
    bench = QueueBench()
    first, second = bench.client(), bench.client()
    bench.publish(6)
    bench.run(1)
    assert first.held
    assert second.held
    for client in (second, first):
        client.close()
    second.vanish()
    first.vanish()
    late = bench.client()
    bench.run()
    assert late.numbers == [1, 2, 3, 4, 5, 6]
    assert all(late.flags)


def test_consumer_close_with_release() -> None:
    """The successor of a consumer whose session ends gets that consumer's entries first, in order."""
    bench = QueueBench()
    dying = bench.client(2)
    bench.publish(3)
    bench.run()
    dying.ack(2)
    bench.publish()
    successor = bench.client(1)
    bench.run()
    assert dying.numbers == [1, 2, 3]
    assert successor.numbers == [4]
    dying.vanish()
    for _ in range(3):
        successor.ack()
        bench.run()
    assert successor.numbers == [4, 1, 3]
    assert successor.flags == [False, True, True]


def test_no_consumer_of_a_dying_connection_catches_what_another_returns() -> None:
    bench = QueueBench()
    first = bench.client()
    bench.publish(2)
    bench.run()
    second = bench.client(session=first.session)
    first.vanish()
    second.vanish()
    bench.run()
    assert second.numbers == []
    assert bench.queue.ready == 2


def test_cancel_keeps_unacknowledged_deliveries() -> None:
    bench = QueueBench()
    client = bench.client()
    bench.publish(2)
    bench.run()
    client.cancel()
    bench.publish()
    other = bench.client()
    bench.run()
    assert other.numbers == [3]
    assert client.consumer.inflight == 2
    client.ack(1)
    client.nack(2)
    bench.run()
    assert other.numbers == [3, 2]
    assert client.consumer.inflight == 0


def test_only_the_owner_can_release() -> None:
    """[Broker-J QueueEntryImplTestBase.testLockAcquisitionOwnership]"""
    bench = QueueBench()
    owner, other = bench.client(1), bench.client(1)
    bench.publish()
    bench.run()
    (holder, stranger) = (owner, other) if owner.held else (other, owner)
    entry = holder.held[0]
    release_entries(bench.queue, [entry], stranger.consumer)
    assert entry.state == ACQUIRED
    assert entry.owner is holder.consumer


def test_exclusive_consumer_refuses_and_is_refused() -> None:
    """[AMQP 0-9-1 basic.consume.exclusive]"""
    bench = QueueBench()
    ordinary = bench.client()
    with pytest.raises(AccessRefused, match=r"^queue 'q' in vhost '/' in exclusive use$"):
        bench.client(exclusive=True)
    ordinary.cancel()
    alone = bench.client(exclusive=True)
    for options in ({}, {"exclusive": True}, {"acquires": False}):
        with pytest.raises(AccessRefused):
            bench.client(**options)
    assert bench.queue.consumer_count == 1
    bench.publish()
    bench.run()
    assert alone.numbers == [1]
    alone.cancel()
    bench.client()


def test_get_takes_the_next_entry_and_needs_no_consumer() -> None:
    bench = QueueBench()
    getter = bench.getter()
    assert get_one(bench.queue, getter) is None
    bench.publish(2)
    entry = get_one(bench.queue, getter)
    assert entry is not None
    assert (entry.state, entry.owner, entry.delivery_count) == (ACQUIRED, getter, 1)
    client = bench.client()
    bench.run()
    assert client.numbers == [2]
    assert get_one(bench.queue, bench.getter()) is None
    release_entries(bench.queue, [entry], getter)
    bench.run()
    assert client.numbers == [2, 1]
    assert getter.inflight == 0
    assert bench.queue.consumer_count == 1


def test_a_consumer_is_interested_until_notified_and_again_when_there_is_nothing() -> None:
    bench = QueueBench()
    client = bench.client(1)
    assert client.consumer.state == INTERESTED
    bench.publish()
    assert client.consumer.state == NOTIFIED
    bench.run()
    assert client.consumer.state == NOT_INTERESTED, "prefetch is used up"
    client.ack()
    assert client.consumer.state == INTERESTED
    bench.publish()
    client.close()
    assert client.consumer.state == NOT_INTERESTED


def test_an_entry_is_settled_once() -> None:
    bench = QueueBench()
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


def test_settling_a_released_entry_changes_nothing() -> None:
    bench = QueueBench()
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
    bench = QueueBench()
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
    bench = QueueBench(logged=True)
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
    ("logged", "sequence", "is_logged"), [(True, 1, True), (True, 0, False), (False, 1, False)]
)
def test_the_store_learns_what_a_logged_queue_no_longer_holds(
    logged: bool, sequence: int, is_logged: bool
) -> None:
    bench = QueueBench(logged=logged)
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
    assert bench.store.settled == ([(each, "q") for each in sent] if is_logged else [])


def test_restored_entries_are_delivered_like_others() -> None:
    bench = QueueBench()
    restore_message(bench.queue, message(1), False)
    restore_message(bench.queue, message(2), True)
    assert bench.queue.published == 0
    client = bench.client()
    bench.run()
    assert client.numbers == [1, 2]
    assert client.flags == [False, True]


def test_purge_drops_what_is_available_and_leaves_what_is_out() -> None:
    bench = QueueBench()
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
    bench = QueueBench()
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


def test_dispose_drops_all_entries_and_cancels_all_consumers() -> None:
    bench = QueueBench(PriorityEntryList(3), logged=True)
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
    bench = QueueBench(PriorityEntryList(2))
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


class CountingList(QueueEntryList):
    """Counts the steps that are made in another list."""

    def __init__(self, entries: QueueEntryList) -> None:
        super().__init__(entries.in_order)
        self.entries = entries
        self.head = entries.head
        self.steps = 0

    def append(self, message: Message) -> QueueEntry:
        return self.entries.append(message)

    def unlink(self, entry: QueueEntry) -> None:
        self.entries.unlink(entry)

    def next(self, entry: QueueEntry) -> QueueEntry | None:
        self.steps += 1
        return self.entries.next(entry)


def counted(entries: QueueEntryList) -> tuple[QueueBench, CountingList]:
    counting = CountingList(entries)
    return QueueBench(counting), counting


def test_returning_one_of_many_that_are_out_and_getting_it_again() -> None:
    bench, counting = counted(FifoEntryList())
    client = bench.client()
    bench.publish(5000)
    bench.run(5000)
    counting.steps = 0
    for number in (1, 2500, 5000):
        client.nack(number)
        bench.run()
    assert client.numbers[5000:] == [1, 2500, 5000]
    assert counting.steps <= 6


def test_get_behind_many_that_are_out() -> None:
    bench, counting = counted(FifoEntryList())
    client = bench.client(5000)
    bench.publish(5001)
    bench.run(5000)
    counting.steps = 0
    assert len(client.held) == 5000
    assert get_one(bench.queue, bench.getter()) is not None
    assert counting.steps == 1


def test_settling_out_of_order_leaves_nothing_to_walk_over() -> None:
    """[RabbitMQ 1511: acknowledging in other than arrival order]"""
    bench, counting = counted(FifoEntryList())
    client = bench.client(2000)
    bench.publish(2001)
    bench.run(4000)
    counting.steps = 0
    for entry in client.held[::-1]:
        bench.queue.settle(entry)
        client.restore_credit(1)
    bench.run()
    assert client.numbers[-1] == 2001
    assert counting.steps <= 3


def test_an_arrival_of_higher_priority_above_many_of_a_lower_one() -> None:
    bench, counting = counted(PriorityEntryList(2))
    client = bench.client(1000)
    bench.publish(3000)
    bench.run(3000)
    counting.steps = 0
    for _ in range(3):
        bench.publish(priority=1)
        client.ack(client.numbers[-1])
        bench.run()
    assert client.numbers[1000:] == [3001, 3002, 3003]
    assert counting.steps <= 6


def test_many_returned_at_once_wake_each_idle_consumer_once() -> None:
    bench, counting = counted(FifoEntryList())
    dying = bench.client()
    bench.publish(2000)
    bench.run(2000)
    others = [bench.client(1) for _ in range(50)]
    bench.run()
    counting.steps = 0
    before = bench.notifications
    dying.vanish()
    assert bench.notifications - before == 50
    assert counting.steps == 0
    bench.run()
    assert sorted(number for other in others for number in other.numbers) == list(range(1, 51))


@pytest.mark.parametrize("idle", [10, 1000])
def test_a_single_message_for_many_idle_consumers(idle: int) -> None:
    bench, counting = counted(FifoEntryList())
    for _ in range(idle):
        bench.client()
    counting.steps = 0
    for _ in range(100):
        bench.publish()
        bench.run()
    assert counting.steps == 200, "one step finds the message, one finds the end"
    assert bench.notifications == 100


def test_outranked_consumers_cost_nothing_while_others_are_served() -> None:
    bench, counting = counted(FifoEntryList())
    bench.publish(500)
    for _ in range(200):
        bench.client()
    high = bench.client(priority=1)
    bench.run(1)
    assert len(high.deliveries) == 500
    assert bench.notifications <= 202
    assert counting.steps <= 500 + 202
