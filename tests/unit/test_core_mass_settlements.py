"""A client settles very many deliveries by one frame: they leave bit by bit."""

from typing import Any

import pytest
from pamqp.commands import Basic, Tx

from broker.core.message import TELLS_CONSUMED
from broker.core.queue import Queue
from broker.core.settling import RECEIPT, SLICE, settle_all
from tests.bench.loop import Site
from tests.dispatch import Client
from tests.office import Office
from tests.yard import Yard, delivered, numbers

MOST = int(SLICE)
MANY = 2 * MOST + 1


def settle(client: Client) -> None:
    entries, client.held = client.held, []
    settle_all(client.queue, entries, client.consumer)


def settled(count: int = MANY, prefetch: int = 0, **arguments: Any) -> tuple[Yard, Queue, Client]:
    """A client has settled so many by one frame."""
    yard, queue, client = delivered(count, prefetch, **arguments)
    settle(client)
    return yard, queue, client


def turn(yard: Yard) -> None:
    """One call of the schedule."""
    yard.clock.wakes.clear()
    yard.clock.schedule.run()


def test_they_leave_in_slices_and_make_room_as_they_leave() -> None:
    yard, queue, client = settled(prefetch=MANY)
    assert queue.manager.settlements
    seen = []
    for _ in range(3):
        seen.append((queue.acked, queue.unacked, client.consumer.inflight, client.credit.used))
        turn(yard)
    assert seen == [(MOST, MOST + 1, MOST + 1, MOST + 1), (2 * MOST, 1, 1, 1), (MANY, 0, 0, 0)]
    assert not queue.manager.settlements
    assert numbers(queue) == []


def test_few_leave_at_once() -> None:
    _, queue, client = settled(MOST)
    assert (queue.acked, queue.unacked, queue.manager.settlements, client.credit.used) == (MOST, 0, [], 0)


def test_what_is_settled_later_may_leave_before() -> None:
    yard, queue, client = settled()
    yard.publish()
    yard.run()
    client.ack(MANY + 1)
    assert queue.unacked == MOST + 1
    yard.publish(count=MANY)
    yard.run()
    settle(client)
    assert len(queue.manager.settlements) == 2
    yard.clock.advance(0)
    assert (queue.acked, queue.unacked, numbers(queue)) == (2 * MANY + 1, 0, [])


def test_the_client_goes_meanwhile_and_nobody_else_gets_them() -> None:
    yard, queue, client = settled()
    other = yard.client(queue)
    client.vanish()
    yard.run()
    yard.clock.advance(0)
    assert (other.numbers, queue.acked, queue.unacked, numbers(queue)) == ([], MANY, 0, [])


@pytest.mark.parametrize("exclusive", [{"single_active_consumer": True}, {"strict_order": True}])
def test_who_waits_for_the_last_of_them_is_served_then(exclusive: dict[str, bool]) -> None:
    count = MANY if "strict_order" not in exclusive else 1
    yard, queue, client = settled(count, **exclusive)
    other = yard.client(queue)
    client.cancel()
    yard.publish()
    yard.run()
    yard.clock.advance(0)
    yard.run()
    assert other.numbers == [count + 1]


def test_the_queue_is_deleted_meanwhile() -> None:
    yard, queue, client = settled(prefetch=MANY)
    yard.vhost.delete_queue("q", False, False)
    assert (queue.manager.settlements, yard.counters.acked) == ([], MANY)
    yard.clock.advance(0)
    assert (client.consumer.inflight, numbers(queue)) == (0, [])


def test_a_transaction_that_settles_many() -> None:
    site = Site()
    queue = site.declare("q")
    site.fill(site.open(), "q", MANY + 1)
    client = site.consumer("q", MANY)
    site.loop.run()
    site.ask(client, Tx.Select())
    site.ask(client, Basic.Ack(0, True))
    site.ask(client, Tx.Commit())
    assert (queue.acked, queue.unacked) == (MOST, MOST + 1)
    site.loop.run()
    assert (queue.acked, queue.unacked, queue.ready) == (MANY, 1, 0)


@pytest.mark.parametrize("deleted", [False, True])
def test_many_at_once_are_told_of_in_slices_and_before_their_queue_goes(deleted: bool) -> None:
    office = Office()
    most = int(SLICE // RECEIPT)
    for _ in range(2 * most + 1):
        office.send(TELLS_CONSUMED, persistent=False)
    client = office.client(office.q)
    office.run()
    settle_all(office.q, client.held, client.consumer)
    assert office.q.acked == most
    if deleted:
        office.vhost.delete_queue("q", False, False)
    for _ in range(5):
        office.clock.advance(1)
    assert len(office.told()) == 2 * most + 1
    assert office.counters.acked == 2 * most + 1
