"""Exchanges that hold messages: until when, and what becomes of them then."""

import pytest

from broker.adapters.formats.amqp091 import View091
from broker.core.errors import PreconditionFailed
from broker.core.message import Message
from broker.core.publishing.outcome import ROUTED
from broker.core.routing.kinds import DELAY_MAX, delay_of
from broker.core.view import MessageView
from protocol.amqp091.properties import Properties
from tests.delays import Site, bound, entries, headers_of
from tests.topology import add_exchange, content_of, publish

# --- declaring


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        ({"x-delayed-type": 5}, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        ({"x-delayed-type": "nope"}, "unknown exchange type 'nope'"),
        (
            {"x-delayed-type": "x-delayed-message"},
            "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'",
        ),
        (
            {"x-delayed-type": "x-recent-history"},
            "Invalid argument, 'x-recent-history' can't be used for 'x-delayed-type'",
        ),
    ],
)
def test_how_to_route_must_be_said(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(PreconditionFailed) as refusal:
        Site().vhost.declarations.declare_exchange("y", "x-delayed-message", True, False, False, arguments)
    assert refusal.value.text == text


def test_a_redeclaration_must_route_in_the_same_way() -> None:
    site = Site()
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'x-delayed-type' for exchange 'x'"):
        add_exchange(site.vhost, "x", "x-delayed-message", **{"x-delayed-type": "topic"})
    add_exchange(site.vhost, "x", "x-delayed-message", **{"x-delayed-type": "direct"})


def test_bindings_are_checked_by_the_exchange_that_routes() -> None:
    site = Site("headers")
    with pytest.raises(PreconditionFailed):
        bound(site.vhost, "q", arguments={"x-match": "some"})


# --- for how long


@pytest.mark.parametrize(
    ("value", "delay"),
    [
        (1, 1),
        (DELAY_MAX, DELAY_MAX),
        (DELAY_MAX + 1, 0),
        (0, 0),
        (-5, 0),
        ("250", 250),
        ("+250", 250),
        ("-250", 0),
        ("250 ms", 0),
        ("", 0),
        ("9" * 5000, 0),
        ("२५०", 0),
        (1.9, 1),
        (float("nan"), 0),
        (float("inf"), 0),
        (True, 0),
        (None, 0),
        (b"250", 0),
        ([250], 0),
    ],
)
def test_what_the_header_may_say(value: object, delay: int) -> None:
    class View(MessageView):
        def headers(self) -> dict[str, object]:
            return {"x-delay": value}

    assert delay_of(View()) == delay


def test_without_the_header_nothing_is_held() -> None:
    site = Site()
    queue = bound(site.vhost, "q")
    assert publish(site.vhost, "x", "k") is ROUTED
    assert site.publish(-100) is ROUTED
    assert site.publish(DELAY_MAX + 1) is ROUTED
    assert queue.ready == 3
    assert [headers_of(entry.message).get("x-delay") for entry in entries(queue)] == [
        None,
        -100,
        DELAY_MAX + 1,
    ]


# --- what becomes of it


def test_a_message_is_held_and_then_routed_as_the_bindings_are_by_then() -> None:
    site = Site()
    gone = bound(site.vhost, "gone")
    assert site.publish(1000) is ROUTED, "it is not unroutable"
    assert site.publish("500") is ROUTED
    site.vhost.declarations.unbind_queue("gone", "x", "k", {})
    queue = bound(site.vhost, "q")
    site.clock.advance(499)
    assert (queue.ready, site.held) == (0, 2)
    site.clock.advance(1)
    assert (queue.ready, site.held) == (1, 1)
    site.clock.advance(500)
    assert (queue.ready, gone.ready, site.held) == (2, 0, 0)
    assert [headers_of(entry.message)["x-delay"] for entry in entries(queue)] == [-500, -1000]
    assert site.counters.published == 2


def test_messages_of_one_date_keep_their_order() -> None:
    site = Site()
    queue = bound(site.vhost, "q")
    for number in range(1000):
        site.publish(50, headers={"number": number})
    site.clock.advance(50)
    site.clock.advance(1)
    assert [headers_of(entry.message)["number"] for entry in entries(queue)] == list(range(1000))


@pytest.mark.parametrize(
    ("kind", "binding", "arguments"),
    [
        ("direct", "a.b", {}),
        ("topic", "a.*", {}),
        ("fanout", "anything", {}),
        ("headers", "", {"x-match": "all", "color": "red"}),
        ("x-consistent-hash", "1", {}),
        ("x-random", "", {}),
    ],
)
def test_every_type_routes_late_and_at_once(kind: str, binding: str, arguments: dict[str, object]) -> None:
    site = Site(kind)
    queue = bound(site.vhost, "q", key=binding, arguments=arguments)
    for delay in (0, 10):
        assert site.publish(delay, "a.b", headers={"color": "red"}) is ROUTED
    assert queue.ready == 1
    site.clock.advance(10)
    assert queue.ready == 2
    site.vhost.declarations.unbind_queue("q", "x", binding, arguments)
    site.publish(10, "a.b", headers={"color": "red"})
    site.clock.advance(10)
    assert queue.ready == 2


def test_what_nothing_matches_by_then_goes_to_the_alternate_exchange_or_nowhere() -> None:
    site = Site()
    site.publish(10)
    site.clock.advance(10)
    assert site.counters.unroutable == 1
    add_exchange(site.vhost, "ae", "fanout")
    add_exchange(
        site.vhost,
        "y",
        "x-delayed-message",
        **{"x-delayed-type": "direct", "alternate-exchange": "ae"},
    )
    rest = bound(site.vhost, "rest", "ae")
    site.publish(10, exchange="y")
    assert rest.ready == 0, "a held message is matched"
    site.clock.advance(10)
    assert rest.ready == 1


def test_on_its_way_from_exchange_to_exchange_a_message_is_held_once() -> None:
    site = Site("fanout")
    add_exchange(site.vhost, "first", "fanout")
    add_exchange(site.vhost, "y", "x-delayed-message", **{"x-delayed-type": "fanout"})
    site.vhost.declarations.bind_exchange("x", "first", "", {})
    site.vhost.declarations.bind_exchange("y", "x", "", {})
    at_once = bound(site.vhost, "at once", "first")
    late = bound(site.vhost, "late", "y")
    assert site.publish(100, exchange="first") is ROUTED
    assert (at_once.ready, late.ready) == (1, 0)
    site.clock.advance(100)
    assert (at_once.ready, late.ready) == (1, 1)
    assert headers_of(entries(at_once)[0].message)["x-delay"] == 100
    assert entries(late)[0].message.address.exchange == "first"


def test_further_routing_keys_count_by_then_and_hidden_ones_stay_hidden() -> None:
    site = Site()
    queues = [bound(site.vhost, key, key=key) for key in ("k", "copy", "blind")]
    content = content_of(headers={"x-delay": 5, "CC": ["copy"], "BCC": ["blind"]})
    route = site.vhost.publisher.route("x", "k")
    message = Message(route.address, content, 0, False, 0)
    view = View091(Properties(content))
    assert route.exchange.delays_message(view)
    assert site.vhost.publisher.publish_by_message(route, message, ["k", "copy", "blind"], view) is ROUTED
    site.clock.advance(5)
    assert [queue.ready for queue in queues] == [1, 1, 1]
    assert headers_of(entries(queues[0])[0].message) == {"x-delay": -5, "CC": ["copy"]}


def test_other_properties_come_through_as_they_were() -> None:
    site = Site()
    queue = bound(site.vhost, "q")
    site.publish(5, headers={"a": 1}, content_type="text/plain", priority=7, message_id="m")
    site.clock.advance(5)
    expected = content_of(
        headers={"x-delay": -5, "a": 1}, content_type="text/plain", priority=7, message_id="m"
    )
    [entry] = entries(queue)
    assert entry.message.content is not None
    found = View091(Properties(entry.message.content))
    wanted = View091(Properties(expected))
    for name in ("content_type", "priority", "message_id"):
        assert found.property(name) == wanted.property(name)
    assert found.headers() == wanted.headers()
