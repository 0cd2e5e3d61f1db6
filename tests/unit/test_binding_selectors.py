"""Bindings with a selector, of every kind of exchange."""

import json

import pytest

from broker.core.errors import PreconditionFailed
from broker.core.message import Message
from broker.core.publishing.outcome import ROUTED, UNROUTED
from broker.core.vhosts.vhost import VirtualHost
from tests.topology import (
    RecordingStore,
    add_exchange,
    add_queue,
    content_of,
    definitions_of,
    new_broker,
    new_vhost,
    publish,
    routed,
)

SELECTOR = "x-filter-jms-selector"
KEYS = {"x-consistent-hash": "1", "x-local-random": ""}


def selected(vhost: VirtualHost, queue: str, exchange: str, selector: object, key: str = "k") -> None:
    """Bind a new queue with a selector."""
    add_queue(vhost, queue)
    vhost.declarations.bind_queue(
        queue, exchange, KEYS.get(vhost.topology.exchanges[exchange].kind, key), {SELECTOR: selector}
    )


def takers(vhost: VirtualHost, exchange: str, key: str = "k", **headers: object) -> list[str]:
    """The queues that get a message with these headers."""
    outcome = publish(vhost, exchange, key, headers=headers)
    names = [name for name, queue in vhost.topology.queues.items() if queue.ready]
    for name in names:
        vhost.declarations.purge_queue(name)
    assert outcome is (ROUTED if names else UNROUTED)
    return sorted(names)


@pytest.mark.parametrize(
    "kind",
    [
        "direct",
        "fanout",
        "topic",
        "headers",
        "x-recent-history",
        "x-consistent-hash",
        "x-modulus-hash",
        "x-random",
        "x-local-random",
    ],
)
def test_a_binding_applies_if_its_selector_is_true(kind: str) -> None:
    vhost = new_vhost()
    add_exchange(vhost, "x", kind, alternate_exchange="amq.fanout")
    add_queue(vhost, "alternate")
    vhost.declarations.bind_queue("alternate", "amq.fanout", "", {})
    selected(vhost, "low", "x", "level < 5")
    selected(vhost, "high", "x", "level >= 5")
    assert takers(vhost, "x", level=1) == ["low"]
    assert takers(vhost, "x", level=9) == ["high"]
    assert takers(vhost, "x") == ["alternate"]
    assert takers(vhost, "x", level="text") == ["alternate"]
    vhost.declarations.unbind_queue("low", "x", KEYS.get(kind, "k"), {SELECTOR: "level < 5"})
    assert takers(vhost, "x", level=1) == ["alternate"]
    assert vhost.topology.exchanges["x"].conditional == 1
    vhost.declarations.delete_queue("high", if_unused=False, if_empty=False)
    assert takers(vhost, "x", level=9) == ["alternate"]
    assert vhost.topology.exchanges["x"].conditional == 0


def test_only_messages_that_a_selector_may_concern_are_routed_one_by_one() -> None:
    vhost = new_vhost()
    add_exchange(vhost, "x", "topic")
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "x", "a.*", {})
    selected(vhost, "s", "x", "level = 1", "b.*")
    assert [vhost.publisher.route("x", key).by_message for key in ("a.x", "b.x")] == [False, True]
    assert takers(vhost, "x", "b.x", level=1) == ["s"]
    add_queue(vhost, "s")
    vhost.declarations.bind_queue("s", "x", "a.#", {SELECTOR: "level = 2"})
    assert vhost.publisher.route("x", "a.x").by_message
    assert takers(vhost, "x", "a.x", level=1) == ["q"]
    assert takers(vhost, "x", "a.x", level=2) == ["q", "s"]
    vhost.declarations.unbind_queue("s", "x", "a.#", {SELECTOR: "level = 2"})
    assert routed(vhost, "x", "a.x") == ["q"]


def test_a_kept_route_notices_a_selector() -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "amq.direct", "k", {})
    route = vhost.publisher.route("amq.direct", "k")
    selected(vhost, "s", "amq.direct", "level = 1")
    for level in (2, 1):
        message = Message(route.address, content_of(headers={"level": level}), 0, False, 0)
        assert vhost.publisher.publish(route, message) is ROUTED
    assert [queue.ready for queue in vhost.topology.queues.values()] == [2, 1]


