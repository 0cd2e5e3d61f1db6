"""Name patterns: every expression that people write for names, and none that could stop the broker."""

import pytest

from broker.core.name_pattern import LENGTH_MAX, NamePattern
from tests.effort import ending

LONG = "a" * 254 + "!"


@pytest.mark.parametrize(
    ("expression", "matching", "other"),
    [
        (r"^(?!amq\.).*", "orders", "amq.topic"),
        (r"^orders\.(eu|us)\.[^.]+$", "orders.eu.new", "orders.eu.new.old"),
        (r"^(?!.*(tmp|test)).+\.dlq$", "orders.dlq", "orders.test.dlq"),
        (r"(?i)^ORDERS", "orders", "invoices"),
        (r"(?<=x)-\d{2,4}$", "x-123", "y-123"),
        (r"^(?P<a>x|y)-(?P=a)$", "x-x", "x-y"),
        (r"^(?>ab|a)c", "abc", "bc"),
        (r"^a++b", "aab", "aa"),
        (r"^.*foo.*bar.*baz$", "a.foo.bar.baz", "a.bar.foo.baz"),
        ("", "anything", None),
        (".*", "", None),
    ],
)
def test_what_people_write(expression: str, matching: str, other: str | None) -> None:
    pattern = NamePattern(expression)
    assert pattern.objection == ""
    assert pattern.matches(matching)
    assert other is None or not pattern.matches(other)


@pytest.mark.parametrize(
    "expression",
    [
        "^(a+)+$",
        "^(a|aa)+$",
        "^(a|a)*$",
        r"^(\w+\s?)*$",
        "(.*)*(.*)*x",
        "(a?){50}b",
        ".*.*.*.*.*.*x",
        "((a*)*)*b",
        "(?:){4000000000,}(q*)*b",
    ],
)
def test_no_name_makes_a_search_long(expression: str) -> None:
    pattern = NamePattern(expression)
    assert pattern.objection == ""
    with ending():
        assert not pattern.matches(LONG)


def test_the_same_expression_is_searched_in_both_ways() -> None:
    pattern = NamePattern("^(ab+|c)+d$")
    assert pattern.matches("abcd")
    assert pattern.matches("abbc" * 60 + "d")
    assert not pattern.matches("abbc" * 60)


@pytest.mark.parametrize(
    ("expression", "objection"),
    [
        ("(", "is not a regular expression: missing )"),
        ("a{5,2}", "is not a regular expression: min repeat greater than max"),
        (
            "[[:alpha:]]",
            "is not a regular expression: Possible nested set",
        ),  # another language: no set of names
        ("x" * (LENGTH_MAX + 1), f"is not a regular expression: it is {LENGTH_MAX + 1} characters long"),
        ("(" * 3000 + ")" * 3000, "is not a regular expression"),
        ("((a?){500}){500}", "could take too long to match: it repeats too much"),
        ("(a?){60000}b", "could take too long to match: it repeats too much"),
        ("(?!(a+)+b).", "could take too long to match: it repeats too much"),
        (r"(?:\b){200000}q", "could take too long to match: it repeats too much"),
        (r"(a+)+\1b", "could take too long to match: it refers back"),
    ],
)
def test_what_cannot_be_used_says_so_and_matches_nothing(expression: str, objection: str) -> None:
    with ending():
        pattern = NamePattern(expression)
        assert pattern.objection.startswith(objection)
        assert not pattern.matches("a")


@pytest.mark.parametrize(
    "expression", ["(?:){20000000,}", "(?:){4000000000,}q{30}$", "(?:(?:){3000,}){3000,}$"]
)
def test_repeats_of_nothing_cost_nothing(expression: str) -> None:
    """They are no visit to a character, and yet a regular expression engine remembers each."""
    with ending():
        assert NamePattern(expression).matches("q" * 30)


def test_repeats_within_repeats_take_no_memory_when_they_are_read() -> None:
    pattern = NamePattern("(a{60000}){60000}")
    assert not pattern.matches("a" * 255)
