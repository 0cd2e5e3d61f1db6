"""One queue and its consumers: order, release, ownership, counts. [Broker-J AbstractQueueTestBase]"""

import pytest

from broker.core.entries.entry import ACQUIRED
from broker.core.errors import AccessRefused
from broker.core.queues.attach import get_one
from broker.core.queues.consumer import INTERESTED, NOT_INTERESTED, NOTIFIED
from broker.core.queues.returns import release_entries
from tests.dispatch import Bench


def test_register_consumer_then_enqueue() -> None:
    bench = Bench()
    client = bench.client()
    bench.publish()
    assert client.numbers == [], "notifying never delivers"
    bench.run()
    assert client.numbers == [1]
    assert client.deliveries[0].state == ACQUIRED
    assert client.deliveries[0].owner is client.consumer


def test_enqueue_then_register_consumer() -> None:
    bench = Bench()
    bench.publish(2)
    client = bench.client()
    bench.run()
    assert client.numbers == [1, 2]


def test_released_message_is_resent_to_subscriber() -> None:
    bench = Bench()
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
    bench = Bench()
    client = bench.client()
    bench.publish(3)
    bench.run()
    client.nack(3)
    client.nack(1)
    bench.run()
    assert client.numbers == [1, 2, 3, 1, 3]


def test_release_for_queue_with_multiple_consumers() -> None:
    bench = Bench()
    clients = [bench.client(), bench.client()]
    bench.publish(3)
    bench.run(1)
    holder = next(client for client in clients if client.held)
    holder.nack(holder.numbers[0])
    bench.run(1)
    assert sum(len(client.deliveries) for client in clients) == 4
    assert sum(client.flags.count(True) for client in clients) == 1


def test_a_released_entry_is_delivered_before_anything_later_that_waits() -> None:
    bench = Bench()
    client = bench.client(2)
    bench.publish(5)
    bench.run()
    client.nack(1)
    bench.run()
    client.ack(1, 2)
    bench.run()
    assert client.numbers == [1, 2, 1, 3, 4]


def test_order_is_restored_when_two_consumers_return_their_messages() -> None:
    """All is back before anybody is notified. [QPID-5877]"""
    bench = Bench()
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
    """The successor of a consumer whose session dies gets what that one held first, in order."""
    bench = Bench()
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
    bench = Bench()
    first = bench.client()
    bench.publish(2)
    bench.run()
    second = bench.client(session=first.session)
    first.vanish()
    second.vanish()
    bench.run()
    assert second.numbers == []
    assert bench.queue.ready == 2


def test_cancel_keeps_what_is_unacknowledged() -> None:
    bench = Bench()
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
    bench = Bench()
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
    bench = Bench()
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
    bench = Bench()
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
    bench = Bench()
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
