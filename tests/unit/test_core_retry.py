"""Entries that come back and wait before they are tried again: for how long, where, what they count as."""

import pytest

from broker.core.arguments.queue import CRASH, NACK, RECOVER, REJECT, RELEASED, TIMEOUT
from broker.core.entries.entry import DEQUEUED, HELD
from broker.core.errors import PreconditionFailed
from broker.core.policies.policy import Policy
from broker.core.queues.consumer import SINGLE_ACTIVE, WAITING
from broker.core.queues.election import activity_of
from broker.core.queues.queue import Queue
from broker.core.queues.returns import deliver_again
from tests.purging import purge
from tests.retrying import waits
from tests.yard import Yard, delivered, entry_of, numbers


def state(queue: Queue) -> tuple[int, int, int]:
    return queue.ready, queue.unacked, queue.held


def test_what_comes_back_keeps_its_place_and_waits_while_others_pass() -> None:
    yard, queue, client = delivered(count=3, prefetch=1, retry_min=100)
    client.nack(1)
    assert (numbers(queue), state(queue), queue.held_bytes) == ([1, 2, 3], (2, 0, 1), 1)
    assert entry_of(queue, 1).state == HELD
    yard.run()
    assert client.numbers == [1, 2]
    yard.clock.advance(99)
    assert state(queue) == (1, 1, 1)
    yard.clock.advance(1)
    assert (state(queue), queue.held_bytes) == ((2, 1, 0), 0)
    client.ack(2)
    yard.run()
    assert client.numbers == [1, 2, 1], "it is before what came later"
    assert client.flags[-1]


def test_somebody_who_waits_is_told_when_its_time_has_come() -> None:
    yard, _, client = delivered(retry_min=100)
    client.nack(outcome=CRASH)
    yard.run()
    assert client.numbers == [1]
    yard.clock.advance(100)
    yard.run()
    assert client.numbers == [1, 1]


def test_waits_grow_with_every_return_up_to_the_longest() -> None:
    yard, queue, client = delivered(retry_min=10, retry_max=60)
    assert [waits(yard, queue, client) for _ in range(5)] == [10, 20, 40, 60, 60]


def test_the_multiplier_says_how_they_grow() -> None:
    yard, queue, client = delivered(retry_min=10, retry_multiplier=1.5)
    assert [waits(yard, queue, client) for _ in range(4)] == [10, 15, 22, 33]


def test_chance_adds_up_to_its_share() -> None:
    yard, queue, client = delivered(retry_min=100, retry_multiplier=1, retry_jitter=0.5)
    found = [waits(yard, queue, client) for _ in range(200)]
    assert min(found) >= 100
    assert max(found) <= 150
    assert len(set(found)) > 20
    assert 115 < sum(found) / 200 < 135


@pytest.mark.parametrize("outcome", [NACK, REJECT, RECOVER, TIMEOUT, CRASH])
def test_everything_that_was_tried_waits(outcome: int) -> None:
    yard, queue, client = delivered(retry_min=10)
    assert waits(yard, queue, client, outcome) == 10


def test_what_was_not_even_tried_does_not() -> None:
    yard, queue, client = delivered(retry_min=10)
    assert waits(yard, queue, client, RELEASED) == 0


@pytest.mark.parametrize(
    ("kind", "waiting"),
    [
        ("disabled", set()),
        ("all", {NACK, REJECT, RECOVER, TIMEOUT, CRASH, RELEASED}),
        ("failed", {REJECT, CRASH}),
        ("returned", {NACK, RECOVER, TIMEOUT, RELEASED}),
    ],
)
def test_rabbitmqs_delayed_retries_are_linear_and_for_some(kind: str, waiting: set[int]) -> None:
    for outcome in (NACK, REJECT, RECOVER, TIMEOUT, CRASH, RELEASED):
        yard, queue, client = delivered(delayed_retry_type=kind, delayed_retry_min=10, delayed_retry_max=25)
        expected = [10, 20, 25, 25] if outcome in waiting else [0, 0, 0, 0]
        assert [waits(yard, queue, client, outcome) for _ in range(4)] == expected


def test_sending_again_to_the_same_consumer_is_a_retry_too() -> None:
    yard, queue, client = delivered(retry_min=10)
    assert not deliver_again(queue, client.held[0], client.consumer)
    assert state(queue) == (0, 0, 1)
    yard.clock.advance(10)
    assert state(queue) == (1, 0, 0)


