"""Selectors against an evaluator that is too simple to be wrong, over selectors and messages of all sorts."""

import contextlib
import re
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.errors import PreconditionFailed
from broker.core.message_view import MessageView
from broker.core.selector.selector import Selector
from tests.support.effort import cases

Value = int | float | str | bool | None
Part = tuple[Any, ...]  # name of the operation, then its operands, which are parts too
NAMES = ["a", "b", "c", "A", "x.y", "x-y", "null", "JMSX"]
TEXTS = ["", "a", "ab", "b", "a%", "_", "it's", "ü"]
WORDS = ["AND", "OR", "NOT", "IN", "LIKE", "IS", "NULL", "BETWEEN", "ESCAPE", "TRUE"]
SIGNS = ["(", ")", "=", "<>", "<", "+", "-", "*", "/"]
ODD = [",", "'a'", "1", "1.5", '"', "'", "%", "0x", "1e5", "#"]
PATTERNS = ["", "%", "a%", "%b", "_", "a_", "%a%b%", "!%", "a!%", "!_%", "_%_"]


@dataclass
class Fields(MessageView):
    """A message with headers and nothing else."""

    values: dict[str, object] = field(default_factory=dict)

    def headers(self) -> dict[str, object]:
        return self.values


literals = st.one_of(
    st.integers(-3, 3), st.sampled_from([0.5, -1.0, 2.0]), st.sampled_from(TEXTS), st.booleans()
)
numbers = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, -1.0, 2.0]))
headers = st.dictionaries(st.sampled_from(NAMES), st.one_of(literals, st.none(), st.just([1])))

numeric = st.recursive(
    st.one_of(st.tuples(st.just("literal"), numbers), st.tuples(st.just("name"), st.sampled_from(NAMES))),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("+-*/"), inner, inner),
        st.tuples(st.just("negative"), inner),
    ),
    max_leaves=4,
)
texts = st.one_of(
    st.tuples(st.just("literal"), st.sampled_from(TEXTS)), st.tuples(st.just("name"), st.sampled_from(NAMES))
)
ordered = st.one_of(numeric, texts)
anything = st.one_of(ordered, st.tuples(st.just("literal"), st.booleans()))
atoms = st.one_of(
    st.tuples(st.sampled_from(["=", "<>"]), anything, anything),
    st.tuples(st.sampled_from(["<", ">", "<=", ">="]), ordered, ordered),
    st.tuples(st.just("between"), ordered, ordered, ordered),
    st.tuples(st.just("in"), anything, st.lists(literals, min_size=1, max_size=3).map(tuple)),
    st.tuples(st.just("like"), texts, st.sampled_from(PATTERNS)),
    st.tuples(st.just("null"), anything),
    st.tuples(st.just("name"), st.sampled_from(NAMES)),
)
conditions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(st.just("and"), inner, inner),
        st.tuples(st.just("or"), inner, inner),
        st.tuples(st.just("not"), inner),
        st.tuples(st.just("="), inner.map(lambda part: ("nested", part)), anything),
    ),
    max_leaves=8,
)


def written(part: Part, random: st.DataObject) -> str:
    """A text for a selector, with all parentheses and in any case."""
    what, *rest = part
    if what == "literal":
        return literal(rest[0])
    if what == "name":
        return name(rest[0])
    if what == "nested":
        return f"({written(rest[0], random)})"
    inner = [written(one, random) for one in rest if isinstance(one, tuple) and what != "in"]
    if what == "in":
        inner = [written(rest[0], random)]
        return f"({inner[0]} {cased('in', random)} ({', '.join(map(literal, rest[1]))}))"
    if what == "like":
        return f"({inner[0]} {cased('like', random)} {literal(rest[1])} {cased('escape', random)} '!')"
    if what == "null":
        return f"({inner[0]} {cased('is null', random)})"
    if what == "not":
        return f"({cased('not', random)} {inner[0]})"
    if what == "negative":
        return f"(- {inner[0]})"
    if what == "between":
        return f"({inner[0]} {cased('between', random)} {inner[1]} {cased('and', random)} {inner[2]})"
    return f"({inner[0]} {cased(what, random)} {inner[1]})"


def cased(word: str, random: st.DataObject) -> str:
    return word.upper() if random.draw(st.booleans()) else word


def literal(value: Value) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).upper() if isinstance(value, bool) else repr(value)


def name(name: str) -> str:
    return f'"{name}"' if name in ("x-y", "null") else name


def kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "other"


def meaning(part: Part, message: dict[str, object]) -> object:
    """The value of a selector; None is NULL and unknown."""
    what, *rest = part
    if what == "literal":
        return rest[0]
    if what == "name":
        return message.get(rest[0])
    if what == "nested":
        return meaning(rest[0], message)
    first = meaning(rest[0], message)
    if what == "null":
        return first is None
    if what == "not":
        return None if kind(first) != "boolean" else not first
    if what == "negative":
        return -first if kind(first) == "number" else None  # type: ignore[operator]
    if what == "in":
        equal = [compared("=", first, choice) for choice in rest[1]]
        return None if first is None else True in equal
    if what == "like":
        if first is None:
            return None
        return kind(first) == "string" and re.fullmatch(regular(rest[1]), str(first), re.DOTALL) is not None
    second = meaning(rest[1], message)
    if what in ("and", "or"):
        decisive = what == "or"
        values = [value if kind(value) == "boolean" else None for value in (first, second)]
        return decisive if decisive in values else None if None in values else not decisive
    if what == "between":
        third = meaning(rest[2], message)
        both = [compared(">=", first, second), compared("<=", first, third)]
        return False if False in both else None if None in both else True
    if what in "+-*/":
        if kind(first) != "number" or kind(second) != "number":
            return None
        return calculated(what, first, second)
    return compared(what, first, second)


def calculated(sign: str, left: object, right: object) -> object:
    if sign != "/":
        return eval(f"left {sign} right", {"left": left, "right": right})
    if right == 0:
        return None
    quotient = left / right  # type: ignore[operator]
    return int(quotient) if isinstance(left, int) and isinstance(right, int) else quotient


def compared(sign: str, left: object, right: object) -> bool | None:
    if left is None or right is None:
        return None
    if kind(left) != kind(right) or kind(left) == "other":
        return False
    if kind(left) == "boolean" and sign not in ("=", "<>"):
        return False
    python = {"=": "==", "<>": "!="}.get(sign, sign)
    return bool(eval(f"left {python} right", {"left": left, "right": right}))


def regular(pattern: str) -> str:
    """A LIKE pattern, escaped by `!`, as a regular expression."""
    parts = re.findall("!.|.", pattern)
    return "".join({"%": ".*", "_": "."}.get(part, re.escape(part[-1])) for part in parts)


@settings(max_examples=cases(400), deadline=None)
@given(conditions, st.lists(headers, min_size=1, max_size=5), st.data())
def test_selectors_say_what_the_simple_evaluator_says(
    condition: Part, messages: list[dict[str, object]], random: st.DataObject
) -> None:
    text = written(condition, random)
    selector = Selector(text)
    again = Selector(selector.canonical)
    assert again.canonical == selector.canonical
    assert len(selector.canonical) <= len(text), "no parentheses that the text does without"
    opposite = Selector(f"NOT ({text})")
    for message in messages:
        expected = meaning(condition, message)
        assert selector.matches(Fields(message)) is (expected is True), (text, message)
        assert opposite.matches(Fields(message)) is (expected is False), (text, message)
        assert again.matches(Fields(message)) is (expected is True), (selector.canonical, message)


@settings(max_examples=cases(300), deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                *NAMES,
                *[
                    "AND",
                    "OR",
                    "NOT",
                    "IN",
                    "LIKE",
                    "IS",
                    "NULL",
                    "BETWEEN",
                    "ESCAPE",
                    "TRUE",
                    "(",
                    ")",
                    "=",
                    "<>",
                    "<",
                    "+",
                    "-",
                    "*",
                    "/",
                ],
                *ODD,
            ]
        ),
        max_size=12,
    )
)
def test_any_text_is_a_selector_or_is_refused(words: list[str]) -> None:
    with contextlib.suppress(PreconditionFailed):
        selector = Selector(" ".join(words))
        assert Selector(selector.canonical).canonical == selector.canonical
        selector.matches(Fields({"a": 1, "b": "x"}))


@settings(max_examples=cases(300), deadline=None)
@given(st.text(alphabet="ab%_", max_size=12), st.text(alphabet="ab%_!", max_size=8))
def test_patterns(text: str, pattern: str) -> None:
    with contextlib.suppress(PreconditionFailed):
        selector = Selector(f"h LIKE '{pattern}' ESCAPE '!'")
        expected = re.fullmatch(regular(pattern), text) is not None
        assert selector.matches(Fields({"h": text})) is expected
