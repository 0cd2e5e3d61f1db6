"""Name patterns: the expressions that people write for names, and none that could stop the broker."""

import pytest

from broker.core.policies.pattern import LENGTH_MAX, NamePattern
from tests.support.effort import ending

LONG = "a" * 254 + "!"


@pytest.mark.parametrize(
    ("expression", "matching", "other"),
    [
        (r"^(?!amq\.).*", "orders", "amq.topic"),
        (r"^(?!amq\.|celery).*$", "orders", "celery.1"),
        (r"^orders\.(eu|us)\.[^.]+$", "orders.eu.new", "orders.eu.new.old"),
        (r"^(?!.*(tmp|test)).+\.dlq$", "orders.dlq", "orders.test.dlq"),
        (r"^(?=.*dlq)(?!.*test)", "orders.dlq", "orders.test.dlq"),
        (r"^orders(?!\.tmp)", "orders.eu", "orders.tmp"),
        (r"^\w*(?=\.dlq$)", "orders.dlq", "orders.eu"),
        (r"orders(?!\.)", "my.orders", "orders.eu"),
        ("(?!x$)", "x", None),  # matches at the end of x
        ("^(?!x$)", "xx", "x"),
        ("(?!)|a", "a", "b"),
        ("(?=)", "", None),
        (r"^(?:amq\.gen-.*|(?!amq\.).*)$", "amq.gen-1", "amq.topic"),
        (r"^((?!amq\.).*)", "orders", "amq.topic"),
        ("(?i)^(?!AMQ)", "orders", "amq"),
        ("^(?i:(?!AMQ)O)x", "Ox", "OX"),
        ("^(?!a(?i)b)(A|B)", "A", "aB"),
        (r"(?m)^(?!a)\w", "a\nb", "a\na"),
        ("(?!é)ö", "éö", "é"),
        ("é(?!ö)", "éa", "éö"),
        (r"(?i)^ORDERS", "orders", "invoices"),
        (r"\Aorders\Z", "orders", "orders.eu"),
        (r"^a{,2}(?#at most two)b", "aab", "aaab"),
        (r"^\é\u00e9$", "éé", "é"),
        ("^[]a]{2}$", "]a", "ab"),
        (r"^[[:alpha:]]+$", "orders", "orders.eu"),
        (r"^\Qa.b\E$", "a.b", "axb"),
        ("^{username}$", "{username}", "guest"),
        (r"^.*foo.*bar.*baz$", "a.foo.bar.baz", "a.bar.foo.baz"),
        (r"^.{1,255}$", LONG, ""),
        ("", "anything", None),
        (".*", "", None),
    ],
)
def test_patterns_that_people_write(expression: str, matching: str, other: str | None) -> None:
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
        "(a?){50}b",
        ".*.*.*.*.*.*x",
        "((a*)*)*b",
        "(?!(a+)+)a",
        "(?i)" + "[ -\U0010ffff]" * 1600,
        r"a(?=(a|aa)*b)",
    ],
)
def test_no_name_makes_a_search_long(expression: str) -> None:
    pattern = NamePattern(expression)
    assert pattern.objection == ""
    with ending():
        assert not pattern.matches(LONG)