def test_many_come_back_together_and_are_in_order_again() -> None:
    yard, queue, client = delivered(count=2000, retry_min=10)
    client.vanish()
    assert state(queue) == (0, 0, 2000)
    other = yard.client(queue)
    yard.run()
    assert other.numbers == []
    yard.clock.advance(10)
    yard.run()
    assert sorted(other.numbers) == list(range(1, 2001))
    assert state(queue) == (0, 2000, 0)


def test_browsers_are_not_shown_it_again() -> None:
    yard = Yard()
    queue = yard.queue(retry_min=10)
    browser = yard.client(queue, acquires=False)
    yard.publish()
    yard.run()
    client = yard.client(queue)
    yard.run()
    client.nack()
    client.cancel()
    assert state(queue) == (0, 0, 1), "an empty queue would reset cursors"
    yard.clock.advance(10)
    yard.publish()
    yard.run()
    assert browser.numbers == [1, 2]


def test_its_time_to_live_goes_on() -> None:
    yard, queue, client = delivered(retry_min=100, message_ttl=30)
    client.nack()
    yard.clock.advance(29)
    assert state(queue) == (0, 0, 1)
    yard.clock.advance(1)
    assert state(queue) == (0, 0, 0)
    assert yard.died() == {"expired": 1}
    yard.clock.advance(1000)
    assert (numbers(queue), state(queue)) == ([], (0, 0, 0))


def test_its_time_is_counted_once_it_is_available_again() -> None:
    yard, queue, client = delivered(retry_min=10, message_ttl=30)
    client.nack()
    client.cancel()
    yard.clock.advance(10)
    assert state(queue) == (1, 0, 0)
    yard.clock.advance(20)
    assert yard.died() == {"expired": 1}


def test_it_does_not_count_towards_the_length_until_it_is_available() -> None:
    yard, queue, client = delivered(prefetch=1, retry_min=10, max_length=1)
    client.nack()
    client.cancel()
    yard.publish()
    assert numbers(queue) == [1, 2]
    yard.clock.advance(10)
    assert numbers(queue) == [2], "the oldest goes"
    assert state(queue) == (1, 0, 0)


def test_purging_and_deleting_drop_it() -> None:
    yard, queue, client = delivered(count=3, retry_min=10)
    client.nack(1, 2)
    with pytest.raises(PreconditionFailed, match="not empty"):
        yard.vhost.declarations.delete_queue("q", False, True, None)
    assert purge(queue) == 2
    assert state(queue) == (0, 1, 0)
    client.nack(3)
    entry = entry_of(queue, 3)
    yard.vhost.declarations.delete_queue("q", False, False, None)
    yard.clock.advance(100)
    assert (entry.state, state(queue)) == (DEQUEUED, (0, 0, 0))


def test_beyond_the_limit_nothing_waits() -> None:
    yard, queue, client = delivered(retry_min=10, delivery_limit=1)
    assert waits(yard, queue, client) == 10
    client.nack()
    assert (numbers(queue), yard.died()) == ([], {"delivery_limit": 1})


def test_the_active_consumer_changes_when_its_deliveries_are_held() -> None:
    yard = Yard()
    queue = yard.queue(retry_min=10, single_active_consumer=True)
    first, second = yard.client(queue), yard.client(queue)
    yard.publish()
    yard.run()
    first.cancel()
    assert activity_of(second.consumer) == WAITING
    first.nack()
    assert activity_of(second.consumer) == SINGLE_ACTIVE
    yard.clock.advance(10)
    yard.run()
    assert second.numbers == [1]


def test_policies_come_and_go() -> None:
    yard = Yard()
    queue = yard.queue()
    assert queue.retry is None
    yard.vhost.policies.set(Policy("p", "q", {"retry-min": 10, "retry-multiplier": 1, "retry-max": 5}))
    yard.vhost.policies.apply_all()
    client = yard.client(queue)
    yard.publish()
    yard.run()
    assert waits(yard, queue, client) == 5
    client.nack(outcome=NACK)
    yard.vhost.policies.delete("p")
    yard.vhost.policies.apply_all()
    assert state(queue) == (0, 0, 1), "what waits goes on waiting"
    yard.clock.advance(5)
    yard.run()
    assert waits(yard, queue, client) == 0
