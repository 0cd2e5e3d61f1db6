"""Filters of AMQP 1.0 against evaluators that are too simple to be wrong, for messages of both protocols."""

import contextlib
import re
import struct
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.adapters.amqp10.filters import SourceFilters, filters_of
from broker.adapters.amqp10.parts import Parts091, Parts10
from broker.adapters.amqp10.property_filters import ApplicationPropertiesFilter, PropertiesFilter
from broker.adapters.amqp10.sql import SqlFilter
from broker.adapters.amqp10.view import View10
from broker.adapters.view091 import ContentView
from broker.core.entry import QueueEntry
from broker.core.errors import PreconditionFailed
from broker.core.message import NOWHERE
from broker.core.message import Message as KeptMessage
from broker.core.ports import MessageStore
from broker.core.view import MessageView
from protocol.amqp091 import properties as basic
from protocol.amqp10.conditions import PeerError
from protocol.amqp10.types import Array, Char, Decimal, Described, Map, Symbol, Timestamp, Ubyte, Uint, Ulong
from protocol.conversion.to10 import content10 as converted
from tests.contents10 import content10
from tests.conversion import content, short
from tests.field_bytes import FIELDS, field, long_string

ID = UUID("12345678-9abc-def0-1234-56789abcdef0")
TEXTS = ["", "a", "ab", "b", "&a", "ab&", "\u00fc", "%"]
KEYS = ["a", "b", "x-a", "AND", "\u00fc k", "priority", "CC"]
Message = dict[str, dict[str, object]]  # "p": properties, "a": application properties
Part = tuple[Any, ...]

simple = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(0, 3).map(Ubyte),
    st.sampled_from([Ulong(2**64 - 1), 0.5, -1.0, 2.0, float("nan")]),
    st.sampled_from(TEXTS),
    st.sampled_from(TEXTS).filter(str.isascii).map(Symbol),
    st.sampled_from(
        [Char("a"), b"a", b"\xff", ID, Timestamp(2), Timestamp(-(2**63)), Decimal(0x74, b"abcd")]
    ),
)
texts = st.none() | st.sampled_from(TEXTS)
ids = st.sampled_from([None, *TEXTS, Ulong(1), ID, b"a", b"\xff"])
properties = st.fixed_dictionaries(
    {},
    optional={
        "message_id": ids,
        "user_id": st.sampled_from([None, b"a", b"ab", b"\xff"]),
        "to": texts,
        "subject": texts,
        "correlation_id": ids,
        "content_type": st.sampled_from([None, Symbol("a"), Symbol("ab")]),
        "creation_time": st.sampled_from([None, Timestamp(1), Timestamp(2)]),
        "group_sequence": st.sampled_from([None, Uint(0), Uint(2)]),
    },
)
messages = st.fixed_dictionaries({"p": properties, "a": st.dictionaries(st.sampled_from(KEYS), simple)})


def view_of(message: Message) -> View10:
    bare: dict[str, Any] = message["p"]
    return View10(content10(application=message["a"], **bare))


# -- messages of AMQP 0-9-1

raw_texts = st.sampled_from([text.encode() for text in TEXTS] + [b"\xff", b"urn:uuid:" + str(ID).encode()])
old_properties = st.fixed_dictionaries(
    {},
    optional={
        **{
            place: raw_texts.map(short)
            for place in (
                basic.CONTENT_TYPE,
                basic.CONTENT_ENCODING,
                basic.CORRELATION_ID,
                basic.REPLY_TO,
                basic.MESSAGE_ID,
                basic.TYPE,
                basic.USER_ID,
                basic.APP_ID,
            )
        },
        basic.TIMESTAMP: st.integers(0, 2**64 - 1).map(lambda number: struct.pack(">Q", number)),
        basic.PRIORITY: st.binary(min_size=1, max_size=1),
        basic.DELIVERY_MODE: st.sampled_from([b"\x01", b"\x02"]),
    },
)
old_values = st.one_of(
    st.sampled_from(list(FIELDS.values())),
    raw_texts.map(lambda raw: b"S" + long_string(raw)),
    raw_texts.map(lambda raw: b"x" + long_string(raw)),
)
old_names = st.sampled_from([key.encode() for key in KEYS] + [b"x-message-id", b"x-correlation-id"])
old_tables = st.none() | st.dictionaries(old_names, old_values, max_size=5).map(
    lambda fields: b"".join(field(name, value) for name, value in fields.items())
)


@given(old_properties, old_tables)
def test_what_filters_see_of_amqp_091_is_what_consumers_of_amqp_10_get(
    properties: dict[int, bytes], table: bytes | None
) -> None:
    made = content(properties, table)
    old = Parts091(ContentView(made))
    new = Parts10(View10(converted(made, "", "")))
    for place in range(13):
        assert same(old.property(place), new.property(place)), place
    for key in [*KEYS, *KEYS]:  # so many are looked for by themselves, and so many more among all
        assert same(old.application_property(key.encode()), new.application_property(key.encode())), key
    assert old.priority() == new.priority()
    assert old.durable() == new.durable()


def same(one: object, other: object) -> bool:
    return type(one) is type(other) and (one == other or one != one)


# -- properties and application properties

references = st.one_of(simple, st.sampled_from(["&p:", "&p:a", "&s:b", "&&a", "&s:\u00fc", Symbol("&p:a")]))


