"""Name patterns: RE2 with separate look-aheads matches as Python's `re` does."""

import re

from hypothesis import assume, given
from hypothesis import strategies as st

from broker.core.policies.pattern import NamePattern

ATOMS = ("a", "b", "[ab]", "[^a]", ".", r"\w", r"\.", "ab", "", "A", "é")
PLACES = ("^", "$", r"\b", r"\B", r"\A", r"\Z")
REPEATS = ("*", "+", "?", "*?", "+?", "{2}", "{0,2}", "{1,3}", "{2,}?", "{,2}")
AROUND = ("(?:%s)", "(%s)", "(?i:%s)", "(?s-i:%s)")
LOOKS = ("(?=%s)", "(?!%s)")

names = st.text("abA.é", max_size=7)


def _repeated(expressions: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    inner = st.builds("(?:{}){}".format, expressions, st.sampled_from(REPEATS))
    row = st.lists(expressions, min_size=2, max_size=3).map("".join)
    choice = st.lists(expressions, min_size=2, max_size=3).map(lambda each: f"(?:{'|'.join(each)})")
    around = st.builds(lambda form, inside: form % inside, st.sampled_from(AROUND), expressions)
    return st.one_of(inner, row, choice, around)


plain = st.recursive(st.sampled_from(ATOMS + PLACES), _repeated, max_leaves=6)
single_looks = st.builds(lambda form, inside: form % inside, st.sampled_from(LOOKS), plain)
looks = st.lists(single_looks, max_size=2).map("".join)
starts = st.sampled_from(("^", ""))
branches = st.one_of(
    st.builds("{}{}{}".format, st.sampled_from(("^", r"\A", "", r"\b")), looks, plain),
    st.builds("{}{}{}{}".format, starts, plain, looks, st.sampled_from(("", "$"))),
    st.builds("^{}{}{}".format, looks, plain, looks),
    st.builds("{}(?:{}|{}){}".format, starts, plain, looks, st.sampled_from(("", "$", "b"))),
    st.builds("(?i:{}{})".format, looks, plain),
)
expressions = st.lists(branches, min_size=1, max_size=3).map("|".join)


@given(expressions, names, st.booleans())
def test_patterns_match_what_re_matches(expression: str, name: str, ignore_case: bool) -> None:
    pattern = NamePattern(expression, ignore_case)
    assume(not pattern.objection)
    # \B is matched in an empty text by Python's re since 3.14, and by RE2 between the bytes of a letter
    assume(r"\B" not in expression or (name != "" and name.isascii()))
    flags = re.ASCII | (re.IGNORECASE if ignore_case else re.NOFLAG)
    assert pattern.matches(name) == (re.search(expression, name, flags) is not None)


@given(st.text("a(?!=<:|)[]*+{}1,^$\\bQEpxLi-#\ud800é", max_size=12), names)
def test_any_text_is_an_expression_or_has_an_objection(expression: str, name: str) -> None:
    pattern = NamePattern(expression)
    assert not (pattern.matches(name) and pattern.objection)
