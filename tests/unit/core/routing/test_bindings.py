"""Bindings of queues and exchanges, with and without selectors."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from broker.core.errors import AccessRefused, BrokerError, NotFound, PreconditionFailed, StoreFailed
from broker.core.message import Message
from broker.core.publishing.publisher import ROUTED, UNROUTED
from broker.core.vhosts.vhost import VirtualHost
from tests.support.core.topology import (
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

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_direct() -> None:
    vhost = new_vhost()
    for name in ("a", "b"):
        add_queue(vhost, name)
        vhost.declarations.bind_queue(name, "amq.direct", "k", {})
    vhost.declarations.bind_queue("b", "amq.direct", "l", {})
    assert routed(vhost, "amq.direct", "k") == ["a", "b"]
    assert routed(vhost, "amq.direct", "l") == ["b"]
    assert routed(vhost, "amq.direct", "") == []
    vhost.declarations.unbind_queue("a", "amq.direct", "k", {})
    assert routed(vhost, "amq.direct", "k") == ["b"]


def test_fanout_takes_any_key() -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "amq.fanout", "ignored", {})
    assert routed(vhost, "amq.fanout", "other") == ["q"]


@pytest.mark.parametrize(
    ("pattern", "keys", "others"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "b.a", "a.b."]),
        ("a.*", ["a.b", "a.", "a.*", "a.#"], ["a", "a.b.c"]),
        ("*", ["a", "*", "#"], ["", "a.b"]),
        ("#", ["", "a", "a.b", "...."], []),
        ("a.#", ["a", "a.b", "a.b.c", "a."], ["", "b.a"]),
        ("#.a", ["a", "b.a", ".a"], ["", "a.b"]),
        ("#.a.#", ["a", "a.b", "b.a", "b.a.c"], ["", "b"]),
        ("*.#", ["a", "a.b"], [""]),
        ("#.*", ["a", "a.b"], [""]),
        ("#.#.#", ["", "a", "a.b"], []),
        ("#.*.#.*", ["a.b", "a.b.c"], ["", "a"]),
        ("", [""], ["a", "."]),
        (".", ["."], ["", "a", ".."]),
        ("a..b", ["a..b"], ["a.b", "a.x.b"]),
        ("a.*.b", ["a..b", "a.x.b"], ["a.b"]),
        ("a.**.b", ["a.**.b"], ["a.x.b"]),
    ],
)
def test_topic(pattern: str, keys: list[str], others: list[str]) -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "amq.topic", pattern, {})
    assert [key for key in keys + others if routed(vhost, "amq.topic", key)] == keys
    vhost.declarations.unbind_queue("q", "amq.topic", pattern, {})
    assert [key for key in keys + others if routed(vhost, "amq.topic", key)] == []


def test_a_literal_wildcard_in_a_key_is_a_plain_word() -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "amq.topic", "a.*.c", {})
    vhost.declarations.bind_queue("q", "amq.topic", "b.#.c", {})
    assert routed(vhost, "amq.topic", "a.*") == []
    assert routed(vhost, "amq.topic", "b.#") == []


def test_longest_keys_and_many_wildcards() -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "amq.topic", "#.." * 85, {})
    assert routed(vhost, "amq.topic", "." * 255) == ["q"]
    assert routed(vhost, "amq.topic", "." * 254 + "x") == []
    with pytest.raises(PreconditionFailed, match="routing key is 256 bytes long"):
        vhost.declarations.bind_queue("q", "amq.topic", "." * 256, {})
    with pytest.raises(PreconditionFailed, match="routing key is 256 bytes long"):
        vhost.publisher.route("amq.topic", "." * 256)


def test_two_spellings_of_a_pattern_are_two_bindings() -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "amq.topic", "#.*", {})
    vhost.declarations.bind_queue("q", "amq.topic", "*.#", {})
    vhost.declarations.unbind_queue("q", "amq.topic", "#.*", {})
    assert routed(vhost, "amq.topic", "a") == ["q"]
    vhost.declarations.unbind_queue("q", "amq.topic", "#.*", {})
    assert routed(vhost, "amq.topic", "a") == ["q"]
    vhost.declarations.unbind_queue("q", "amq.topic", "*.#", {})
    assert routed(vhost, "amq.topic", "a") == []


@pytest.mark.parametrize(
    ("arguments", "headers", "matches"),
    [
        ({}, {}, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"a": 1, "b": "s"}, {"a": 1, "b": "s", "c": 0}, True),
        ({"a": 1, "b": "s"}, {"a": 1}, False),
        ({"a": 1, "b": "s"}, {"a": 1, "b": "t"}, False),
        ({"x-match": "all", "a": 1}, {"a": 2}, False),
        ({"x-match": "any", "a": 1, "b": 2}, {"b": 2}, True),
        ({"x-match": "any", "a": 1, "b": 2}, {"b": 3}, False),
        ({"a": None}, {"a": "whatever"}, True),
        ({"a": None}, {"b": 1}, False),
        ({"a": 1}, {"a": 2**40}, False),
        ({"a": 2**40}, {"a": 2**40}, True),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": 1.0}, {"a": 1}, False),
        ({"a": 1.5}, {"a": 1.5}, True),
        ({"a": Decimal(1)}, {"a": 1}, False),
        ({"a": Decimal("1.5")}, {"a": Decimal("1.5")}, True),
        ({"a": NOW}, {"a": NOW}, True),
        ({"a": NOW}, {"a": int(NOW.timestamp())}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": True}, {"a": 1}, False),
        ({"a": True}, {"a": True}, True),
        ({"a": "é"}, {"a": bytearray("é".encode())}, True),
        ({"a": bytearray(b"\xff")}, {"a": bytearray(b"\xff")}, True),
        ({"a": b"\xff"}, {"a": bytearray(b"\xff")}, True),
        ({"a": [1, {"k": True}]}, {"a": [1, {"k": True}]}, True),
        ({"a": [1, {"k": True}]}, {"a": [1, {"k": 1}]}, False),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({"a": [1]}, {"a": [1.0]}, False),
        ({"a": [1]}, {"a": 1}, False),
        ({"a": {"k": 1}}, {"a": {"j": 1}}, False),
        ({"x-a": 1, "b": 1}, {"b": 1}, True),
        ({"x-match": "any", "x-a": 1}, {"x-a": 1}, False),
        ({"x-match": "all-with-x", "x-a": 1, "b": 1}, {"b": 1}, False),
        ({"x-match": "all-with-x", "x-a": 1, "b": 1}, {"b": 1, "x-a": 1}, True),
        ({"x-match": "any-with-x", "x-a": 1, "b": 1}, {"x-a": 1}, True),
        ({"x-match": "any-with-x", "b": 1}, {"x-match": "any-with-x"}, False),
    ],
)
def test_headers(arguments: dict[str, object], headers: dict[str, object], matches: bool) -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "amq.headers", "ignored", arguments)
    assert publish(vhost, "amq.headers", "other", headers=headers) is (ROUTED if matches else UNROUTED)
    vhost.declarations.unbind_queue("q", "amq.headers", "ignored", arguments)
    assert publish(vhost, "amq.headers", "other", headers=headers) is UNROUTED


def test_an_unknown_x_match_is_refused() -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    with pytest.raises(PreconditionFailed) as value:
        vhost.declarations.bind_queue("q", "amq.headers", "", {"x-match": "some"})
    assert value.value.text == (
        'Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x'
    )
    with pytest.raises(PreconditionFailed) as kind:
        vhost.declarations.bind_queue("q", "amq.headers", "", {"x-match": 1})
    assert kind.value.text == "Invalid x-match field type signedint (value 1); expected longstr"
    vhost.declarations.bind_queue("q", "amq.fanout", "", {"x-match": 1})
    assert vhost.declarations.find_exchange("amq.headers").outgoing == {}


def test_duplicate_bindings_deliver_once_and_arguments_tell_bindings_apart() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "amq.topic", "a.*", {"n": 1})
    epoch = vhost.topology.epoch
    vhost.declarations.bind_queue("q", "amq.topic", "a.*", {"n": 1})
    assert vhost.topology.epoch == epoch
    vhost.declarations.bind_queue("q", "amq.topic", "a.*", {"n": True})
    vhost.declarations.bind_queue("q", "amq.topic", "a.#", {})
    assert len(vhost.topology.bindings_to(queue)) == 3
    assert publish(vhost, "amq.topic", "a.b") is ROUTED
    assert queue.ready == 1
    vhost.declarations.unbind_queue("q", "amq.topic", "a.*", {"n": 1})
    vhost.declarations.unbind_queue("q", "amq.topic", "a.#", {})
    assert routed(vhost, "amq.topic", "a.b") == ["q"]


def test_refused_bindings() -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    default = "operation not permitted on the default exchange"
    refused: list[tuple[Callable[[], object], type[BrokerError], str]] = [
        (lambda: vhost.declarations.bind_queue("q", "", "q", {}), AccessRefused, default),
        (lambda: vhost.declarations.unbind_queue("q", "", "q", {}), AccessRefused, default),
        (lambda: vhost.declarations.bind_exchange("", "amq.direct", "", {}), AccessRefused, default),
        (lambda: vhost.declarations.bind_exchange("amq.direct", "", "", {}), AccessRefused, default),
        (lambda: vhost.declarations.unbind_exchange("", "amq.direct", "", {}), AccessRefused, default),
        (lambda: vhost.declarations.unbind_exchange("amq.direct", "", "", {}), AccessRefused, default),
        (lambda: vhost.declarations.bind_queue("q", "x", "", {}), NotFound, "no exchange 'x' in vhost '/'"),
        (
            lambda: vhost.declarations.bind_queue("p", "amq.direct", "", {}),
            NotFound,
            "no queue 'p' in vhost '/'",
        ),
        (
            lambda: vhost.declarations.bind_exchange("x", "amq.direct", "", {}),
            NotFound,
            "no exchange 'x' in vhost '/'",
        ),
        (
            lambda: vhost.declarations.bind_exchange("amq.direct", "x", "", {}),
            NotFound,
            "no exchange 'x' in vhost '/'",
        ),
    ]
    for request, error, text in refused:
        with pytest.raises(error) as refusal:
            request()
        assert refusal.value.text == text


def test_absent_bindings_are_removed_already() -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    epoch = vhost.topology.epoch
    vhost.declarations.unbind_queue("q", "amq.direct", "k", {})
    vhost.declarations.unbind_queue("q", "x", "k", {})
    vhost.declarations.unbind_queue("p", "amq.direct", "k", {})
    vhost.declarations.unbind_exchange("x", "amq.direct", "k", {})
    vhost.declarations.unbind_exchange("amq.direct", "x", "k", {})
    assert vhost.topology.epoch == epoch


def test_durable_bindings_are_appended_and_others_are_not() -> None:
    store = RecordingStore()
    vhost = new_vhost(store)
    add_queue(vhost, "d", durable=True)
    add_queue(vhost, "t")
    add_exchange(vhost, "x", durable=True)
    add_exchange(vhost, "y")
    before = len(store.changes)
    vhost.declarations.bind_queue("t", "x", "k", {})
    vhost.declarations.bind_queue("d", "y", "k", {})
    vhost.declarations.bind_exchange("y", "x", "k", {})
    vhost.declarations.bind_queue("d", "x", "k", {"n": b"1"})
    vhost.declarations.bind_queue("d", "x", "k", {"n": b"1"})
    vhost.declarations.bind_exchange("amq.topic", "x", "", {})
    vhost.declarations.unbind_queue("t", "x", "k", {})
    vhost.declarations.unbind_queue("d", "x", "k", {"n": b"1"})
    to_queue = {
        "vhost": "/",
        "source": "x",
        "destination": "d",
        "destination_type": "queue",
        "routing_key": "k",
        "arguments": {"n": {"bytes": "31"}},
    }
    to_exchange = {
        "vhost": "/",
        "source": "x",
        "destination": "amq.topic",
        "destination_type": "exchange",
        "routing_key": "",
        "arguments": {},
    }
    assert store.changes[before:] == [
        {"kind": "binding", **to_queue},
        {"kind": "binding", **to_exchange},
        {"kind": "binding.delete", **to_queue},
    ]


def test_without_a_log_no_durable_binding_changes() -> None:
    store = RecordingStore()
    vhost = new_vhost(store)
    add_queue(vhost, "d", durable=True)
    add_queue(vhost, "t")
    vhost.declarations.bind_queue("d", "amq.direct", "k", {})
    store.failure = "sync failed"
    with pytest.raises(StoreFailed, match="the log has stopped: sync failed"):
        vhost.declarations.bind_queue("d", "amq.direct", "l", {})
    with pytest.raises(StoreFailed, match="sync failed"):
        vhost.declarations.unbind_queue("d", "amq.direct", "k", {})
    vhost.declarations.bind_queue("d", "amq.direct", "k", {})
    vhost.declarations.bind_queue("t", "amq.direct", "k", {})
    assert routed(vhost, "amq.direct", "k") == ["d", "t"]
    assert routed(vhost, "amq.direct", "l") == []


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


def test_only_keys_bound_with_a_selector_are_routed_by_message() -> None:
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


def test_a_hash_chooses_among_the_destinations_whose_selectors_match() -> None:
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
def test_an_invalid_selector_is_refused(selector: object, why: str) -> None:
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
