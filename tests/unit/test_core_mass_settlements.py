"""A client settles very many deliveries by one frame: they leave bit by bit."""

from random import Random
from typing import Any

import pytest
from pamqp.commands import Basic

from broker.core.message import TELLS_CONSUMED
from broker.core.queues.queue import Queue
from broker.core.queues.returns import DEAR, SLICE, settle_runs
from broker.store.restore import close
from tests.bench.loop import Site
from tests.dispatch import Client
from tests.office import Office
from tests.simulation.broker_life import Life
from tests.simulation.sim_disk import SimDisk
from tests.yard import Yard, delivered, numbers

MOST = int(SLICE)
MANY = 2 * MOST + 1


def settle(*clients: Client) -> None:
    """All that they have, by one frame of a channel that has them all."""
    runs = [(client.consumer, client.held) for client in clients]
    for client in clients:
        client.held = []
    topology = clients[0].queue.host
    assert topology is not None
    settle_runs(runs, clients[0].session, topology)


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
    assert yard.vhost.settlements
    seen = []
    for _ in range(3):
        seen.append((queue.acked, queue.unacked, client.consumer.inflight, client.credit.used))
        turn(yard)
    assert seen == [(MOST, MOST + 1, MOST + 1, MOST + 1), (2 * MOST, 1, 1, 1), (MANY, 0, 0, 0)]
    assert not yard.vhost.settlements
    assert numbers(queue) == []


def test_few_leave_at_once() -> None:
    few = MOST // int(DEAR)
    yard, queue, client = settled(few)
    assert (queue.acked, queue.unacked, yard.vhost.settlements, client.credit.used) == (few, 0, [], 0)


def test_what_is_settled_later_may_leave_before() -> None:
    yard, queue, client = settled()
    yard.publish()
    yard.run()
    client.ack(MANY + 1)
    assert queue.unacked == MOST + 1
    yard.publish(count=MANY)
    yard.run()
    settle(client)
    assert len(yard.vhost.settlements) == 2
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
    yard.vhost.declarations.delete_queue("q", False, False)
    assert (yard.vhost.settlements, yard.counters.acked) == ([], MANY)
    yard.clock.advance(0)
    assert (client.consumer.inflight, numbers(queue)) == (0, [])


def test_a_turn_is_no_longer_where_consumers_take_turns() -> None:
    yard, queue, client = delivered(MANY)
    runs = [(client.consumer, [entry]) for entry in client.held]
    settle_runs(runs, client.session, yard.vhost)
    assert queue.acked == MOST // 2
    yard.clock.advance(0)
    assert (queue.acked, queue.unacked) == (MANY, 0)


def test_a_frame_behind_one_that_is_not_through_waits() -> None:
    yard, queue, client = settled()
    yard.publish(count=MOST)
    yard.run()
    settle(client)
    assert queue.acked == MOST
    client.vanish()
    yard.clock.advance(0)
    assert (queue.acked, queue.unacked, numbers(queue)) == (MANY + MOST, 0, [])


def test_a_queue_that_is_deleted_settles_what_it_has_and_nothing_else() -> None:
    yard, queue, client = delivered(MANY)
    other = yard.queue("other")
    second = yard.client(other)
    yard.publish("other", count=MANY)
    third = yard.client(yard.queue("third"))
    yard.publish("third")
    yard.run()
    settle(client, second)
    before = int(queue.acked) + int(other.acked)
    yard.vhost.declarations.delete_queue("third", False, False)
    assert (third.consumer.inflight, int(queue.acked) + int(other.acked)) == (0, before)
    yard.vhost.declarations.delete_queue("other", False, False)
    assert yard.counters.acked == before + MANY
    assert yard.vhost.settlements
    yard.clock.advance(0)
    assert (queue.acked, yard.vhost.settlements) == (MANY, [])


def test_a_clean_stop_takes_what_was_settled() -> None:
    disk = SimDisk(Random(1))
    life = Life(disk)
    life.declare("q")
    for number in range(MANY):
        life.publish("q", b"%d" % number)
    consumer, entries = life.take("q")
    settle_runs([(consumer, entries)], consumer.target.peers, life.vhost)
    assert consumer.queue.acked == MOST
    close(life.broker, life.log)
    again = Life(disk)
    assert again.held() == {"q": []}


def test_a_window_that_is_made_meanwhile() -> None:
    site = Site()
    queue = site.declare("q")
    site.fill(site.open(), "q", MANY + 100)
    client = site.consumer("q", MANY)
    site.loop.run()
    client.send(Basic.Ack(0, True), 1)
    client.send(Basic.Qos(0, 10, True), 1)
    site.loop.run()
    assert (queue.acked, queue.unacked) == (MANY, 10)


@pytest.mark.parametrize("deleted", [False, True])
def test_many_at_once_are_told_of_in_slices_and_before_their_queue_goes(deleted: bool) -> None:
    office = Office()
    most = int(SLICE // DEAR)
    for _ in range(2 * most + 1):
        office.send(TELLS_CONSUMED, persistent=False)
    client = office.client(office.q)
    office.run()
    settle(client)
    assert office.q.acked == most
    if deleted:
        office.vhost.declarations.delete_queue("q", False, False)
    for _ in range(5):
        office.clock.advance(1)
    assert len(office.told()) == 2 * most + 1
    assert office.counters.acked == 2 * most + 1
