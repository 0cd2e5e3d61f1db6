"""Patterns of LIKE between two `%`: where they stand, and what it costs to find out."""

import itertools
import re

import pytest

from broker.core.selector.like import Like
from tests.effort import lines_executed

TEXT = "a" * 128_000  # as much as a header can hold


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("%" + "_" * 4000 + "x%", TEXT, False),
        ("%" + "a_" * 2000 + "x%", TEXT, False),
        ("%" + "_a" * 2000 + "y%", TEXT[:-1] + "y", True),
        ("%" + "_" * 4000 + "%", TEXT[:3999], False),
        ("%" + "_" * 4000 + "%", TEXT[:4000], True),
    ],
)
def test_a_long_pattern_that_nearly_stands_everywhere(pattern: str, text: str, matches: bool) -> None:
    like = Like(pattern, "")
    assert like.matches(text) == matches
    assert lines_executed(lambda: like.matches(text)) < 1_000_000  # a hundred times that, one by one


def test_all_short_patterns_and_texts() -> None:
    texts = ["".join(text) for length in range(6) for text in itertools.product("ab", repeat=length)]
    for middle in ("".join(letters) for letters in itertools.product("a_b%", repeat=4)):
        pattern = f"%{middle}%"
        expected = re.compile(pattern.replace("%", ".*").replace("_", "."))
        like = Like(pattern, "")
        for text in texts:
            assert like.matches(text) == (expected.fullmatch(text) is not None), (pattern, text)
