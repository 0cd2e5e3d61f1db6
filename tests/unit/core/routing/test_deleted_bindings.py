"""Deletion of queues and exchanges with many bindings: immediate for clients, unlinked in slices."""

import pytest

from broker.core.publishing.publisher import ROUTED, UNROUTED
from broker.core.queues.attach import detach
from broker.core.queues.queue import Queue
from broker.core.routing.bindings import SLICE
from broker.core.routing.graph import Binding
from broker.core.vhosts.vhost import VirtualHost
from tests.support.core.hand_clock import HandClock
from tests.support.core.topology import (
    RecordingStore,
    add_exchange,
    add_queue,
    consume,
    definitions_of,
    new_vhost,
    publish,
    pull,
    rebuilt,
    routed,
)

MANY = int(SLICE) + 500
ANY: dict[str, object] = {"x-filter-jms-selector": "TRUE"}
"""Bindings with a selector are counted by their exchange for as long as they are linked."""


def bind_many(
    vhost: VirtualHost, queue: Queue, exchange: str = "x", arguments: dict[str, object] = ANY
) -> None:
    """Bind a queue with the keys 1 to MANY; in the log too, if both are durable."""
    for number in range(1, MANY + 1):
        vhost.declarations.bind_queue(queue.name, exchange, str(number), arguments)


def linked(vhost: VirtualHost, exchange: str = "x") -> int:
    """Return the number of bindings with a selector that an exchange still has."""
    return int(vhost.topology.exchanges[exchange].conditional)


def listed(vhost: VirtualHost) -> list[Binding]:
    """Return all bindings as lists show them."""
    return [binding for exchange in vhost.topology.exchanges.values() for binding in exchange.bindings()]


KINDS = [
    "direct",
    "fanout",
    "topic",
    "headers",
    "x-consistent-hash",
    "x-modulus-hash",
    "x-random",
    "x-recent-history",
    "x-delayed-message",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arguments", [{}, ANY], ids=["plain", "selector"])
def test_a_deleted_queue_is_removed_from_routes_at_once(kind: str, arguments: dict[str, object]) -> None:
    clock = HandClock()
    vhost = new_vhost(clock=clock)
    delayed = {"x_delayed_type": "topic"} if kind == "x-delayed-message" else {}
    add_exchange(vhost, "x", kind, alternate_exchange="amq.fanout", **delayed)
    other = add_queue(vhost, "other")
    vhost.declarations.bind_queue("other", "amq.fanout", "", {})
    bind_many(vhost, add_queue(vhost, "q"), arguments=arguments)
    assert publish(vhost, "x", "1") is ROUTED
    assert other.ready == 0
    vhost.declarations.delete_queue("q", False, False)
    assert vhost.topology.bindings.has_deleted()
    assert listed(vhost) == vhost.topology.bindings_to(other)
    assert publish(vhost, "x", "1") is ROUTED
    assert other.ready == 1, "nothing matches, so the alternate exchange has it"
    if kind in ("direct", "fanout", "topic"):
        assert not vhost.publisher.route("x", "1").by_message, "no selector is left that could say yes"
    again = add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "x", "1", arguments)
    vhost.declarations.purge_queue("q")  # a history gives it what there was
    for _ in range(2):
        assert publish(vhost, "x", "1") is ROUTED
        assert again.ready == 1
        vhost.declarations.purge_queue("q")
        clock.advance(0)
        assert not vhost.topology.bindings.has_deleted()
        assert len(vhost.topology.bindings_to(again)) == 1
    vhost.declarations.unbind_queue("q", "x", "1", arguments)
    assert publish(vhost, "x", "1") is ROUTED
    assert other.ready == 2


def test_each_turn_unlinks_a_slice_of_deleted_bindings() -> None:
    clock = HandClock()
    vhost = new_vhost(clock=clock)
    add_exchange(vhost, "x")
    for name in ("p", "q"):
        bind_many(vhost, add_queue(vhost, name))
    for name in ("p", "q"):
        vhost.declarations.delete_queue(name, False, False)
    left = 2 * MANY - int(SLICE)
    assert linked(vhost) == left, "what is deleted in the same turn waits"
    while left > 0:
        clock.schedule.run()
        left = max(left - int(SLICE), 0)
        assert linked(vhost) == left
    assert not vhost.topology.bindings.has_deleted()


