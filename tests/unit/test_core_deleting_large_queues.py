"""A queue, or an exchange, with many messages that is deleted: gone at once, and let go of bit by bit."""

from typing import Any

import pytest

from broker.core.clearing import SLICE
from tests.clock import HandClock
from tests.delays import Site
from tests.topology import RecordingStore, add_exchange, new_vhost, publish
from tests.yard import Yard, entry_of, numbers

MANY = int(SLICE) * 2 + 500


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
    queue.release(others, client.consumer)
    client.held = [last]
    yard.vhost.delete_queue("q", False, False)
    assert (client.removed, len(client.cancelled), client.consumer.inflight) == ([last], 1, 0)
    assert (queue.ready, queue.unacked, queue.ready_bytes) == (0, 0, 0)
    assert "q" not in yard.vhost.queues
    assert len(store.forgotten) == SLICE + 1
    again = yard.queue(**limits)
    yard.publish(persistent=True)
    for _ in range(2):
        yard.clock.advance(0)
    assert len(store.forgotten) == MANY
    assert list(queue.entries) == []
    assert numbers(again) == [MANY + 1]
    yard.clock.advance(60_000)
    assert len(store.forgotten) == MANY, "no timer of it runs any more"


def test_what_an_exchange_holds_goes_in_slices_too() -> None:
    site = Site(durable=True)
    for _ in range(MANY):
        site.publish(100, persistent=True)
    site.vhost.delete_exchange("x", False)
    assert len(site.store.forgotten) == SLICE
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
    vhost.delete_exchange("x", False)
    assert len(store.forgotten) == SLICE
    for _ in range(2):
        clock.advance(0)
    assert len(store.forgotten) == MANY
