"""Values found in content without decoding the rest of it, against the decoded content."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic

from broker.adapters.formats.amqp091 import ContentView, View091
from broker.adapters.formats.either import SelectorFilter
from broker.core.entries.entry import QueueEntry
from broker.core.message import NOWHERE, Message
from broker.core.message_view import JMS_FIELDS, PROPERTIES
from broker.core.ports import MessageStore
from broker.core.selector.selector import Selector
from protocol.amqp091.content import scan
from protocol.amqp091.properties import Properties
from tests.support.amqp091.field_bytes import FIELDS, field
from tests.support.amqp091.frames import header_bytes

TEXTS = ["", "a", "kind", "ü", "a" * 255, "it''s", "65"]
NAMES = ["a", "kind", "priority", "type", "app_id", "JMSType", "JMSDeliveryMode", "ü", "Sa"]
IDENTIFIERS = [
    *NAMES,
    *PROPERTIES,
    *JMS_FIELDS,
    *("properties." + name for name in PROPERTIES),
    "properties.a",
    "none",
]

properties = st.fixed_dictionaries(
    {},
    optional={
        "content_type": st.sampled_from(TEXTS),
        "delivery_mode": st.sampled_from([1, 2]),
        "priority": st.integers(0, 255),
        "correlation_id": st.sampled_from(TEXTS),
        "timestamp": st.integers(0, 2**31).map(lambda time: datetime.fromtimestamp(time, UTC)),
        "message_type": st.sampled_from(TEXTS),
        "app_id": st.sampled_from(TEXTS),
    },
)
texts = st.sampled_from(TEXTS).map(lambda text: b"S" + len(text.encode()).to_bytes(4, "big") + text.encode())
WIDTHS = {"b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "l": 8, "L": 8}
NUMBERS = [
    -3,
    -1,
    0,
    1,
    65,
    66,
    -(1 << 7),
    1 << 7,
    255,
    1 << 15,
    0xFFFF,
    1 << 31,
    0xFFFFFFFF,
    -(1 << 63),
    1 - (1 << 63),
]
numbers = st.tuples(st.sampled_from(list(WIDTHS)), st.sampled_from(NUMBERS)).map(
    lambda both: both[0].encode() + (both[1] % (1 << 8 * WIDTHS[both[0]])).to_bytes(WIDTHS[both[0]], "big")
)
values = st.one_of(texts, numbers, st.sampled_from(list(FIELDS.values())))
tables = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=6).map(
    lambda fields: b"".join([field(name.encode(), value) for name, value in fields])
)
literals = st.one_of(
    st.sampled_from([f"'{text}'" for text in TEXTS]),
    st.sampled_from(NUMBERS).map(str),
    st.sampled_from(["TRUE", "1.0"]),
)
equalities = st.tuples(st.sampled_from(IDENTIFIERS), literals).map(lambda both: f'"{both[0]}" = {both[1]}')


def content_with(table: bytes | None, properties: dict[str, Any], body: bytes = b"") -> bytes:
    content = Properties(header_bytes(len(body), Basic.Properties(**properties), 1) + body)
    if table is not None:
        content.set_table(len(table).to_bytes(4, "big") + table)
    return content.content()


@given(st.one_of(st.none(), tables), properties)
def test_lookups(table: bytes | None, properties: dict[str, Any]) -> None:
    content = content_with(table, properties)
    decoded = View091(Properties(content))
    for name in IDENTIFIERS:
        value = ContentView(content).lookup(name)
        assert value == decoded.lookup(name)
        assert type(value) is type(decoded.lookup(name))
    for name in PROPERTIES:
        assert ContentView(content).property(name) == decoded.property(name)


@given(st.one_of(st.none(), tables), properties, st.lists(equalities, min_size=1, max_size=3), st.booleans())
def test_filters(table: bytes | None, properties: dict[str, Any], asked: list[str], long: bool) -> None:
    content = content_with(table, properties, b"kind" * 500 if long else b"")
    selector = Selector(" AND ".join(asked))
    entry = QueueEntry(Message(NOWHERE, content, 0, False, 0), 1)
    passes = SelectorFilter(selector, MessageStore()).passes(entry)
    assert passes == selector.matches(View091(Properties(content)))


@given(st.binary(max_size=40), properties)
def test_random_tables_raise_no_error(table: bytes, properties: dict[str, Any]) -> None:
    content = content_with(table, properties)
    scan(content, 0, len(content) - 8)
    for name in ("a", "type", "none"):
        ContentView(content).lookup(name)


def test_a_table_that_is_malformed_has_no_headers() -> None:
    first, second = field(b"a", FIELDS["I"]), field(b"type", FIELDS["S"])
    for table in (
        (first + second)[:-1],
        first + b"\x04type",
        first + b"\xffa",
        first + field(b"b", b"?"),
        first + field(b"b", b"S\xff\xff\xff\xff"),
        first + field(b"b", b"S\x00"),
    ):
        view = ContentView(content_with(table, {"message_type": "t"}))
        assert (view.lookup("a"), view.lookup("type"), view.lookup("b")) == (None, "t", None)
    view = ContentView(content_with(first + second, {"message_type": "t"}))
    assert (view.lookup("a"), view.lookup("type")) == (-(2**31), "h\u00e9llo")


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=3),
            st.sampled_from([b"\x01a", b"\x01aI\0\0\0\x07", b"\x01aI\0\0\0\x08", b"\x01al"]),
        ),
        max_size=6,
    ),
    st.sampled_from([*WIDTHS, "S"]),
    st.integers(6, 9),
    st.booleans(),
)
def test_header_names_within_a_value(parts: list[bytes], kind: str, number: int, first: bool) -> None:
    value = number.to_bytes(WIDTHS[kind], "big") if kind in WIDTHS else FIELDS["S"][1:]
    wanted = field(b"a", kind.encode() + value)
    text = b"".join(parts)
    other = field(b"x", b"x" + len(text).to_bytes(4, "big") + text)
    content = content_with(wanted + other if first else other + wanted, {})
    entry = QueueEntry(Message(NOWHERE, content, 0, False, 0), 1)
    passes = SelectorFilter(Selector("a = 7"), MessageStore()).passes(entry)
    assert passes == (kind in WIDTHS and number == 7)


def test_demanded_values() -> None:
    demands = Selector("kind = 'x' AND (5 = level AND a > 3) AND b = 1.5 AND c = TRUE AND NOT d = 1").demands
    assert demands == [("kind", "x"), ("level", 5)]
    assert Selector("kind = 'x' OR level = 5").demands == []
    assert Selector("NOT kind = 'x'").demands == []
    assert Selector("kind = other").demands == []
