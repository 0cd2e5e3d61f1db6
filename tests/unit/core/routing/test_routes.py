"""Routes from an exchange and a key to queues, and publishing on a route."""

import pytest

from broker.core.errors import AccessRefused, NotFound, StoreFailed
from broker.core.message import Message
from broker.core.publishing.publisher import NO_CONSUMER, ROUTED, UNROUTED
from tests.support.core.topology import (
    RecordingStore,
    add_exchange,
    add_queue,
    consume,
    content_of,
    new_vhost,
    publish,
    routed,
    view_of,
)


def test_the_default_exchange_routes_by_name() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    assert publish(vhost, "", "q") is ROUTED
    assert publish(vhost, "", "p") is UNROUTED
    assert queue.ready == 1
    assert (vhost.counters.published, vhost.counters.unroutable) == (2, 1)


def test_routes_that_cannot_be() -> None:
    vhost = new_vhost()
    add_exchange(vhost, "i", internal=True)
    with pytest.raises(NotFound) as absent:
        vhost.publisher.route("x", "")
    assert absent.value.text == "no exchange 'x' in vhost '/'"
    with pytest.raises(AccessRefused) as internal:
        vhost.publisher.route("i", "")
    assert internal.value.text == "cannot publish to internal exchange 'i' in vhost '/'"


def test_a_route_is_fresh_and_has_its_address() -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    route = vhost.publisher.route("", "q")
    assert vhost.publisher.route("", "q") is not route
    assert (route.address.exchange, route.address.routing_key) == ("", "q")
    assert route.address.encoded == b"\x00\x01q"
    assert route.exchange.name == ""
    assert route.epoch == vhost.topology.epoch


def test_a_kept_route_follows_every_change() -> None:
    vhost = new_vhost()
    add_exchange(vhost, "x", "fanout")
    route = vhost.publisher.route("x", "")
    counts = []

    def count() -> None:
        outcome = vhost.publisher.publish(route, Message(route.address, b"", 0, False, 0))
        counts.append(len(route.queues))
        assert outcome is (ROUTED if route.queues else UNROUTED)

    count()
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "x", "", {})
    count()
    add_exchange(vhost, "y", "fanout")
    vhost.declarations.bind_exchange("y", "x", "", {})
    add_queue(vhost, "p")
    vhost.declarations.bind_queue("p", "y", "", {})
    count()
    vhost.declarations.unbind_exchange("y", "x", "", {})
    count()
    vhost.declarations.delete_queue("q", if_unused=False, if_empty=False)
    count()
    assert counts == [0, 1, 2, 1, 0]


def test_a_kept_route_follows_the_deletion_and_redeclaration_of_its_exchange() -> None:
    vhost = new_vhost()
    add_exchange(vhost, "x", "fanout")
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "x", "", {})
    route = vhost.publisher.route("x", "")
    message = Message(route.address, b"", 0, False, 0)
    vhost.declarations.delete_exchange("x", if_unused=False)
    for _ in range(2):
        with pytest.raises(NotFound):
            vhost.publisher.publish(route, message)
        assert route.epoch == 0
    add_exchange(vhost, "x", "direct", internal=True)
    with pytest.raises(AccessRefused):
        vhost.publisher.publish(route, message)
    vhost.declarations.delete_exchange("x", if_unused=False)
    add_exchange(vhost, "x", "direct")
    vhost.declarations.bind_queue("q", "x", "", {})
    assert vhost.publisher.publish(route, message) is ROUTED
    assert route.exchange is vhost.declarations.find_exchange("x")
    assert vhost.counters.published == 1


def test_exchange_to_exchange_with_cycles_delivers_once() -> None:
    vhost = new_vhost()
    for name in "abc":
        add_exchange(vhost, name, "fanout")
        add_queue(vhost, f"q{name}")
        vhost.declarations.bind_queue(f"q{name}", name, "", {})
    for destination, source in ("ba", "cb", "ac", "aa", "ca"):
        vhost.declarations.bind_exchange(destination, source, "", {})
    vhost.declarations.bind_queue("qa", "c", "", {})
    assert routed(vhost, "b") == ["qa", "qb", "qc"]
    assert publish(vhost, "b") is ROUTED
    assert [vhost.declarations.find_queue(name).ready for name in ("qa", "qb", "qc")] == [1, 1, 1]


