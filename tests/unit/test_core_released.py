"""Deliveries that come back without having been tried: they count for nothing. [amqp-1.0 3.4.4]"""

import pytest

from broker.core.arguments.queue import CRASH, NACK, RELEASED
from broker.core.queues.attach import detach
from broker.core.queues.returns import release_entries
from tests.dispatch import MemoryStore, message
from tests.yard import Yard, delivered, entry_of, numbers


def test_a_release_is_no_try() -> None:
    yard, queue, client = delivered(2)
    client.nack(1, outcome=RELEASED)
    client.nack(2, outcome=NACK)
    yard.run()

    first, second = entry_of(queue, 1), entry_of(queue, 2)
    assert (first.delivery_count, first.counted, first.redelivered) == (2, 1, True)
    assert (second.delivery_count, second.counted, second.redelivered) == (2, 2, True)


def test_what_is_released_stands_where_it_stood() -> None:
    yard, queue, client = delivered(4, prefetch=4)
    client.ack(2)
    client.cancel()
    client.nack(1, 3, 4, outcome=RELEASED)
    other = yard.client(queue)
    yard.run()

    assert other.numbers == [1, 3, 4]
    assert other.flags == [True, True, True]


@pytest.mark.parametrize(("outcome", "lasts"), [(RELEASED, True), (NACK, False), (CRASH, False)])
def test_no_number_of_releases_reaches_a_delivery_limit(outcome: int, lasts: bool) -> None:
    yard, queue, client = delivered(delivery_limit=2)
    for _ in range(6):
        client.nack(outcome=outcome)
        yard.run()

    assert numbers(queue) == ([1] if lasts else [])
    assert yard.died() == ({} if lasts else {"delivery_limit": 1})


def test_tries_between_releases_count() -> None:
    yard, queue, client = delivered(delivery_limit=2)
    for outcome in (RELEASED, NACK, RELEASED, NACK, RELEASED):
        client.nack(outcome=outcome)
        yard.run()
    assert numbers(queue) == [1]
    client.nack()
    yard.run()

    assert numbers(queue) == []


@pytest.mark.parametrize(("outcome", "counted"), [(RELEASED, 0), (CRASH, 1), (NACK, 1)])
def test_a_consumer_that_goes_says_how_what_it_had_comes_back(outcome: int, counted: int) -> None:
    yard, queue, client = delivered(3, prefetch=3)
    client.session.connection.close_targets()
    detach(queue, client.consumer, client.held, outcome)

    assert [entry.counted for entry in queue.entries] == [counted] * 3
    other = yard.client(queue, prefetch=3)
    yard.run()
    assert other.numbers == [1, 2, 3]
    assert other.flags == [True] * 3
    assert [entry.counted for entry in queue.entries] == [counted + 1] * 3


def test_of_several_only_what_the_consumer_has_is_taken_back() -> None:
    yard, queue, client = delivered(2, prefetch=2)
    [first, second] = client.held
    client.ack(1)
    other = yard.client(queue)
    release_entries(queue, [first, second], other.consumer, RELEASED)
    assert (second.uncounted, queue.unacked) == (0, 1)
    release_entries(queue, [first, second], client.consumer, RELEASED)

    assert (second.uncounted, queue.unacked, queue.ready) == (1, 0, 1)


def test_the_log_is_told_that_it_was_no_try() -> None:
    yard = Yard(store := MemoryStore())
    queue = yard.queue(durable=True, delivery_limit=9)
    client = yard.client(queue)
    new = message(1)
    new.sequence = 1
    queue.enqueue(new)
    yard.run()
    for outcome in (NACK, RELEASED, NACK):
        client.nack(outcome=outcome)
        yard.run()

    assert [count for _, _, count in store.counted] == [1, 2, 1, 2, 3]