def test_incoming_exchange_bindings_are_unlinked_in_slices() -> None:
    clock = HandClock()
    vhost = new_vhost(clock=clock)
    add_exchange(vhost, "x", alternate_exchange="amq.fanout")
    add_exchange(vhost, "y", "fanout")
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "y", "", {})
    for number in range(MANY):
        vhost.declarations.bind_exchange("y", "x", str(number), ANY if number % 2 else {})
    vhost.declarations.delete_exchange("y", False)
    assert linked(vhost) > 0
    assert listed(vhost) == []
    for number in range(4):
        assert publish(vhost, "x", str(number)) is UNROUTED
    vhost.declarations.delete_exchange("x", if_unused=True)
    clock.advance(0)
    assert not vhost.topology.bindings.has_deleted()


@pytest.mark.parametrize("first", ["queue", "exchange"])
def test_deleted_bindings_do_not_bind_redeclared_ends(first: str) -> None:
    clock = HandClock()
    vhost = new_vhost(clock=clock)
    add_exchange(vhost, "x", "topic")
    add_exchange(vhost, "z", "topic")
    queues = [add_queue(vhost, "q"), add_queue(vhost, "r")]
    for queue in queues:
        bind_many(vhost, queue)
    vhost.declarations.bind_queue("r", "z", "z", {})
    if first == "queue":
        vhost.declarations.delete_queue("q", False, False)
    vhost.declarations.delete_exchange("x", False)
    if first == "exchange":
        vhost.declarations.delete_queue("q", False, False)
    assert vhost.topology.bindings.has_deleted()
    assert [binding.source.name for binding in vhost.topology.bindings_to(queues[1])] == ["z"]
    add_exchange(vhost, "x", "topic")
    add_queue(vhost, "q")
    for name in ("q", "r"):
        vhost.declarations.bind_queue(name, "x", "7", {})
    for _ in range(2):
        assert routed(vhost, "x", "7") == ["q", "r"]
        assert routed(vhost, "x", "8") == []
        assert len(vhost.topology.bindings_to(queues[1])) == 2
        clock.advance(0)
        assert not vhost.topology.bindings.has_deleted()
    vhost.declarations.delete_queue("r", False, False)
    assert len(listed(vhost)) == 1


def test_an_exchange_with_bindings_to_many_queues() -> None:
    clock = HandClock()
    vhost = new_vhost(clock=clock)
    add_exchange(vhost, "x", "fanout")
    for number in range(MANY):
        vhost.declarations.bind_queue(add_queue(vhost, f"q{number}").name, "x", "", ANY)
    gone = vhost.topology.exchanges["x"]
    vhost.declarations.delete_exchange("x", False)
    assert gone.conditional == MANY - SLICE
    assert all(vhost.topology.bindings_to(queue) == [] for queue in vhost.topology.queues.values())
    vhost.declarations.delete_queue("q0", False, False)  # this queue's slice is still to come
    assert gone.conditional == MANY - SLICE
    clock.advance(0)
    assert gone.conditional == 0


def test_an_exchange_bound_to_itself() -> None:
    vhost = new_vhost()
    add_exchange(vhost, "x", "direct", auto_delete=True)
    for number in range(MANY):
        vhost.declarations.bind_exchange("x", "x", str(number), ANY)
    vhost.declarations.delete_exchange("x", False)
    assert listed(vhost) == []
    vhost.topology.bindings.finish()
    assert not vhost.topology.bindings.has_deleted()


def durable_many(store: RecordingStore) -> VirtualHost:
    """Return a virtual host with a durable queue and many durable bindings of an auto-delete exchange."""
    vhost = new_vhost(store)
    add_exchange(vhost, "x", "direct", durable=True, auto_delete=True)
    bind_many(vhost, add_queue(vhost, "q", durable=True), arguments={})
    return vhost


