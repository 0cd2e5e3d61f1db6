"""Selectors: syntax, meaning, errors, and the cost of LIKE."""

import itertools
import re
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from broker.core.errors import PreconditionFailed
from broker.core.selector.like import Like
from broker.core.selector.selector import LENGTH_MAX, Selector
from tests.support.core.topology import view_of
from tests.support.effort import lines_executed

HEADERS: dict[str, object] = {
    "i": 5,
    "neg": -7,
    "big": 2**40,
    "f": 2.5,
    "s": "abc",
    "quote": "it's",
    "yes": True,
    "no": False,
    "void": None,
    "list": [1],
    "table": {"k": 1},
    "binary": bytearray(b"abc"),
    "dec": Decimal("2.5"),
    "time": datetime.fromtimestamp(1000, tz=UTC),
    "a.b": 1,
    "x-delay": 3,
    "date": "2026-05-01",
    "AND": 1,
}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("i = 5", True),
        ("i = 5.0", True),
        ("i <> 5", False),
        ("i >= 5 AND i <= 5 AND NOT i < 5 AND NOT i > 5", True),
        ("big > 1000000000000", True),
        ("f > 2 and f < 3", True),
        ("dec = 2.5", True),
        ("time = 1000000", True),
        ("s = 'abc'", True),
        ("s <> 'abd'", True),
        ("s < 'abd'", True),
        ("date BETWEEN '2026-01-01' AND '2026-12-31'", True),
        ("quote = 'it''s'", True),
        ("yes", True),
        ("no", False),
        ("NOT no", True),
        ("yes = TRUE AND no = FALSE AND yes <> no", True),
        ("TRUE", True),
        # other types: never true, and never unknown
        ("s = 5", False),
        ("s <> 5", False),
        ("NOT s = 5", True),
        ("i = TRUE", False),
        ("yes = 1", False),
        ("list = 1", False),
        ("NOT list = 1", True),
        ("table IS NOT NULL", True),
        ("binary = 'abc'", False),
        ("binary = binary AND NOT binary <> binary AND binary <= binary", True),
        ("yes > no", False),
        # NULL
        ("void IS NULL", True),
        ("absent IS NULL", True),
        ("i IS NULL", False),
        ("i IS NOT NULL", True),
        ("absent = 1", False),
        ("absent <> 1", False),
        ("NOT absent = 1", False),
        ("absent = 1 OR i = 5", True),
        ("NOT (absent = 1 AND i = 6)", True),
        ("absent BETWEEN 1 AND 2", False),
        ("NOT i BETWEEN absent AND 4", True),
        ("NOT i BETWEEN absent AND 6", False),
        ("absent IN ('a')", False),
        ("absent NOT IN ('a')", False),
        ("absent LIKE '%'", False),
        ("absent NOT LIKE '%'", False),
        ("NOT absent", False),
        ("s", False),
        ("NOT s", False),
        ("NOT NOT s", False),
        ("NOT NOT yes", True),
        # arithmetic
        ("i + 2 * 3 = 11", True),
        ("(i + 2) * 3 = 21", True),
        ("i - 1 - 1 = 3", True),
        ("7 / 2 = 3", True),
        ("neg / 2 = -3", True),
        ("7 / -2 = -3", True),
        ("7 / 2.0 = 3.5", True),
        ("-i = -5", True),
        ("- -i = 5", True),
        ("+i = 5", True),
        ("-(i + 1) = -6", True),
        ("i / 0 = 1", False),
        ("(i / 0) IS NULL", True),
        ("(i / 0.0) IS NULL", True),
        ("(s + 1) IS NULL", True),
        ("(yes + 1) IS NULL", True),
        ("-s IS NULL", True),
        ("absent + 1 IS NULL", True),
        ("1E300 * 1E300 > 1", True),
        (" * ".join(["9223372036854775807"] * 40) + " * 1.5 IS NULL", True),
        # literals
        ("i = 0x5 AND i = 05 AND i = 5L AND i = 5l", True),
        ("f = 2.5D AND f = 25e-1 AND f = .25E+1 AND f = 2.5f", True),
        ("7. = 7", True),
        ("010 = 8", True),
        ("-9223372036854775808 < 0", True),
        # BETWEEN, IN
        ("i BETWEEN 5 AND 5", True),
        ("i NOT BETWEEN 1 AND 4", True),
        ("i BETWEEN 1 AND 2 + 3 AND yes", True),
        ("s IN ('x', 'abc')", True),
        ("s NOT IN ('x', 'y')", True),
        ("i IN (1, 5)", True),
        ("neg IN (1, -7)", True),
        ("f IN ('2.5', 2.5)", True),
        ("yes IN (TRUE)", True),
        ("i IN ('5')", False),
        # LIKE
        ("s LIKE 'a%'", True),
        ("s LIKE 'a_c'", True),
        ("s LIKE 'a_'", False),
        ("s LIKE '%b%'", True),
        ("s NOT LIKE '%x%'", True),
        ("s LIKE ''", False),
        ("i LIKE '5'", False),
        ("i NOT LIKE '5'", True),
        ("'a_c' LIKE 'a\\_c' ESCAPE '\\'", True),
        ("s LIKE 'a\\_c' ESCAPE '\\'", False),
        ("'50%' LIKE '50!%' ESCAPE '!'", True),
        # names
        ("a.b = 1", True),
        ('"x-delay" = 3', True),
        ('"AND" = 1 aNd "a.b" = 1', True),
        ("I IS NULL", True),
        ("_x IS NULL and $y is null and schön IS NULL", True),
    ],
)
def test_meaning_of_selectors(text: str, matches: bool) -> None:
    view = view_of(headers=HEADERS)
    selector = Selector(text)
    assert selector.matches(view) == matches
    again = Selector(selector.canonical)
    assert again.matches(view) == matches
    assert again.canonical == selector.canonical


