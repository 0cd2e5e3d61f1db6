"""SQL filters against an evaluator that is too simple to be wrong."""

import contextlib
import re
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.adapters.amqp10.filters.sql import SqlFilter
from broker.core.errors import PreconditionFailed
from protocol.amqp10.types import Decimal
from tests.support.adapters.filtered_messages import (
    ID,
    TEXTS,
    Message,
    check_demands,
    literal,
    messages,
    view_of,
)
from tests.support.effort import cases

Part = tuple[Any, ...]  # name of the operation, then its operands, which are parts too

names = st.sampled_from(
    [
        ("name", "a", "a"),
        ("name", "b", "a.b"),
        ("name", "x-a", "[x-a]"),
        ("name", "AND", "[AND]"),
        ("name", "\u00fc k", "[\u00fc k]"),
        ("property", "subject", "p.subject"),
        ("property", "message_id", "properties.message_id"),
        ("property", "correlation_id", "p.correlation_id"),
        ("property", "creation_time", "p.creation_time"),
        ("property", "group_sequence", "p.group_sequence"),
    ]
)
numbers = st.tuples(st.just("literal"), st.integers(0, 3) | st.sampled_from([0.5, 2.0, 2**64 - 1]))
strings = st.tuples(st.just("literal"), st.sampled_from(TEXTS))
binaries = st.tuples(st.just("literal"), st.sampled_from([b"a", b"\xff", ID.bytes]))
numeric = st.recursive(
    numbers | names,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("+-*/%"), inner, inner),
        st.tuples(st.sampled_from(["plus", "minus"]), inner),
    ),
    max_leaves=4,
)
ordered = st.one_of(numeric, strings, binaries)
anything = ordered | st.tuples(st.just("literal"), st.booleans())
conditions = st.recursive(
    st.one_of(
        st.tuples(st.sampled_from(["=", "<>"]), anything, anything),
        st.tuples(st.sampled_from(["<", ">", "<=", ">="]), ordered, ordered),
        st.tuples(st.just("in"), anything, st.lists(anything, min_size=1, max_size=3).map(tuple)),
        st.tuples(st.just("like"), names, st.sampled_from(["", "%", "a%", "_", "%b", "!%"])),
        st.tuples(st.just("null"), names),
        names,
    ),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), inner, inner), st.tuples(st.just("not"), inner)
    ),
    max_leaves=6,
)


def written(part: Part) -> str:
    what, *rest = part
    if what == "literal":
        return literal(rest[0])
    if what in ("name", "property"):
        return str(rest[1])
    first = written(rest[0])
    if what == "in":
        return f"({first} IN ({', '.join(map(written, rest[1]))}))"
    if what == "like":
        return f"({first} LIKE {literal(rest[1])} ESCAPE '!')"
    if what == "null":
        return f"({first} IS NULL)"
    if what in ("not", "plus", "minus"):
        return f"({'NOT ' if what == 'not' else '+' if what == 'plus' else '-'}{first})"
    return f"({first} {what.upper()} {written(rest[1])})"


def meaning(part: Part, message: Message) -> object:
    """The value of an expression; None is NULL and unknown."""
    what, *rest = part
    if what == "literal":
        return rest[0]
    if what in ("name", "property"):
        value = message["p" if what == "property" else "a"].get(rest[0])
        return value.bytes if isinstance(value, UUID) else None if isinstance(value, Decimal) else value
    first = meaning(rest[0], message)
    if what == "null":
        return first is None
    if what == "not":
        return None if not isinstance(first, bool) else not first
    if what in ("plus", "minus"):
        return calculated("+" if what == "plus" else "-", 0, first)
    if what == "in":
        choices = [compared("=", first, meaning(choice, message)) for choice in rest[1]]
        return None if first is None else True in choices
    if what == "like":
        pattern = "".join(
            {"%": ".*", "_": "."}.get(one, re.escape(one[-1])) for one in re.findall("!.|.", rest[1])
        )
        if first is None:
            return None
        return isinstance(first, str) and re.fullmatch(pattern, first, re.DOTALL) is not None
    second = meaning(rest[1], message)
    if what in ("and", "or"):
        values = [value if isinstance(value, bool) else None for value in (first, second)]
        decisive = what == "or"
        return decisive if decisive in values else None if None in values else not decisive
    return calculated(what, first, second) if what in "+-*/%" else compared(what, first, second)


def calculated(sign: str, left: object, right: object) -> object:
    for value in (left, right):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
    if sign == "%":
        if not isinstance(left, int) or not isinstance(right, int) or right == 0:
            return None
        return left - right * (abs(left) // abs(right)) * (1 if (left < 0) == (right < 0) else -1)
    try:
        return eval(f"left {sign} right", {"left": left, "right": right})
    except (ZeroDivisionError, OverflowError):
        return None


def compared(sign: str, left: object, right: object) -> bool | None:
    if left is None or right is None:
        return None
    kinds = [
        next(
            kind
            for kind in (bool, str, bytes, float)
            if isinstance(value, (int, float) if kind is float else kind)
        )
        for value in (left, right)
    ]
    if kinds[0] is not kinds[1] or (kinds[0] is bool and sign not in ("=", "<>")):
        return False
    if left != left or right != right:  # not a number: no comparison holds
        return False
    return bool(
        eval(f"left { ({'=': '==', '<>': '!='}.get(sign, sign)) } right", {"left": left, "right": right})
    )


@settings(max_examples=cases(300), deadline=None)
@given(conditions, st.lists(messages, min_size=1, max_size=5))
def test_sql_says_what_the_simple_evaluator_says(condition: Part, several: list[Message]) -> None:
    text = written(condition)
    criterion = SqlFilter(text, lambda: 0)
    opposite = SqlFilter(f"NOT ({text})", lambda: 0)
    for message in several:
        expected = meaning(condition, message)
        view = view_of(message)
        assert criterion.matches(view) is (expected is True), (text, message)
        assert opposite.matches(view) is (expected is False), (text, message)
        check_demands(criterion.demands, criterion.matches(view), view)


WORDS = [
    "AND",
    "OR",
    "NOT",
    "IN",
    "LIKE",
    "IS",
    "NULL",
    "ESCAPE",
    "TRUE",
    "UTC",
    "(",
    ")",
    "=",
    "<",
    "%",
    "-",
]
ODD = [
    "a",
    "p.to",
    "[b]",
    "'a'",
    '"',
    "'",
    "[",
    "]]",
    "0x4A",
    "0x",
    "1",
    "1.5",
    "1.",
    "and",
    "p.x",
    ",",
    "\n",
    "#",
]


@settings(max_examples=cases(300))
@given(st.lists(st.sampled_from(WORDS + ODD), max_size=12), st.sampled_from(["", " "]), messages)
def test_any_text_is_a_condition_or_is_refused(words: list[str], between: str, message: Message) -> None:
    with contextlib.suppress(PreconditionFailed):
        SqlFilter(between.join(words), lambda: 0).matches(view_of(message))
