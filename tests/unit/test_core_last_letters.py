"""The messages of a queue that expires or is deleted, where it dead-letters them."""

from typing import Any

import pytest

from broker.core.policies.policy import Policy
from broker.core.queues.backlog import RETRY_MS, SOON_MS
from broker.core.queues.limits import LOOKS, SLICE
from broker.core.queues.queue import Queue
from tests.topology import RecordingStore
from tests.yard import Yard, numbers

ALL = "rejected,expired,maxlen,delivery_limit,queue_expired,queue_deleted"


def there(yard: Yard, name: str = "q") -> bool:
    return name in yard.vhost.topology.queues


def source(yard: Yard, durable: bool = False, **arguments: Any) -> Queue:
    """A queue whose messages go to the queue `dead`, whatever ends them."""
    return yard.queue(
        "q",
        durable,
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
        dead_letter_reasons=ALL,
        **arguments,
    )


# ---- x-expires-if-empty


def test_a_queue_with_messages_is_spared_and_goes_when_it_has_been_empty_for_so_long() -> None:
    yard = Yard()
    queue = yard.queue(expires=800, expires_if_empty=True)
    yard.publish()
    yard.clock.advance(10_000)
    assert there(yard)
    yard.vhost.declarations.purge_queue("q")
    yard.clock.advance(799)
    assert there(yard), "it has not been empty for so long"
    yard.clock.advance(800 // LOOKS + 2)
    assert not there(yard)
    assert queue.deleted


def test_a_message_that_expires_leaves_it_empty() -> None:
    yard = Yard()
    yard.queue(expires=100, expires_if_empty=True, message_ttl=1000)
    yard.publish()
    yard.clock.advance(1099)
    assert there(yard)
    yard.clock.advance(100 // LOOKS + 2)
    assert not there(yard)


def test_what_a_client_has_counts_as_a_message() -> None:
    yard = Yard()
    queue = yard.queue(expires=100, expires_if_empty=True)
    client = yard.client(queue)
    yard.publish()
    yard.run()
    client.cancel()
    yard.clock.advance(10_000)
    assert there(yard)
    client.ack(1)
    yard.clock.advance(100 + 100 // LOOKS + 2)
    assert not there(yard)


def test_an_empty_one_goes_as_ever_and_a_policy_can_spare() -> None:
    yard = Yard()
    yard.queue(expires=100, expires_if_empty=True)
    yard.clock.advance(100)
    assert not there(yard)
    yard.queue(expires=100)
    yard.vhost.policies.set(Policy("spare", "", {"expires-if-empty": True}))
    yard.vhost.policies.apply_all()
    yard.publish()
    yard.clock.advance(10_000)
    assert there(yard)


# ---- deaths with the queue


def test_by_default_messages_go_with_their_queue() -> None:
    yard = Yard()
    dead = yard.queue("dead")
    yard.queue(dead_letter_exchange="", dead_letter_routing_key="dead", expires=10)
    yard.publish()
    yard.clock.advance(10)
    assert not there(yard)
    assert numbers(dead) == []


@pytest.mark.parametrize("count", [1, 3 * SLICE])
def test_what_an_expiring_queue_holds_is_dead_lettered(count: int) -> None:
    yard = Yard()
    dead = yard.queue("dead")
    source(yard, expires=10)
    yard.publish(count=count)
    yard.clock.advance(10)
    assert not there(yard)
    assert numbers(dead) == list(range(1, count + 1))
    assert yard.died() == {"queue_expired": count}


@pytest.mark.parametrize("count", [2, 3 * SLICE])
def test_what_a_deleted_queue_holds_is_dead_lettered_with_clients_or_not(count: int) -> None:
    store = RecordingStore()
    yard = Yard(store)
    dead = yard.queue("dead", durable=True)
    queue = source(yard, durable=True)
    client = yard.client(queue, 1)
    yard.publish(count=count, persistent=True)
    yard.run()
    assert client.numbers == [1]
    assert yard.vhost.declarations.delete_queue("q", False, False) == count - 1
    assert there(yard) is (count > SLICE)
    yard.clock.advance(10)
    assert not there(yard)
    assert numbers(dead) == list(range(1, count + 1))
    assert yard.died() == {"queue_deleted": count}
    assert store.forgotten == []
    client.ack(1)
    assert len(store.settled) == count


def test_a_policy_has_them_dead_lettered() -> None:
    yard = Yard()
    dead = yard.queue("dead")
    definition: dict[str, object] = {
        "dead-letter-exchange": "",
        "dead-letter-routing-key": "dead",
        "dead-letter-reasons": ALL,
    }
    yard.vhost.policies.set(Policy("last", "^q$", definition))
    yard.vhost.policies.apply_all()
    yard.queue()
    yard.publish()
    yard.vhost.declarations.delete_queue("q", False, False)
    assert (there(yard), numbers(dead)) == (False, [1])


def test_where_they_are_dead_lettered_at_least_once_the_queue_goes_after_the_last() -> None:
    yard = Yard()
    queue = source(yard, dead_letter_strategy="at-least-once", overflow="reject-publish", expires=10)
    yard.publish(count=2)
    yard.clock.advance(10 * RETRY_MS)
    assert there(yard)
    assert (queue.depth, queue.dead) == (0, 2)
    dead = yard.queue("dead")
    yard.clock.advance(SOON_MS)
    assert not there(yard)
    assert numbers(dead) == [1, 2]


def test_a_deletion_that_waits_is_undone_by_a_declaration() -> None:
    yard = Yard()
    arguments: dict[str, Any] = {"dead_letter_strategy": "at-least-once", "overflow": "reject-publish"}
    queue = source(yard, **arguments)
    yard.publish()
    yard.vhost.declarations.delete_queue("q", False, False)
    assert (there(yard), queue.dead) == (True, 1)
    assert source(yard, **arguments) is queue
    yard.queue("dead")
    yard.clock.advance(RETRY_MS)
    assert (there(yard), queue.dead) == (True, 0)
    yard.vhost.declarations.delete_queue("q", False, False)
    assert not there(yard)


def test_a_consumer_that_comes_keeps_a_queue_that_expires_but_not_one_that_is_deleted() -> None:
    for deletes in (False, True):
        yard = Yard()
        dead = yard.queue("dead")
        queue = source(yard, expires=10)
        yard.publish(count=3 * SLICE)
        if deletes:
            yard.vhost.declarations.delete_queue("q", False, False)
        else:
            yard.clock.now += 10
            yard.clock.schedule.run()
        assert len(numbers(dead)) == SLICE
        client = yard.client(queue, 1)
        yard.run()
        yard.clock.advance(100)
        assert there(yard) is not deletes
        assert client.numbers == [SLICE + 1]


def test_a_letter_does_not_come_back_into_the_queue_that_goes() -> None:
    yard = Yard()
    yard.queue("q", dead_letter_exchange="", dead_letter_routing_key="q", dead_letter_reasons=ALL)
    yard.publish()
    yard.vhost.declarations.delete_queue("q", False, False)
    assert not there(yard)
    assert yard.dropped() == {"queue_deleted, cycle": 1}


def test_auto_delete_and_exclusive_queues_leave_their_messages_too() -> None:
    yard = Yard()
    dead = yard.queue("dead")
    held: dict[str, object] = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
        "x-dead-letter-reasons": ALL,
    }
    owner = object()
    yard.vhost.declarations.declare_queue("mine", False, owner, False, held)
    queue = yard.vhost.declarations.declare_queue("q", False, None, True, held)
    yard.publish("mine")
    yard.publish("q")
    yard.vhost.declarations.delete_exclusive_queues(owner)
    assert numbers(dead) == [1]
    client = yard.client(queue, 1)
    client.cancel()
    yard.vhost.declarations.delete_if_unused(queue)
    assert numbers(dead) == [1, 2]
    assert list(yard.vhost.topology.queues) == ["dead"]