def test_a_queue_is_reached_by_any_of_its_bindings_once() -> None:
    vhost = new_vhost()
    for selector in ("a = 1", "b = 1"):
        selected(vhost, "q", "amq.fanout", selector)
    assert takers(vhost, "amq.fanout", a=1, b=1) == ["q"]
    assert takers(vhost, "amq.fanout", b=1) == ["q"]
    assert takers(vhost, "amq.fanout", c=1) == []
    vhost.declarations.bind_queue("q", "amq.fanout", "k", {})
    assert takers(vhost, "amq.fanout") == ["q"]
    assert len(vhost.topology.bindings_to(vhost.topology.queues["q"])) == 3


def test_exchanges_bound_with_a_selector() -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "amq.direct", "k", {})
    vhost.declarations.bind_exchange("amq.direct", "amq.fanout", "", {SELECTOR: "good"})
    assert takers(vhost, "amq.fanout", good=True) == ["q"]
    assert takers(vhost, "amq.fanout", good=False) == []
    vhost.declarations.unbind_exchange("amq.direct", "amq.fanout", "", {SELECTOR: "good"})
    assert not vhost.publisher.route("amq.fanout", "k").by_message


@pytest.mark.parametrize("match", ["all", "any", "all-with-x", "any-with-x"])
def test_headers_and_selector_must_both_match(match: str) -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    arguments: dict[str, object] = {"x-match": match, "a": 1, SELECTOR: "b = 2"}
    vhost.declarations.bind_queue("q", "amq.headers", "", arguments)
    assert takers(vhost, "amq.headers", a=1, b=2) == ["q"]
    assert takers(vhost, "amq.headers", a=1) == []
    assert takers(vhost, "amq.headers", b=2) == []


def test_one_of_the_destinations_whose_selectors_are_true() -> None:
    vhost = new_vhost()
    add_exchange(vhost, "x", "x-consistent-hash")
    for name in "abc":
        add_queue(vhost, name)
        vhost.declarations.bind_queue(name, "x", "1", {})
    keys = [str(number) for number in range(300)]
    before = {key: routed(vhost, "x", key)[0] for key in keys}
    selected(vhost, "d", "x", "level = 1")
    assert {key: takers(vhost, "x", key)[0] for key in keys} == before
    with_d = {key: takers(vhost, "x", key, level=1)[0] for key in keys}
    moved = {key for key in keys if with_d[key] != before[key]}
    assert {with_d[key] for key in moved} == {"d"}
    assert len(moved) == pytest.approx(75, abs=30)


def test_a_history_is_given_out_as_the_selector_says() -> None:
    vhost = new_vhost()
    add_exchange(vhost, "x", "x-recent-history")
    for level in (1, 2, 3):
        publish(vhost, "x", headers={"level": level})
    selected(vhost, "q", "x", "level > 1")
    assert vhost.topology.queues["q"].ready == 2


def test_spaces_are_no_selector() -> None:
    vhost = new_vhost()
    selected(vhost, "q", "amq.fanout", "  ")
    assert routed(vhost, "amq.fanout") == ["q"]


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        (5, "'5' of type 'signedint' is not a string"),
        ("a = ", "position 5: expected a value or a condition, found the end"),
        ("x" * 5000, "5000 characters, at most 4096 are allowed"),
    ],
)
def test_what_is_no_selector_is_refused(selector: object, why: str) -> None:
    vhost = new_vhost()
    with pytest.raises(PreconditionFailed) as refusal:
        selected(vhost, "q", "amq.fanout", selector)
    assert refusal.value.text == (
        f"invalid arg 'x-filter-jms-selector' for the binding of exchange 'amq.fanout' to queue 'q': {why}"
    )
    assert vhost.topology.exchanges["amq.fanout"].outgoing == {}


def test_durable_bindings_keep_their_selectors() -> None:
    store = RecordingStore()
    broker = new_broker(store)
    vhost = broker.declare_vhost("/")
    add_queue(vhost, "q", durable=True)
    vhost.declarations.bind_queue("q", "amq.topic", "#", {SELECTOR: "level = 1"})
    again = new_broker()
    for change in definitions_of(broker):
        again.apply(json.loads(json.dumps(change)))
    assert takers(again.vhost("/"), "amq.topic", level=1) == ["q"]
    assert takers(again.vhost("/"), "amq.topic", level=2) == []
    broken = json.loads(json.dumps(store.changes[-1]))
    broken["arguments"][SELECTOR] = "level ="
    with pytest.raises(ValueError, match="position 8"):
        again.apply(broken)
    with pytest.raises(ValueError, match="unknown exchange type 'zzz'"):
        again.apply(
            {"kind": "exchange", "vhost": "/", "name": "x", "type": "zzz", "arguments": {}}
            | {"auto_delete": False, "internal": False}
        )
