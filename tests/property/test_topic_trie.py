"""The trie of topic patterns against a matcher that is too simple to be wrong."""

from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.core.hashing import Chance
from broker.core.routing.exchanges import TopicExchange
from broker.core.routing.graph import Binding, Description, Resolution
from broker.core.routing.topic import TopicTrie, pattern_words, words_of
from tests.support.core.topology import add_queue, new_vhost

WORDS = ["", "a", "b", "ab", "**", "*a"]


def dotted(words: list[str], most: int) -> st.SearchStrategy[str]:
    """Up to `most` words between dots."""
    return st.lists(st.sampled_from(words), max_size=most).map(".".join)


patterns = dotted([*WORDS, "*", "#", "#"], 7)
keys = dotted([*WORDS, "*", "#"], 7)


def naive(pattern: list[str], words: list[str]) -> bool:
    """Whether the words match, by trying all matches of each `#`."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return naive(pattern[1:], words) or (bool(words) and naive(pattern, words[1:]))
    return bool(words) and pattern[0] in ("*", words[0]) and naive(pattern[1:], words[1:])


class Patterns:
    """A trie in which each pattern leads to a queue of its own."""

    def __init__(self, patterns: list[str]) -> None:
        self.trie = TopicTrie()
        self.bindings: dict[str, Binding] = {}
        vhost = new_vhost()
        source = TopicExchange(Description("x", "topic", False, False, False, {}))
        for index, pattern in enumerate(patterns):
            if pattern not in self.bindings:
                self.bindings[pattern] = Binding(source, add_queue(vhost, str(index)), pattern, {})
                self.trie.add(self.bindings[pattern])

    def remove(self, pattern: str) -> None:
        """Unbind a single pattern."""
        self.trie.remove(self.bindings.pop(pattern))

    def matching(self, key: str) -> set[str]:
        """The patterns that the trie finds for a key."""
        resolution = Resolution(Chance(lambda: "seed"))
        self.trie.match(key, None, resolution)
        return {pattern for pattern, binding in self.bindings.items() if binding.queue in resolution.queues}

    def expected(self, key: str) -> set[str]:
        """The patterns that match a key."""
        return {pattern for pattern in self.bindings if naive(words_of(pattern), words_of(key))}


@settings(deadline=None)
@given(st.lists(patterns, max_size=12), st.lists(keys, min_size=1, max_size=6))
@example(["#"], [""])
@example(["*", "#.#", "", "."], ["", ".", ".."])
@example(["#.*.#", "*.#.*", "#.*"], ["", "a", "a.b"])
@example(["#.a.#.a.#", "a.#.a"], ["a", "a.a", "a.b.a", "b.a.a.b"])
@example(["a.#", "a.#.b", "a.#.b.#"], ["a", "a.b", "a.b.b", "a..b"])
def test_the_trie_finds_what_matches_and_nothing_else(bound: list[str], published: list[str]) -> None:
    trie = Patterns(bound)
    for key in published:
        assert trie.matching(key) == trie.expected(key), key


@settings(deadline=None)
@given(st.data(), st.lists(patterns, min_size=1, max_size=10), st.lists(keys, min_size=1, max_size=4))
def test_unbinding_keeps_other_patterns_and_leaves_no_empty_node(
    data: st.DataObject, bound: list[str], published: list[str]
) -> None:
    trie = Patterns(bound)
    for pattern in data.draw(st.permutations(list(trie.bindings))):
        trie.remove(pattern)
        for key in published:
            assert trie.matching(key) == trie.expected(key), key
    assert trie.trie.root.is_empty()


@settings(deadline=None)
@given(patterns, keys)
def test_a_pattern_means_the_same_in_its_one_spelling(pattern: str, key: str) -> None:
    spelled = pattern_words(pattern)
    assert naive(spelled, words_of(key)) == naive(words_of(pattern), words_of(key))
    for word, following in pairwise(spelled):
        assert word != "#" or following not in ("*", "#")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(["#", "*", "a", ""]), min_size=60, max_size=120).map(".".join),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.sampled_from(["a", ""]), min_size=100, max_size=128).map(".".join),
)
def test_the_work_is_bounded_however_many_wildcards_there_are(bound: list[str], key: str) -> None:
    """The work ends although trying everything would take practically forever."""
    trie = Patterns(bound)
    assert trie.matching(key) == {pattern for pattern in trie.bindings if by_table(pattern, key)}


def by_table(pattern: str, key: str) -> bool:
    """`naive` with every pair of rests looked at once."""
    words = words_of(key)
    reached = [True] + [False] * len(words)
    for word in words_of(pattern):
        if word == "#":
            for index in range(1, len(reached)):
                reached[index] = reached[index] or reached[index - 1]
        else:
            fits = [word in ("*", other) for other in words]
            reached = [False] + [before and fit for before, fit in zip(reached, fits, strict=False)]
    return reached[-1]