@pytest.mark.parametrize(
    ("expression", "objection"),
    [
        ("(", "is not a regular expression of RE2: missing )"),
        ("(?!a", "is not a regular expression: nothing closes the ( at character 1"),
        ("(?!a))", "is not a regular expression: unexpected ) at character 6"),
        ("x[a", "is not a regular expression: nothing closes the [ at character 2"),
        (r"\p{Greek", "is not a regular expression: nothing closes the { at character 1"),
        ("(?#a", "is not a regular expression: nothing closes the (?# at character 1"),
        ("a**", "is not a regular expression: it repeats a repeat at character 3"),
        ("\ud800", "is not a regular expression: it is not valid UTF-8"),
        ("a{5,2}", "is not a regular expression of RE2: invalid repetition size: {5,2}"),
        ("a{2000}", "is not a regular expression of RE2: invalid repetition size: {2000}, and RE2 repeats"),
        ("((a?){500}){500}", "is not a regular expression of RE2: invalid repetition size: {500}, and RE2"),
        ("x" * (LENGTH_MAX + 1), f"is {LENGTH_MAX + 1} characters long, at most {LENGTH_MAX} are allowed"),
        ("(" * 3000 + "a", "is not a regular expression of RE2: missing )"),
        ("(" * 200 + "(?!a)" + ")" * 200, "has more than 100 groups within groups"),
        ("[ -\U0010ffff]{700}", "could take too long to match: it comes to 4904 instructions, 4000 are"),
        ("[ -\U0010ffff]{1000}" * 10, "could take too long to match: it repeats too much"),
        (r"\p{L}" * 1600, "has 1600 Unicode properties, at most 20 are allowed"),
        ("(?!a{200})b", "could take too long to match: its look-ahead is tried at each place of a name"),
        ("^" + "(?!a)" * 200, "has more than 128 look-aheads in its branches"),
        ("((?!a)|b)" * 9, "has more than 16 branches with look-aheads"),
        (r"(?<=x)-\d", "has a look-behind, '(?<=' at character 1, which RE2 cannot match"),
        (r"^.*(?<!\.dlq)$", "has a look-behind, '(?<!' at character 4, which RE2 cannot match"),
        (r"^(?P<a>x|y)-(?P=a)$", "has a back reference, '(?P=' at character 13, which RE2 cannot match"),
        (r"^(a+)\1", r"has a back reference, '\1' at character 6, which RE2 cannot match"),
        (r"(?<a>b)\k<a>", r"has a back reference, '\k' at character 8, which RE2 cannot match"),
        ("^(?>ab|a)c", "has an atomic group, '(?>' at character 2, which RE2 cannot match"),
        ("^a++b", "has a possessive repeat, '++' at character 3, which RE2 cannot match"),
        ("(?R)?", "has a recursion, '(?R' at character 1, which RE2 cannot match"),
        ("(a)?(?(1)b|c)", "has a condition on a group, '(?(' at character 5, which RE2 cannot match"),
        (r"^orders\.(?!tmp).*", "has a look-ahead in the middle of a branch, at character 10: RE2"),
        ("^((?!amq).)*$", "has a look-ahead within a repeat, at character 2: RE2"),
        ("^(?!a)?b", "has a look-ahead within a repeat, at character 2: RE2"),
        ("^(?!a(?=b))", "has a look-ahead within a look-ahead, at character 6: RE2"),
        ("(?!a)b(?!c)", "has look-aheads at both ends of a branch that does not begin with ^"),
    ],
)
def test_an_invalid_pattern_has_an_error_and_matches_nothing(
    expression: str, objection: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with ending():
        pattern = NamePattern(expression)
    assert pattern.objection.startswith(objection)
    assert not pattern.matches("a")
    assert capfd.readouterr() == ("", ""), "the library writes past the log"


def test_a_list_of_names_may_fill_an_expression() -> None:
    names = [f"{number:04d}-réponse" for number in range(LENGTH_MAX // 14)]
    pattern = NamePattern(f"^(?:{'|'.join(names)})$")
    assert pattern.objection == ""
    assert all(pattern.matches(name) for name in names)
    assert not pattern.matches("9999-réponse")


def test_bytes_that_are_no_text_count_as_characters() -> None:
    """Routing keys of a log may have such bytes."""
    name = "a\udcff"
    assert NamePattern("^a.$").matches(name)
    assert not NamePattern(r"^a\?$").matches(name)
    assert NamePattern("^(?!b)").matches(name)


def test_a_look_ahead_sees_the_place_that_it_stands_at_in_the_whole_name() -> None:
    assert not NamePattern(r"(?!\b)a(?:)").matches("a.a")
    assert NamePattern(r"(?!\b)a(?:)").matches("aa")
    assert not NamePattern("(?=^)b").matches("ab")
    assert not NamePattern(r"^a\b(?!\.)").matches("ab")