def test_the_key_is_matched_again_by_every_exchange_on_the_way() -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    vhost.declarations.bind_exchange("amq.direct", "amq.topic", "a.#", {})
    vhost.declarations.bind_queue("q", "amq.direct", "a.b", {})
    assert routed(vhost, "amq.topic", "a.b") == ["q"]
    assert routed(vhost, "amq.topic", "a.c") == []


def test_two_bindings_to_one_exchange_are_removed_one_by_one() -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "amq.direct", "", {})
    for key in "ab":
        vhost.declarations.bind_exchange("amq.direct", "amq.fanout", key, {})
    vhost.declarations.unbind_exchange("amq.direct", "amq.fanout", "a", {})
    assert routed(vhost, "amq.fanout") == ["q"]
    vhost.declarations.unbind_exchange("amq.direct", "amq.fanout", "b", {})
    assert routed(vhost, "amq.fanout") == []


def test_an_internal_exchange_is_reached_through_bindings() -> None:
    vhost = new_vhost()
    add_exchange(vhost, "i", "fanout", internal=True)
    add_queue(vhost, "q")
    vhost.declarations.bind_exchange("i", "amq.fanout", "", {})
    vhost.declarations.bind_queue("q", "i", "", {})
    assert routed(vhost, "amq.fanout") == ["q"]


def test_the_alternate_exchange_gets_messages_without_a_matching_binding() -> None:
    vhost = new_vhost()
    add_exchange(vhost, "x", "direct", alternate_exchange="y")
    add_exchange(vhost, "y", "direct", alternate_exchange="z")
    add_exchange(vhost, "z", "fanout", internal=True)
    for name, exchange, key in (("qx", "x", "a"), ("qy", "y", "b"), ("qz", "z", "")):
        add_queue(vhost, name)
        vhost.declarations.bind_queue(name, exchange, key, {})
    assert routed(vhost, "x", "a") == ["qx"]
    assert routed(vhost, "x", "b") == ["qy"]
    assert routed(vhost, "x", "c") == ["qz"]
    assert publish(vhost, "x", "c") is ROUTED
    assert vhost.counters.unroutable == 0


def test_every_exchange_on_the_way_has_its_alternate() -> None:
    vhost = new_vhost()
    add_exchange(vhost, "y", "direct", alternate_exchange="z")
    add_exchange(vhost, "z", "fanout")
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "z", "", {})
    vhost.declarations.bind_exchange("y", "amq.fanout", "", {})
    assert routed(vhost, "amq.fanout") == ["q"]


def test_a_match_that_leads_nowhere_is_a_match() -> None:
    vhost = new_vhost()
    add_exchange(vhost, "x", "fanout", alternate_exchange="amq.fanout")
    add_exchange(vhost, "dead-end", "direct")
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "amq.fanout", "", {})
    vhost.declarations.bind_exchange("dead-end", "x", "", {})
    assert routed(vhost, "x") == []
    assert publish(vhost, "x") is UNROUTED


def test_alternate_exchanges_may_be_absent_circular_or_the_default_one() -> None:
    vhost = new_vhost()
    add_exchange(vhost, "x", "direct", alternate_exchange="absent")
    add_exchange(vhost, "a", "direct", alternate_exchange="b")
    add_exchange(vhost, "b", "direct", alternate_exchange="a")
    add_exchange(vhost, "d", "direct", alternate_exchange="")
    add_queue(vhost, "q")
    assert routed(vhost, "x", "k") == []
    assert routed(vhost, "a", "k") == []
    assert routed(vhost, "d", "q") == ["q"]


def test_a_headers_exchange_anywhere_on_the_way_needs_the_headers() -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    add_exchange(vhost, "x", "fanout")
    add_exchange(vhost, "y", "direct", alternate_exchange="amq.headers")
    vhost.declarations.bind_queue("q", "amq.headers", "", {"a": 1})
    kept = vhost.publisher.route("x", "")
    assert not kept.by_message
    vhost.declarations.bind_exchange("amq.headers", "x", "", {})
    assert vhost.publisher.route("amq.headers", "").by_message
    assert vhost.publisher.route("x", "").by_message
    assert vhost.publisher.route("y", "").by_message
    for exchange in ("amq.headers", "x", "y"):
        assert publish(vhost, exchange, headers={"a": 1}) is ROUTED
        assert publish(vhost, exchange, headers={"a": 2}) is UNROUTED