def test_properties_and_jms_fields() -> None:
    view = view_of(
        headers={"type": "of the headers", "JMSType": "set by a client"},
        content_type="text/plain",
        delivery_mode=2,
        priority=7,
        correlation_id="c",
        message_id="m",
        message_type="of the properties",
        timestamp=datetime.fromtimestamp(1000, tz=UTC),
        app_id="app",
    )
    for text in (
        "JMSDeliveryMode = 'PERSISTENT'",
        "JMSPriority = 7 AND priority = 7 AND properties.priority = 7",
        "JMSMessageID = 'm'",
        "JMSCorrelationID = 'c'",
        "JMSTimestamp = 1000000 AND properties.timestamp = 1000000",
        "content_type LIKE 'text/%' AND app_id = 'app'",
        "delivery_mode = 2",
        "type = 'of the headers' AND properties.type = 'of the properties'",
        "JMSType = 'set by a client'",
        "reply_to IS NULL AND properties.reply_to IS NULL AND properties.nonsense IS NULL",
    ):
        assert Selector(text).matches(view), text
    bare = view_of(message_type="t")
    for text in (
        "JMSDeliveryMode = 'NON_PERSISTENT'",
        "JMSType = 't'",
        "JMSPriority IS NULL",
        "priority IS NULL",
    ):
        assert Selector(text).matches(bare), text


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("", "position 1: expected a value or a condition, found the end"),
        ("   ", "position 4: expected a value or a condition, found the end"),
        ("a =", "position 4: expected a value or a condition, found the end"),
        ("a = 1 b", "position 7: expected an operator or the end, found 'b'"),
        ("a = 1)", "position 6: expected an operator or the end, found ')'"),
        ("(a = 1", "position 7: expected ')', found the end"),
        ("a == 1", "position 4: expected a value or a condition, found '='"),
        ("a = 'x", "position 5: the string that begins here has no end"),
        ('"a = 1', "position 1: the name that begins here has no end"),
        ('"" = 1', "position 1: a name without characters"),
        ("a ; 1", "position 3: ';' begins nothing that a selector knows"),
        ("a = 1x", "position 5: '1x' is no number"),
        ("a = 1.2.3", "position 5: '1.2.3' is no number"),
        ("a = 08", "position 5: '08' is no number"),
        ("a = 1_0", "position 5: '1_0' is no number"),
        ("a = 5LL", "position 5: '5LL' is no number"),
        ("a = 0x", "position 5: '0x' is no number"),
        ("a = 9223372036854775808", "position 5: '9223372036854775808' is out of range"),
        ("a = -9223372036854775809", "position 6: '9223372036854775809' is out of range"),
        ("a = -(-9223372036854775808)", "position 6: '9223372036854775808' is out of range"),
        ("a = 1e999", "position 5: '1e999' is out of range"),
        ("1", "position 1: expected a condition, found a number"),
        (" 'x'", "position 2: expected a condition, found a string"),
        ("a + 1", "position 1: expected a condition, found a number"),
        ("yes AND 'x'", "position 9: expected a condition, found a string"),
        ("1 OR yes", "position 1: expected a condition, found a number"),
        ("yes OR 1", "position 8: expected a condition, found a number"),
        ("NOT 5", "position 5: expected a condition, found a number"),
        ("a < TRUE", "position 5: expected a number, found a condition"),
        ("(a = 1) > 2", "position 1: expected a number, found a condition"),
        ("a + 'x' = 1", "position 5: expected a number, found a string"),
        ("'x' + 1 = 1", "position 1: expected a number, found a string"),
        ("-'x' = 1", "position 2: expected a number, found a string"),
        ("a BETWEEN TRUE AND 2", "position 11: expected a number, found a condition"),
        ("a BETWEEN 1 OR 2", "position 13: expected 'AND', found 'OR'"),
        ("a IN ()", "position 7: expected a value or a condition, found ')'"),
        ("a IN (b)", "position 7: IN takes literals only"),
        ("a IN 'x'", "position 6: expected '(', found ''x''"),
        ("a IN ('x' 'y')", "position 11: expected ')', found ''y''"),
        ("a LIKE b", "position 8: expected a pattern in quotes, found 'b'"),
        ("5 LIKE 'x'", "position 1: expected a string, found a number"),
        ("a LIKE 'x' ESCAPE 'yz'", "position 19: ESCAPE takes one character"),
        ("a LIKE 'x' ESCAPE ''", "position 19: ESCAPE takes one character"),
        ("a LIKE 'x!' ESCAPE '!'", "position 20: the escape character escapes nothing"),
        ("a NOT = 1", "position 7: expected BETWEEN, IN or LIKE, found '='"),
        ("a foo", "position 3: expected an operator or the end, found 'foo'"),
        ("a NULL", "position 3: expected an operator or the end, found 'NULL'"),
        ("a IS 1", "position 6: expected 'NULL', found '1'"),
        ("a IS NOT 1", "position 10: expected 'NULL', found '1'"),
        ("NULL IS NULL", "position 1: expected a value or a condition, found 'NULL'"),
        ("AND = 1", "position 1: expected a value or a condition, found 'AND'"),
        ("a = 1 AND", "position 10: expected a value or a condition, found the end"),
        ("(" * 51 + "yes" + ")" * 51, "position 51: more than 50 parentheses within each other"),
    ],
)
def test_errors_have_their_position(text: str, refusal: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        Selector(text)
    assert refused.value.text == refusal


def test_the_limits() -> None:
    view = view_of(headers=HEADERS)
    assert Selector("(" * 50 + "yes" + ")" * 50).matches(view)
    longest = "yes" + " AND yes" * 511
    assert Selector(longest + " " * (LENGTH_MAX - len(longest))).matches(view)
    with pytest.raises(PreconditionFailed, match="4097 characters, at most 4096 are allowed"):
        Selector("yes" + " " * (LENGTH_MAX - 2))
    assert Selector("NOT " * 1000 + "yes").matches(view)
    assert Selector("-" * 2000 + "i = i").matches(view)
    assert Selector("i" + "+i" * 2000 + " > 1").matches(view)


def test_a_pattern_costs_no_more_than_its_length_times_that_of_the_text() -> None:
    """Trying all matches of each `%` would take forever."""
    text = "a" * 2000
    pattern = "%a_" * 600 + "%b"
    assert not Selector(f"h LIKE '{pattern}'").matches(view_of(headers={"h": text}))
    assert Selector(f"h LIKE '{pattern[:-1]}'").matches(view_of(headers={"h": text}))


@pytest.mark.parametrize(
    ("texts", "canonical"),
    [
        (["a=1", " a  =  0x1 ", "(a) = (1)", "((a = 1L))", '"a" = 01'], "a = 1"),
        (["a = 1 and b = 2 AND c", "(a=1 AND b=2) AND c", "a=1 AND (b=2 AND c)"], "a = 1 AND b = 2 AND c"),
        (["a AND (b OR c)", "(a) and ((b) or (c))"], "a AND (b OR c)"),
        (["(a AND b) OR c", "a AND b OR c"], "a AND b OR c"),
        (["NOT (a = 1)", "not a = 1"], "NOT a = 1"),
        (["NOT (a AND b)"], "NOT (a AND b)"),
        (["a NOT IN ('x','y')", "NOT a IN ( 'x' , 'y' )"], "NOT a IN ('x', 'y')"),
        (["NOT NOT NOT a", "NOT (NOT (NOT (a)))", "NOT (a)"], "NOT a"),
        (["NOT NOT a", "NOT (NOT a)"], "NOT NOT a"),
        (["- - - a = 1", "-(-(-a)) = +1", "-a=1"], "-a = 1"),
        (["-(-5) = a"], "5 = a"),
        (["a IS NOT NULL"], "NOT a IS NULL"),
        (["a - (b - c) = (d + 1) * 2"], "a - (b - c) = (d + 1) * 2"),
        (["(a - b) - c > 0", "a-b-c>0"], "a - b - c > 0"),
        (["a = 1.50", "a = 15e-1"], "a = 1.5"),
        (["a = - 5", "a = -(5)"], "a = -5"),
        (["a LIKE 'x!%' ESCAPE '!'"], "a LIKE 'x!%' ESCAPE '!'"),
        (["\"x-y\" = 'it''s'"], "\"x-y\" = 'it''s'"),
        (["a BETWEEN 1 AND (2 + b)"], "a BETWEEN 1 AND 2 + b"),
        (["(a > 1) = true"], "(a > 1) = TRUE"),
    ],
)
def test_equal_selectors_have_one_canonical_text(texts: list[str], canonical: str) -> None:
    assert {Selector(text).canonical for text in texts} == {canonical}
    assert Selector(canonical).canonical == canonical


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
