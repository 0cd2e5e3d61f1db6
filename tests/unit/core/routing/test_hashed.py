"""Exchanges that send each message to a single destination."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.errors import PreconditionFailed
from broker.core.hashing import SLOTS, Chance
from broker.core.publishing.publisher import ROUTED, UNROUTED
from broker.core.vhosts.vhost import VirtualHost
from tests.support.core.topology import add_exchange, add_queue, new_vhost, publish, routed
from tests.support.effort import cases

KEYS = [f"order.{number}" for number in range(2000)]


def bound(kind: str, weights: dict[str, str], **arguments: object) -> VirtualHost:
    """A virtual host in which `x` of this kind is bound to queues, each with a key."""
    vhost = new_vhost()
    add_exchange(vhost, "x", kind, **arguments)
    for name, key in weights.items():
        add_queue(vhost, name)
        vhost.declarations.bind_queue(name, "x", key, {})
    return vhost


def owners(vhost: VirtualHost) -> dict[str, str]:
    """Return the queue of each of KEYS; each key must have exactly a single queue."""
    found = {}
    for key in KEYS:
        (found[key],) = routed(vhost, "x", key)
    return found


def queues_with_messages(vhost: VirtualHost) -> list[str]:
    """Return the queues with a message, and purge them."""
    holders = [name for name, queue in vhost.topology.queues.items() if queue.ready]
    for name in holders:
        vhost.declarations.purge_queue(name)
    return holders


def test_shares_are_as_the_weights() -> None:
    shares = Counter(owners(bound("x-consistent-hash", {"a": "1", "b": "1", "c": "2", "d": "4"})).values())
    assert shares["a"] == pytest.approx(250, abs=60)
    assert shares["b"] == pytest.approx(250, abs=60)
    assert shares["c"] == pytest.approx(500, abs=80)
    assert shares["d"] == pytest.approx(1000, abs=100)


def test_hashed_routes_by_key_are_kept_and_routes_by_content_are_not() -> None:
    assert not bound("x-consistent-hash", {"a": "1"}).publisher.route("x", "k").by_message
    assert not bound("x-modulus-hash", {"a": ""}).publisher.route("x", "k").by_message
    assert bound("x-consistent-hash", {"a": "1"}, hash_header="h").publisher.route("x", "k").by_message
    assert (
        bound("x-consistent-hash", {"a": "1"}, hash_property="message_id")
        .publisher.route("x", "k")
        .by_message
    )
    assert bound("x-random", {"a": ""}).publisher.route("x", "k").by_message


WEIGHTS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 5).map(str), min_size=1)


@settings(max_examples=cases(30), deadline=None)
@given(WEIGHTS, st.integers(1, 9).map(str))
def test_a_change_moves_only_the_share_that_it_concerns(weights: dict[str, str], weight: str) -> None:
    vhost = bound("x-consistent-hash", weights)
    before = owners(vhost)
    add_queue(vhost, "new")
    vhost.declarations.bind_queue("new", "x", weight, {})
    after = owners(vhost)
    moved = {key for key in KEYS if after[key] != before[key]}
    assert all(after[key] == "new" for key in moved)
    total = sum(map(int, weights.values())) + int(weight)
    assert len(moved) == pytest.approx(len(KEYS) * int(weight) / total, abs=150)
    vhost.declarations.unbind_queue("new", "x", weight, {})
    assert owners(vhost) == before


@settings(max_examples=cases(30), deadline=None)
@given(WEIGHTS, st.randoms())
def test_the_order_of_binding_does_not_matter(weights: dict[str, str], random: st.DataObject) -> None:
    before = owners(bound("x-consistent-hash", weights))
    shuffled = list(weights.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert owners(bound("x-consistent-hash", dict(shuffled))) == before


def test_more_weight_only_moves_keys_to_the_heavier_queue() -> None:
    vhost = bound("x-consistent-hash", {"a": "1", "b": "3"})
    before = owners(vhost)
    vhost.declarations.bind_queue("a", "x", "3", {})  # bound twice: the heavier binding counts
    after = owners(vhost)
    assert {after[key] for key in KEYS if after[key] != before[key]} == {"a"}
    assert Counter(after.values())["a"] == pytest.approx(1000, abs=100)
    vhost.declarations.unbind_queue("a", "x", "1", {})
    assert owners(vhost) == after


def test_every_slot_has_an_owner() -> None:
    vhost = bound("x-consistent-hash", {"a": "1", "b": "1000000000000"})
    assert len(KEYS) < SLOTS
    assert Counter(owners(vhost).values())["b"] == len(KEYS)


@pytest.mark.parametrize("key", ["", "a", "1.5", "-1", " 1", "+1", "1_0", "\u0661"])
def test_a_key_that_is_no_weight_is_refused(key: str) -> None:
    vhost = bound("x-consistent-hash", {"a": "1"})
    with pytest.raises(PreconditionFailed) as refusal:
        vhost.declarations.bind_queue("a", "x", key, {})
    assert refusal.value.text == f"The binding key must be an integer: '{key}'"
    assert len(list(vhost.topology.exchanges["x"].bindings())) == 1


def test_a_weight_of_zero_is_refused() -> None:
    vhost = bound("x-consistent-hash", {"a": "1"})
    with pytest.raises(PreconditionFailed) as refusal:
        vhost.declarations.bind_queue("a", "x", "00", {})
    assert refusal.value.text == "The binding key must be greater than 0: '00'"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"hash-header": "h", "hash-property": "message_id"}, "hash-header and hash-property are mutually"),
        ({"hash-property": "app_id"}, "Unsupported property: app_id"),
        ({"hash-header": 5}, "invalid arg 'hash-header' for exchange 'x': '5' of type 'signedint'"),
        ({"hash-property": None}, "invalid arg 'hash-property' for exchange 'x': 'undefined' of type 'void'"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, object], text: str) -> None:
    vhost = new_vhost()
    with pytest.raises(PreconditionFailed) as refusal:
        vhost.declarations.declare_exchange("x", "x-consistent-hash", True, False, False, arguments)
    assert refusal.value.text.startswith(text)
    assert "x" not in vhost.topology.exchanges


def test_by_a_header() -> None:
    vhost = bound("x-consistent-hash", dict.fromkeys("abcd", "1"), hash_header="customer")
    values: list[object] = ["c1", "c2", 1, 2, True, 1.5, [1, "a"], {"k": 1}, bytearray(b"x"), None]
    places = {}
    for index, value in enumerate(values):
        for key in ("k1", "k2", "k3"):
            assert publish(vhost, "x", key, headers={"customer": value, "other": key}) is ROUTED
        (places[index],) = queues_with_messages(vhost)
    assert len(set(places.values())) > 1
    for key in ("k1", "k2"):
        assert publish(vhost, "x", key) is ROUTED, "without the header all go to one queue"
    assert len(queues_with_messages(vhost)) == 1


@pytest.mark.parametrize("name", ["message_id", "correlation_id", "timestamp"])
def test_by_a_property(name: str) -> None:
    vhost = bound("x-consistent-hash", dict.fromkeys("abcd", "1"), hash_property=name)
    places = set()
    for number in range(40):
        stamp = datetime.fromtimestamp(number, tz=UTC)
        value: Any = stamp if name == "timestamp" else f"id-{number}"
        for key in ("k1", "k2"):
            assert publish(vhost, "x", key, **{name: value}) is ROUTED
        (place,) = queues_with_messages(vhost)
        places.add(place)
    assert places == set("abcd")


def test_modulus_counts_destinations_in_the_order_of_their_names() -> None:
    vhost = bound("x-modulus-hash", {"b": "", "a": "x", "d": "", "c": ""})
    vhost.declarations.bind_queue("a", "x", "another binding changes nothing", {})
    before = owners(vhost)
    assert min(Counter(before.values()).values()) > 400
    assert owners(bound("x-modulus-hash", dict.fromkeys("dcab", ""))) == before
    numbers = {key: "abcd".index(queue) for key, queue in before.items()}
    vhost.declarations.delete_queue("d", False, False)
    three = owners(vhost)
    assert sum("abc".index(three[key]) == numbers[key] for key in KEYS) < len(KEYS) / 2


@pytest.mark.parametrize("kind", ["x-random", "x-local-random"])
def test_random(kind: str) -> None:
    vhost = bound(kind, dict.fromkeys("abc", ""))
    for _ in range(900):
        assert publish(vhost, "x", "same") is ROUTED
    assert sum(queue.ready for queue in vhost.topology.queues.values()) == 900
    assert min(queue.ready for queue in vhost.topology.queues.values()) > 220


def test_chance_is_the_same_for_the_same_seed() -> None:
    rows = [[chance.below(10) for _ in range(50)] for chance in map(chance_of, "aab")]
    assert rows[0] == rows[1] != rows[2]
    assert set(rows[0] + rows[2]) == set(range(10))


def chance_of(seed: str) -> Chance:
    return Chance(lambda: seed)


def test_a_local_random_exchange_sends_to_queues_only_and_looks_at_no_key() -> None:
    vhost = bound("x-local-random", {"a": ""})
    with pytest.raises(PreconditionFailed) as key:
        vhost.declarations.bind_queue("a", "x", "k", {})
    assert key.value.text == "Non empty binding 'k' key not permitted"
    with pytest.raises(PreconditionFailed, match=r"Destination not found: 'amq\.fanout' is an"):
        vhost.declarations.bind_exchange("amq.fanout", "x", "", {})
    assert routed(bound("x-random", {"a": "k"}), "x") == []
    assert publish(bound("x-random", {"a": "k"}), "x", "other") is ROUTED


@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-modulus-hash", "x-random", "x-local-random"])
def test_a_hash_exchange_without_a_destination_uses_its_alternate_exchange(kind: str) -> None:
    vhost = bound(kind, {}, alternate_exchange="amq.fanout")
    assert publish(vhost, "x", "k") is UNROUTED
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "amq.fanout", "", {})
    assert publish(vhost, "x", "k") is ROUTED
    add_queue(vhost, "p")
    vhost.declarations.bind_queue("p", "x", "" if kind == "x-local-random" else "1", {})
    vhost.declarations.purge_queue("q")
    assert publish(vhost, "x", "k") is ROUTED
    assert queues_with_messages(vhost) == ["p"]


def test_an_exchange_may_be_the_destination() -> None:
    vhost = bound("x-consistent-hash", {"a": "1"})
    add_queue(vhost, "b")
    vhost.declarations.bind_exchange("amq.fanout", "x", "1", {})
    vhost.declarations.bind_queue("b", "amq.fanout", "", {})
    assert min(Counter(owners(vhost).values()).values()) > 800
