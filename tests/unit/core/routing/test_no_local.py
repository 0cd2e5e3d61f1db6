"""Queues that do not receive their own connection's messages: bindings with `x-no-local`."""

import pytest

from broker.core.message import Message
from broker.core.publishing.publisher import ROUTED, UNROUTED
from broker.core.routing.bindings import NO_LOCAL
from broker.core.vhosts.vhost import VirtualHost
from tests.support.core.topology import RecordingStore, add_exchange, add_queue, new_vhost, rebuilt

OWN: dict[str, object] = {NO_LOCAL: "own"}
OTHER: dict[str, object] = {NO_LOCAL: "other"}


def reached(vhost: VirtualHost, publisher: str, exchange: str = "x") -> bool:
    """Whether `q` gets the messages of a publisher."""
    return bool(vhost.publisher.route(exchange, "q", (publisher,)).queues)


@pytest.fixture
def vhost() -> VirtualHost:
    vhost = new_vhost()
    add_exchange(vhost, "x", "fanout")
    add_queue(vhost, "q")
    return vhost


def test_a_queue_does_not_receive_the_messages_of_its_own_connection(vhost: VirtualHost) -> None:
    vhost.declarations.bind_queue("q", "x", "k", OWN)
    assert not reached(vhost, "own")
    assert reached(vhost, "other")
    assert not reached(vhost, "own", ""), "on no route"


def test_the_effect_ends_with_the_binding(vhost: VirtualHost) -> None:
    vhost.declarations.bind_queue("q", "x", "k", OWN)
    vhost.declarations.unbind_queue("q", "x", "k", OWN)
    vhost.declarations.bind_queue("q", "x", "k", {})
    assert reached(vhost, "own")


def test_a_kept_route_notices_the_end_of_the_effect(vhost: VirtualHost) -> None:
    vhost.declarations.bind_queue("q", "x", "k", {})
    vhost.declarations.bind_queue("q", "x", "k", OWN)
    route = vhost.publisher.route("x", "k", ("own",))
    assert vhost.publisher.publish(route, Message(route.address, b"", 0, False, 0)) is UNROUTED
    vhost.declarations.unbind_queue("q", "x", "k", OWN)
    assert vhost.publisher.publish(route, Message(route.address, b"", 0, False, 0)) is ROUTED


def test_the_effect_lasts_as_long_as_another_binding_has_the_argument(vhost: VirtualHost) -> None:
    vhost.declarations.bind_queue("q", "x", "k", OWN)
    vhost.declarations.bind_queue("q", "amq.direct", "k", OWN)
    vhost.declarations.unbind_queue("q", "amq.direct", "k", OWN)
    assert not reached(vhost, "own")


def test_the_newest_binding_counts(vhost: VirtualHost) -> None:
    vhost.declarations.bind_queue("q", "x", "k", OWN)
    vhost.declarations.bind_queue("q", "x", "k", OTHER)
    assert (reached(vhost, "own"), reached(vhost, "other")) == (True, False)
    vhost.declarations.unbind_queue("q", "x", "k", OTHER)
    assert (reached(vhost, "own"), reached(vhost, "other")) == (False, True)


def test_the_effect_ends_with_the_exchange(vhost: VirtualHost) -> None:
    vhost.declarations.bind_queue("q", "x", "k", OWN)
    vhost.declarations.delete_exchange("x", False)
    assert reached(vhost, "own", "")


def test_the_effect_has_ended_after_a_restart_too() -> None:
    store = RecordingStore()
    vhost = new_vhost(store)
    add_exchange(vhost, "x", "fanout", durable=True)
    add_queue(vhost, "q", durable=True)
    vhost.declarations.bind_queue("q", "x", "k", OWN)
    assert not reached(rebuilt(store.changes).vhost("/"), "own")
    vhost.declarations.unbind_queue("q", "x", "k", OWN)
    vhost.declarations.bind_queue("q", "x", "k", {})
    assert reached(rebuilt(store.changes).vhost("/"), "own")