def suits(reference: object, value: object) -> bool:
    if value is None:
        return False
    if reference is None:
        return True
    if isinstance(reference, str):
        pattern = re.escape(reference)
        if type(reference) is str and reference.startswith("&"):
            rest = re.escape(reference[3:])
            pattern = {"&p": rest + ".*", "&s": ".*" + rest}.get(reference[:2], re.escape(reference[1:]))
        return isinstance(value, str) and re.fullmatch(pattern, value, re.DOTALL) is not None
    return sort(reference) == sort(value) and reference == value


def sort(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool | Timestamp):
        return "number"
    return type(value).__name__


@given(st.dictionaries(st.sampled_from(KEYS), references, max_size=3), st.lists(messages, max_size=4))
def test_filters_of_application_properties(wanted: dict[str, object], several: list[Message]) -> None:
    with contextlib.suppress(ValueError):
        criterion = ApplicationPropertiesFilter(Map(list(wanted.items())))
        for message in several:
            expected = all(suits(reference, message["a"].get(key)) for key, reference in wanted.items())
            assert criterion.matches(view_of(message)) is expected
        return
    assert any(type(one) is str and re.match("&(?![&]|[ps]:)", one) for one in wanted.values())


@given(properties, st.lists(messages, max_size=4))
def test_filters_of_properties(wanted: dict[str, object], several: list[Message]) -> None:
    pairs = [(Symbol(name.replace("_", "-")), value) for name, value in wanted.items()]
    with contextlib.suppress(ValueError):
        criterion = PropertiesFilter(Map(list(pairs)))
        for message in several:
            expected = all(suits(reference, message["p"].get(name)) for name, reference in wanted.items())
            assert criterion.matches(view_of(message)) is expected
        return
    assert "&a" in wanted.values()


# -- SQL

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


def literal(value: object) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return "0x" + value.hex().upper()
    return str(value).upper() if isinstance(value, bool) else repr(value)


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


@settings(max_examples=300, deadline=None)
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


def check_demands(demands: list[tuple[str, str | int]], matches: bool, view: MessageView) -> None:
    """What a filter demands is so for selectors wherever it holds."""
    if matches:
        for name, value in demands:
            assert view.lookup(name) == value


equalities = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from([*TEXTS, 0, 1, 2, 65])), min_size=1, max_size=2
)


@given(equalities, messages, old_properties, old_tables)
def test_what_is_demanded_is_necessary(
    asked: list[tuple[str, object]], message: Message, properties: dict[int, bytes], table: bytes | None
) -> None:
    sql = SqlFilter(" AND ".join(f"[{key}] = {literal(value)}" for key, value in asked), lambda: 0)
    simple = [
        (key, "&" + value if isinstance(value, str) and value[:1] == "&" else value) for key, value in asked
    ]
    for criterion in (sql, ApplicationPropertiesFilter(dict(simple))):
        for view in (view_of(message), ContentView(content(properties, table))):
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


@settings(max_examples=300)
@given(st.lists(st.sampled_from(WORDS + ODD), max_size=12), st.sampled_from(["", " "]), messages)
def test_any_text_is_a_condition_or_is_refused(words: list[str], between: str, message: Message) -> None:
    with contextlib.suppress(PreconditionFailed):
        SqlFilter(between.join(words), lambda: 0).matches(view_of(message))


# -- whatever a peer sends

keys = st.one_of(
    st.sampled_from(["to", "subject", "message-id", "user-id", "group-sequence", "x-match", "a"]), simple
)
values = st.recursive(
    st.one_of(simple, st.text(max_size=20), st.sampled_from(["a = 1", "p.to = 'a'", "a ="])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(st.tuples(keys, inner), max_size=4).map(Map),
        st.tuples(inner, inner).map(lambda both: Described(*both)),
        st.lists(st.integers(0, 255), max_size=2).map(lambda items: Array(0x50, list(items))),
    ),
    max_leaves=8,
)
descriptors = st.one_of(
    st.sampled_from([0x468C00000000 + number for number in range(5)] + [0x120, 0x173, 0x174]).map(Ulong),
    st.sampled_from(["apache.org:selector-filter:string", "amqp:properties-filter"]).map(Symbol),
    values,
)
filters = st.dictionaries(
    st.text(max_size=10),
    st.one_of(values, st.tuples(descriptors, values).map(lambda both: Described(*both))),
    max_size=5,
)


@settings(max_examples=300)
@given(filters, messages, old_properties, old_tables)
def test_whatever_filters_are_given(
    given: dict[str, object], message: Message, properties: dict[int, bytes], table: bytes | None
) -> None:
    infos: list[object] = []
    read = SourceFilters()
    try:
        read = filters_of(given, lambda: 0)
    except PeerError as error:
        infos.append(error.info)
    if infos:
        assert infos == [{"field": "filter"}]
        return
    in_force = read.in_force(binding=True, no_local=True)
    assert in_force is not None
    assert all(in_force[name] is given[name] for name in in_force)
    if read.criterion is not None:
        entry_filter = read.entry_filter(MessageStore())
        assert entry_filter is not None
        for view in (view_of(message), ContentView(content(properties, table))):
            matches = read.criterion.matches(view)
            check_demands(read.criterion.demands, matches, view)
            entry = QueueEntry(KeptMessage(NOWHERE, view.content, 4, False, 0), 1)
            assert entry_filter.passes(entry) == matches
