"""A queue, or an exchange, with many messages that is deleted: gone at once, and let go of bit by bit."""

import gc
from typing import Any

import pytest

from broker.core.arguments.queue import NACK
from broker.core.publishing.receipts import PreparedReceipts
from broker.core.queues.attach import detach
from broker.core.queues.group import Group
from broker.core.queues.purge import CLEARING_SLICE, dispose
from broker.core.queues.returns import release_entries
from broker.core.queues.source import PUBLISHED
from broker.core.transactions.transaction import SETTLE, HeldSettlement
from tests.clock import HandClock
from tests.delays import Site
from tests.grouping import GroupBench
from tests.topology import RecordingStore, add_exchange, new_vhost, publish
from tests.yard import Yard, entry_of, numbers

MANY = int(CLEARING_SLICE) * 2 + 500


def groups_alive() -> int:
    return sum(isinstance(each, Group) for each in gc.get_objects())


@pytest.mark.parametrize("limits", [{}, {"message_ttl": 60_000}, {"max_priority": 2}], ids=str)
def test_what_it_held_goes_in_slices(limits: dict[str, Any]) -> None:
    store = RecordingStore()
    yard = Yard(store)
    queue = yard.queue(durable=True, **limits)
    client = yard.client(queue)
    yard.publish(count=MANY, persistent=True)
    yard.run()
    client.close()
    last = entry_of(queue, MANY)
    others = client.held[:-1]
    release_entries(queue, others, client.consumer)
    yard.clock.advance(0)
    assert (queue.ready, queue.unacked) == (MANY - 1, 1)
    client.held = [last]
    yard.vhost.declarations.delete_queue("q", False, False)
    assert (client.removed, len(client.cancelled)) == ([], 1)
    assert (queue.ready, queue.unacked, queue.ready_bytes) == (0, 0, 0)
    assert "q" not in yard.vhost.topology.queues
    assert len(store.forgotten) == CLEARING_SLICE
    again = yard.queue(**limits)
    yard.publish(persistent=True)
    for _ in range(2):
        yard.clock.advance(0)
    assert len(store.forgotten) == MANY
    assert (client.removed, client.consumer.inflight, list(queue.entries)) == ([last], 0, [])
    assert numbers(again) == [MANY + 1]
    yard.clock.advance(60_000)
    assert len(store.forgotten) == MANY, "no timer of it runs any more"


@pytest.mark.parametrize("way", ["settled", "released", "discarded", "lost", "kept"])
def test_what_clients_had_is_taken_back_in_slices(way: str) -> None:
    store = RecordingStore()
    yard = Yard(store)
    queue = yard.queue(durable=True, delivery_limit=0, dead_letter_exchange="", dead_letter_routing_key="d")
    dead = yard.queue("d")
    client = yard.client(queue)
    yard.publish(count=MANY, persistent=True)
    yard.run()
    held = list(client.held)
    yard.vhost.declarations.delete_queue("q", False, False)
    assert (client.consumer.inflight, len(client.removed)) == (MANY - CLEARING_SLICE, CLEARING_SLICE)
    assert (queue.ready, queue.unacked, queue.unacked_bytes) == (0, 0, 0)
    for entry in held if way in ("settled", "discarded") else ():
        (queue.settle if way == "settled" else queue.discard)(entry)
    if way == "released":
        release_entries(queue, list(held), client.consumer)
    elif way == "lost":
        detach(queue, client.consumer, list(held))
    assert (len(store.settled), dead.ready, yard.died()) == (0, 0, {})
    assert (queue.ready, queue.unacked, queue.acked) == (0, 0, 0)
    left = []
    for _ in range(2):
        yard.clock.advance(0)
        left.append(int(client.consumer.inflight))
    assert left == [0, 0]
    assert (client.removed, len(store.forgotten), list(queue.entries)) == (held, MANY, [])
    assert len({id(message) for message in store.forgotten}) == MANY, "each of them once"


def test_a_transaction_settles_nothing_of_a_deleted_queue() -> None:
    store = RecordingStore()
    yard = Yard(store)
    queue = yard.queue(durable=True)
    client = yard.client(queue)
    yard.publish(count=MANY, persistent=True)
    yard.run()
    settlement = HeldSettlement(client.consumer, SETTLE, NACK)
    settlement.entries.append(client.held[-1])
    assert settlement.valid_entries() == client.held[-1:]
    yard.vhost.declarations.delete_queue("q", False, False)
    assert client.consumer.inflight == MANY - CLEARING_SLICE
    assert settlement.valid_entries() == []
    assert not settlement.append(yard.vhost, PreparedReceipts(yard.vhost.receipts))
    settlement.put(store, yard.vhost.dead_letters, PUBLISHED)
    assert store.settled == []


def test_no_group_is_left_to_the_garbage_collector() -> None:
    """It hardly ever looks at what is old, and what is parked keeps its message."""
    bench = GroupBench()
    before = groups_alive()
    gc.disable()
    try:
        client = bench.client(2)
        bench.send("a", "b")
        bench.run()
        other = bench.client()
        bench.send("a", "b", "c")
        bench.run()
        assert (client.numbers, other.numbers) == ([1, 2], [5])
        client.cancel()
        assert groups_alive() == before + 3
        dispose(bench.queue, bench.clock.schedule)
        del bench.groups, client.consumer
        client.deliveries.clear()
        bench.clients.clear()
        client.held.clear()
        assert groups_alive() == before
    finally:
        gc.enable()


def test_what_an_exchange_holds_goes_in_slices_too() -> None:
    site = Site(durable=True)
    for _ in range(MANY):
        site.publish(100, persistent=True)
    site.vhost.declarations.delete_exchange("x", False)
    assert len(site.store.forgotten) == CLEARING_SLICE
    for _ in range(2):
        site.clock.advance(0)
    assert len(site.store.forgotten) == MANY
    site.clock.advance(1000)
    assert len(site.store.forgotten) == MANY, "nothing of it is released"


def test_a_history_goes_in_slices_as_well() -> None:
    clock, store = HandClock(), RecordingStore()
    vhost = new_vhost(store, clock)
    add_exchange(vhost, "x", "x-recent-history", durable=True, x_recent_history_length=MANY)
    for _ in range(MANY):
        publish(vhost, "x", "k", persistent=True)
    vhost.declarations.delete_exchange("x", False)
    assert len(store.forgotten) == CLEARING_SLICE
    for _ in range(2):
        clock.advance(0)
    assert len(store.forgotten) == MANY
