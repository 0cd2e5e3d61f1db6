"""Binding and unbinding queues and exchanges."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from broker.core.errors import AccessRefused, BrokerError, NotFound, PreconditionFailed, StoreFailed
from broker.core.publishing.outcome import ROUTED, UNROUTED
from tests.topology import RecordingStore, add_exchange, add_queue, new_vhost, publish, routed

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
