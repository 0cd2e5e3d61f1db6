"""Topic patterns as a trie over words, so that a match does not look at other patterns."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.message_view import MessageView
from broker.core.routing.graph import Binding, Destinations, Resolution

SINGLE: Final = "*"  # a single word, which may be empty
ANY: Final = "#"  # any number of words, also none


def words_of(key: str) -> list[str]:
    """Return the words between the dots. Empty words count, but the empty key has no word [RabbitMQ]."""
    return key.split(".") if key else []


def pattern_words(pattern: str) -> list[str]:
    """Return the words of a binding's key, each run of wildcards as its `*` followed by at most one `#`.

    `#.*`, `*.#` and `#.*.#` all mean "one word or more". With one spelling they share a node, and no `#` is
    followed by a further wildcard.
    """
    words: list[str] = []
    any_number = False
    for word in words_of(pattern):
        if word == ANY:
            any_number = True
            continue
        if any_number and word != SINGLE:
            words.append(ANY)
            any_number = False
        words.append(word)
    if any_number:
        words.append(ANY)
    return words


@final
class TopicNode:
    """The continuations of one prefix of patterns. Wildcards are kept apart: in a key `*` is a plain word."""

    def __init__(self, repeats: bool) -> None:
        self.repeats = repeats  # reached by `#`: takes any further word and stays
        self.words: dict[str, TopicNode] | None = None  # most nodes are the last of their pattern
        self.single: TopicNode | None = None
        self.any: TopicNode | None = None
        self.destinations: Destinations | None = None  # destinations of the patterns that end here
        self.turn: i64 = 0  # the last step of a walk that reached this node, if it repeats

    def is_empty(self) -> bool:
        """Whether no pattern ends or continues here."""
        return self.words is None and self.single is None and self.any is None and self.destinations is None


@final
class TopicTrie:
    """The bindings of a topic exchange.

    A routing key is matched against all patterns at once: the walk holds the nodes that the words so far lead
    to, each once. So the work is at most words times nodes, however many `#` a pattern has, and there is no
    recursion.
    """

    def __init__(self) -> None:
        self.root = TopicNode(False)
        self.looked_at: i64 = 0  # nodes, by all matches so far: what matching costs
        self._turn: i64 = 0

    def add(self, binding: Binding) -> None:
        """Add a binding; its routing key is the pattern."""
        node = self.root
        for word in pattern_words(binding.routing_key):
            node = _grow(node, word)
        destinations = node.destinations
        if destinations is None:
            destinations = Destinations()
            node.destinations = destinations
        destinations.add(binding)

    def remove(self, binding: Binding) -> None:
        """Remove a binding that was added, and the nodes that only this binding needed."""
        words = pattern_words(binding.routing_key)
        path = [self.root]
        for word in words:
            child = _child(path[-1], word)
            assert child is not None, "only bindings that were added are removed"
            path.append(child)
        last = path[-1]
        destinations = last.destinations
        assert destinations is not None, "only bindings that were added are removed"
        destinations.remove(binding)
        if not destinations.is_empty():
            return
        last.destinations = None
        while words and path.pop().is_empty():
            _cut(path[-1], words.pop())

    def match(self, routing_key: str, view: MessageView | None, resolution: Resolution) -> None:
        """Add the destinations of every pattern that matches `routing_key` to `resolution`."""
        self._turn += 1
        nodes: list[TopicNode] = []
        self._reach(self.root, nodes)
        for word in words_of(routing_key):
            self._turn += 1
            self.looked_at += len(nodes)
            following: list[TopicNode] = []
            for node in nodes:
                if node.repeats and node.turn != self._turn:
                    node.turn = self._turn
                    following.append(node)
                if node.words is not None:
                    child = node.words.get(word)
                    if child is not None:
                        self._reach(child, following)
                if node.single is not None:
                    self._reach(node.single, following)
            if not following:
                return
            nodes = following
        self.looked_at += len(nodes)
        for node in nodes:
            if node.destinations is not None:
                resolution.add_destinations(node.destinations, view)

    def _reach(self, node: TopicNode, nodes: list[TopicNode]) -> None:
        """Add a node to a step of the walk, and also its `#` child, which matches no word too.

        Only the child can be reached twice in a step, because it repeats.
        """
        nodes.append(node)
        skipped = node.any
        if skipped is not None and skipped.turn != self._turn:
            skipped.turn = self._turn
            nodes.append(skipped)


def _child(node: TopicNode, word: str) -> TopicNode | None:
    if word == SINGLE:
        return node.single
    if word == ANY:
        return node.any
    return None if node.words is None else node.words.get(word)


def _grow(node: TopicNode, word: str) -> TopicNode:
    child = _child(node, word)
    if child is None:
        child = TopicNode(word == ANY)
        if word == SINGLE:
            node.single = child
        elif word == ANY:
            node.any = child
        elif node.words is None:
            node.words = {word: child}
        else:
            node.words[word] = child
    return child


def _cut(node: TopicNode, word: str) -> None:
    if word == SINGLE:
        node.single = None
    elif word == ANY:
        node.any = None
    elif node.words is not None:
        del node.words[word]
        if not node.words:
            node.words = None
