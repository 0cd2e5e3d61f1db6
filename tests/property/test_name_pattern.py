"""Name patterns: what is searched state by state against Python's `re`, and what both may cost."""

import re
import re._parser as parsing

from hypothesis import assume, given
from hypothesis import strategies as st

from broker.core.name_pattern import NamePattern
from broker.core.pattern_cost import search_visits
from broker.core.pattern_states import PatternStates, TooManyStates

ATOMS = ("a", "b", "[ab]", "[^a]", ".", r"\w", r"\.", "ab", "", "A")
PLACES = ("^", "$", r"\b", r"\B", r"\A", r"\Z")
REPEATS = ("*", "+", "?", "*?", "+?", "{2}", "{0,2}", "{1,3}", "{2,}?")
AROUND = ("(?:%s)", "(%s)", "(?i:%s)", "(?s-i:%s)", "(?=%s)", "(?!%s)")

names = st.text("abA.\n", max_size=7)


def _repeated(expressions: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    inner = st.builds("(?:{}){}".format, expressions, st.sampled_from(REPEATS))
    row = st.lists(expressions, min_size=2, max_size=3).map("".join)
    choice = st.lists(expressions, min_size=2, max_size=3).map(lambda each: f"(?:{'|'.join(each)})")
    around = st.builds(lambda form, inside: form % inside, st.sampled_from(AROUND), expressions)
    return st.one_of(inner, row, choice, around)


expressions = st.recursive(st.sampled_from(ATOMS + PLACES), _repeated, max_leaves=8)


@given(expressions, names, st.booleans())
def test_states_match_what_re_matches(expression: str, name: str, ignore_case: bool) -> None:
    flags = re.IGNORECASE if ignore_case else re.NOFLAG
    tree = parsing.parse(expression, int(flags))
    try:
        states = PatternStates(tree)
    except TooManyStates:
        assume(False)
    assert states.search(name) == (re.search(expression, name, flags) is not None)


@given(expressions, names, st.booleans())
def test_patterns_match_what_re_matches(expression: str, name: str, ignore_case: bool) -> None:
    pattern = NamePattern(expression, ignore_case)
    assume(not pattern.objection)
    flags = re.IGNORECASE if ignore_case else re.NOFLAG
    assert pattern.matches(name) == (re.search(expression, name, flags) is not None)


@given(expressions, st.integers(0, 254))
def test_longer_names_cost_no_less(expression: str, length: int) -> None:
    tree = parsing.parse(expression)
    assert search_visits(tree, length) <= search_visits(tree, length + 1)