def test_the_log_has_the_state_before_or_after_the_deletion() -> None:
    store = RecordingStore()
    vhost = durable_many(store)
    before = len(store.changes)
    vhost.declarations.delete_queue("q", False, False)
    assert store.kinds()[before:] == ["queue.delete", "exchange.delete"], (
        "all of it in the turn of the request"
    )
    assert vhost.topology.bindings.has_deleted()
    add_exchange(vhost, "x", "direct", durable=True)
    vhost.declarations.bind_queue(add_queue(vhost, "q", durable=True).name, "x", "1", {})
    recovered = rebuilt(store.changes[:before]).vhosts["/"]
    assert len(recovered.topology.bindings_to(recovered.topology.queues["q"])) == MANY
    recovered = rebuilt(store.changes).vhosts["/"]
    assert not recovered.topology.bindings.has_deleted(), "recovery needs no turns"
    assert [
        binding.routing_key for binding in recovered.topology.bindings_to(recovered.topology.queues["q"])
    ] == ["1"]
    assert routed(recovered, "x", "2") == []


def test_descriptions_during_the_deletion_have_no_deleted_bindings() -> None:
    store = RecordingStore()
    broker = rebuilt(durable_many(store).store.changes)  # type: ignore[attr-defined]
    vhost = broker.vhosts["/"]
    vhost.declarations.delete_queue("q", False, False)
    assert vhost.topology.bindings.has_deleted()
    assert {change["kind"] for change in definitions_of(broker)}.isdisjoint({"queue", "exchange", "binding"})
    again = rebuilt(definitions_of(broker)).vhosts["/"]
    assert listed(again) == []


def test_a_virtual_host_is_deleted_at_recovery() -> None:
    store = RecordingStore()
    durable_many(store)
    broker = rebuilt([*store.changes, {"kind": "vhost.delete", "name": "/"}])
    assert broker.vhosts == {}


def test_queues_that_go_by_themselves() -> None:
    clock = HandClock()
    vhost = new_vhost(clock=clock)
    add_exchange(vhost, "x")
    owner = object()
    vhost.declarations.declare_queue("exclusive", False, owner, False, {})
    automatic = vhost.declarations.declare_queue("automatic", False, None, True, {})
    vhost.declarations.declare_queue("unused", False, None, False, {"x-expires": 1000})
    _, consumer = consume(automatic)
    for name in ("exclusive", "automatic", "unused"):
        for number in range(MANY):
            vhost.declarations.bind_queue(name, "x", str(number), ANY, owner)
    vhost.declarations.delete_exclusive_queues(owner)
    assert linked(vhost) == 3 * MANY - SLICE
    detach(automatic, consumer, [])
    vhost.declarations.delete_if_unused(automatic)
    assert linked(vhost) == 3 * MANY - SLICE
    assert {binding.destination_name for binding in listed(vhost)} == {"unused"}
    clock.advance(1001)
    assert list(vhost.topology.queues) == []
    assert listed(vhost) == []
    assert linked(vhost) == 0
    assert publish(vhost, "x", "1") is UNROUTED


def test_unlinking_bindings_does_not_delay_consumers() -> None:
    clock = HandClock()
    vhost = new_vhost(clock=clock)
    add_exchange(vhost, "x", "topic")
    other = add_queue(vhost, "other")
    vhost.declarations.bind_queue("other", "x", "#", {})
    bind_many(vhost, add_queue(vhost, "q"), arguments={})
    route = vhost.publisher.route("x", "7")
    assert {queue.name for queue in route.queues} == {"other", "q"}
    taker, consumer = consume(other)
    vhost.declarations.delete_queue("q", False, False)
    while vhost.topology.bindings.has_deleted():
        epoch = vhost.topology.epoch
        clock.schedule.run()
        assert vhost.topology.epoch == epoch, "routes that were resolved since stay right"
        assert publish(vhost, "x", "7") is ROUTED
    assert pull(consumer) == len(taker.taken) == 1, "a turn was enough for the rest"