def test_a_kept_route_that_has_come_to_need_headers_is_resolved_by_message() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    route = vhost.publisher.route("amq.fanout", "")
    message = Message(route.address, content_of(headers={"a": 2}), 0, False, 0)
    assert vhost.publisher.publish(route, message) is UNROUTED
    vhost.declarations.bind_exchange("amq.headers", "amq.fanout", "", {})
    vhost.declarations.bind_queue("q", "amq.headers", "", {"a": 1})
    assert vhost.publisher.publish(route, message) is UNROUTED
    assert vhost.counters.published == 2
    wanted = Message(route.address, content_of(headers={"a": 1}), 0, False, 0)
    assert vhost.publisher.publish(route, wanted) is ROUTED
    assert queue.ready == 1
    vhost.declarations.purge_queue("q")
    assert vhost.publisher.publish_by_message(route, message, [""], view_of(headers={"a": 1})) is ROUTED
    assert queue.ready == 1
    vhost.declarations.delete_queue("q", if_unused=False, if_empty=False)
    assert vhost.publisher.publish_by_message(route, message, [""], view_of(headers={"a": 1})) is UNROUTED
    assert (vhost.counters.published, vhost.counters.unroutable) == (5, 3)


def test_a_persistent_message_is_appended_once_for_all_logged_queues() -> None:
    store = RecordingStore()
    vhost = new_vhost(store)
    for name, durable in (("d1", True), ("t", False), ("d2", True)):
        add_queue(vhost, name, durable)
        vhost.declarations.bind_queue(name, "amq.fanout", "", {})
        vhost.declarations.bind_queue(name, "amq.headers", "", {})
    assert publish(vhost, "amq.fanout", persistent=True) is ROUTED
    assert publish(vhost, "amq.fanout", persistent=False) is ROUTED
    assert publish(vhost, "", "t", persistent=True) is ROUTED
    assert publish(vhost, "amq.headers", persistent=True, headers={}) is ROUTED
    assert [queues for _, queues in store.enqueued] == [["d1", "d2"], ["d1", "d2"]]


def test_after_a_store_failure_only_persistent_messages_for_durable_queues_are_refused() -> None:
    store = RecordingStore()
    vhost = new_vhost(store)
    queue = add_queue(vhost, "d", durable=True)
    add_queue(vhost, "t")
    vhost.declarations.bind_queue("d", "amq.headers", "", {})
    store.failure = "sync failed"
    with pytest.raises(StoreFailed, match="the log has stopped: sync failed"):
        publish(vhost, "", "d", persistent=True)
    with pytest.raises(StoreFailed, match="sync failed"):
        publish(vhost, "amq.headers", persistent=True, headers={})
    assert queue.ready == 0
    assert publish(vhost, "", "d", persistent=False) is ROUTED
    assert publish(vhost, "", "t", persistent=True) is ROUTED
    assert publish(vhost, "", "absent", persistent=True) is UNROUTED


def test_immediate_goes_only_where_a_consumer_waits() -> None:
    store = RecordingStore()
    vhost = new_vhost(store)
    idle = add_queue(vhost, "idle", durable=True)
    busy = add_queue(vhost, "busy", durable=True)
    for name in ("idle", "busy"):
        vhost.declarations.bind_queue(name, "amq.fanout", "", {})
        vhost.declarations.bind_queue(name, "amq.headers", "", {})
    assert publish(vhost, "amq.fanout", persistent=True, immediate=True) == NO_CONSUMER
    assert vhost.counters.unroutable == 1
    assert publish(vhost, "amq.direct", persistent=True, immediate=True) is UNROUTED
    assert vhost.counters.unroutable == 2
    taker, _ = consume(busy)
    assert publish(vhost, "amq.fanout", persistent=True, immediate=True) is ROUTED
    assert publish(vhost, "amq.headers", persistent=True, headers={}, immediate=True) is ROUTED
    assert len(taker.taken) == 2
    assert (idle.ready, busy.ready, busy.unacked) == (0, 0, 2)
    sequences = [(message.sequence, queue) for message, queue in store.settled]
    assert sequences == [(1, "idle"), (1, "busy"), (2, "idle"), (3, "idle")]
