"""The cost of routing by topic, in visited nodes of the trie: never in proportion to the bindings."""

from collections.abc import Callable

import pytest

from broker.core.routing.exchanges import TopicExchange
from broker.core.vhosts.vhost import VirtualHost
from tests.support.core.topology import add_exchange, add_queue, new_vhost, routed

Shape = tuple[Callable[[int], str], Callable[[int, int], str]]
SHAPES: dict[str, Shape] = {
    "dev.N.*": (lambda n: f"dev.{n}.*", lambda n, new: f"dev.{n}.{new}"),
    "dev.N.#": (lambda n: f"dev.{n}.#", lambda n, new: f"dev.{n}.a.{new}"),
    "*.N.#": (lambda n: f"*.{n}.#", lambda n, new: f"{new}.{n}.x"),
    "#.N": (lambda n: f"#.{n}", lambda n, new: f"{new}.a.b.{n}"),
    "a.*.b.N": (lambda n: f"a.*.b.{n}", lambda n, new: f"a.{new}.b.{n}"),
    "#.a.#.N": (lambda n: f"#.a.#.{n}", lambda n, new: f"x.a.{new}.y.{n}"),
}


def bound(pattern: Callable[[int], str], count: int) -> VirtualHost:
    vhost = new_vhost()
    add_exchange(vhost, "x", "topic")
    for number in range(count):
        add_queue(vhost, f"q{number % 10}")
        vhost.declarations.bind_queue(f"q{number % 10}", "x", pattern(number), {})
    return vhost


def looked_at(vhost: VirtualHost, key: Callable[[int, int], str], count: int) -> float:
    """Nodes per message, when every message has a key that nobody has used."""
    exchange = vhost.topology.exchanges["x"]
    assert isinstance(exchange, TopicExchange)
    before = exchange.trie.looked_at
    for number in range(200):
        binding = number * 7 % count
        assert routed(vhost, "x", key(binding, 1_000_000 + number)) == [f"q{binding % 10}"]
    return (exchange.trie.looked_at - before) / 200


@pytest.mark.parametrize("shape", SHAPES)
def test_ten_thousand_bindings_cost_as_much_as_ten(shape: str) -> None:
    pattern, key = SHAPES[shape]
    few = looked_at(bound(pattern, 10), key, 10)
    many = looked_at(bound(pattern, 10_000), key, 10_000)
    assert many == few
    assert few < 20


def test_the_trie_grows_with_what_patterns_do_not_share_and_shrinks_again() -> None:
    vhost = bound(SHAPES["dev.N.*"][0], 100)
    exchange = vhost.topology.exchanges["x"]
    assert isinstance(exchange, TopicExchange)
    root = exchange.trie.root
    assert root.words is not None
    assert list(root.words) == ["dev"]
    shared = root.words["dev"].words
    assert shared is not None
    assert len(shared) == 100
    for number in range(99):
        vhost.declarations.unbind_queue(f"q{number % 10}", "x", f"dev.{number}.*", {})
    assert list(shared) == ["99"]
    vhost.declarations.delete_queue("q9", if_unused=False, if_empty=False)
    assert root.words is None
