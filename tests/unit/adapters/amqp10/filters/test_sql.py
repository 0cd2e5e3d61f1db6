"""SQL filters: syntax, meaning for messages of both protocols, and errors."""

import re
from datetime import UTC, datetime
from uuid import UUID

import pytest

from broker.adapters.amqp10.filters.sql import SqlFilter
from broker.adapters.formats.amqp091 import ContentView
from broker.adapters.formats.amqp10 import View10
from broker.core.errors import PreconditionFailed
from broker.core.message_view import MessageView
from protocol.amqp10.types import Char, Float, Int, Symbol, Timestamp, Ubyte, Uint, Ulong
from tests.support.amqp10.contents import content10
from tests.support.core.topology import content_of

ID = UUID("12345678-9abc-def0-1234-56789abcdef0")
NOW = 1_700_000_000_000
OF_10 = View10(
    content10(
        {"x-note": "n"},
        {
            "area": Symbol("north"),
            "town": "Bergen",
            "count": Uint(12),
            "cost": 2.5,
            "share": Float(0.5),
            "cold": Int(-7),
            "zero": Ubyte(0),
            "large": Ulong(2**64 - 1),
            "yes": True,
            "no": False,
            "void": None,
            "raw": b"Hello",
            "letter": Char("q"),
            "uuid": ID,
            "at": Timestamp(1500),
            "odd [name]": 1,
            "AND": 2,
            "x-note": "mine",
            "list": [1],
        },
        durable=True,
        priority=7,
        message_id=ID,
        user_id=b"John",
        to="/queues/q",
        subject="Order 66",
        reply_to="/queues/r",
        correlation_id=Ulong(789),
        content_type=Symbol("text/plain"),
        content_encoding=Symbol("gzip"),
        absolute_expiry_time=Timestamp(NOW + 1000),
        creation_time=Timestamp(NOW - 1000),
        group_id="g",
        group_sequence=Uint(9),
        reply_to_group_id="rg",
    )
)
OF_091 = ContentView(
    content_of(
        headers={
            "area": "north",
            "town": "Bergen",
            "count": 12,
            "cost": 2.5,
            "cold": -7,
            "yes": True,
            "no": False,
            "void": None,
            "raw": bytearray(b"Hello"),
            "at": datetime.fromtimestamp(15, UTC),
            "odd [name]": 1,
            "x-note": "n",
            "list": [1],
            "table": {"k": 1},
        },
        delivery_mode=2,
        priority=7,
        message_id=f"urn:uuid:{ID}",
        user_id="John",
        reply_to="r",
        correlation_id="c",
        content_type="text/plain",
        content_encoding="gzip",
        timestamp=datetime.fromtimestamp(1000, UTC),
        app_id="g",
    )
)
BARE = View10(content10())


def date() -> int:
    return NOW


def matches(text: str, view: MessageView) -> bool:
    return SqlFilter(text, date).matches(view)


@pytest.mark.parametrize(
    "text",
    [
        "area = 'north' AND town = \"Bergen\" AND a.town='Bergen'AND application_properties.town LIKE 'B%n'",
        "count = 12 AND count = 12.0 AND count > 11.5 AND 12 >= count AND count != 11 AND count <> 13",
        "count / 5 = 2.4 AND count / 4 = 3",
        "count % 5 = 2 AND cold % 4 = -3 AND 7 % cold = 0 AND 8 % cold = 1 AND 26 % count % 5 = 2",
        "-cold = 7 AND +cold = -7 AND - -cold = -7 AND 2 + 3 * 4 = 14 AND (2 + 3) * 4 = 20",
        "cost * 1.0E2 = 250 AND cost = 25.0E-1 AND cost IN (1, count, 2 + 0.5)",
        "yes AND NOT no AND yes = TRUE AND no <> TRUE AND yes IN (no, TRUE)",
        "void IS NULL AND nothing IS NULL AND town IS NOT NULL",
        "'Bergen' IN (area, town) AND town NOT IN ('a', nothing) AND town NOT LIKE '_'",
        "town LIKE 'B!er%' ESCAPE '!' AND 'it''s' = \"it's\" AND '\"' = \"\"\"\"",
        "raw = 0x48656C6C6F AND raw <> 0x48 AND raw > 0x48 AND raw IN (0x00, 0x48656C6C6F) AND raw >= raw",
        "[odd [[name]]] = 1 AND [town] = 'Bergen'",
        "\tarea\n=\r'north'\f",
        "header.priority = 7 AND h.priority > 6 AND header.durable",
        "p.message_id = 0x123456789ABCDEF0123456789ABCDEF0",
        "properties.user_id = 'John' AND p.user_id = 0x4A6F686E AND p.user_id LIKE 'J%'",
        "p.user_id IN ('Jane', 0x4A6F686E) AND 'John' IN (p.user_id) AND 0x4A6F686E IN (p.user_id)",
        "0x4A6F686E = p.user_id",
        "p.reply_to = '/queues/r' AND p.content_type = 'text/plain' AND p.content_encoding = 'gzip'",
        "p.group_id = 'g' AND p.creation_time < UTC() AND UTC ( ) > 0",
    ],
)
def test_conditions_that_hold_for_messages_of_both_protocols(text: str) -> None:
    assert matches(text, OF_10)
    assert matches(text, OF_091)


@pytest.mark.parametrize(
    "text",
    [
        "large = 18446744073709551615 AND share = 0.5 AND letter = 'q'",
        "uuid = 0x123456789ABCDEF0123456789ABCDEF0 AND at = 1500",
        "[AND] = 2",
        "p.to = '/queues/q' AND p.subject LIKE 'Order%' AND p.reply_to_group_id = 'rg'",
        "p.correlation_id = 789 AND p.group_sequence % 2 = 1",
        "p.absolute_expiry_time > UTC() AND p.creation_time = 1699999999000",
    ],
)
def test_conditions_on_types_of_amqp_1_0_only(text: str) -> None:
    assert matches(text, OF_10)


def test_conditions_on_how_messages_of_amqp_091_are_converted() -> None:
    assert matches("p.correlation_id = 'c' AND at = 15000 AND p.creation_time = 1000000", OF_091)
    assert matches("p.to IS NULL AND p.subject IS NULL AND p.group_sequence IS NULL", OF_091)
    assert matches("table IS NULL AND list IS NULL AND [x-note] IS NULL", OF_091)
    assert matches("[x-note] = 'mine' AND list IS NULL", OF_10)


def test_a_message_without_anything_has_a_priority_of_4_and_is_not_durable() -> None:
    for view in (BARE, ContentView(content_of())):
        assert matches("h.priority = 4 AND NOT h.durable AND p.subject IS NULL AND a.x IS NULL", view)


@pytest.mark.parametrize(
    "text",
    [
        "town = 'bergen'",
        "TOWN = 'Bergen'",
        "town = 5",
        "town <> 5",  # different types are neither equal nor unequal
        "town > 5",
        "raw = 'Hello'",
        "raw LIKE '%'",
        "yes = 1",
        "yes > no",
        "void = void",
        "nothing <> 1",
        "NOT nothing",
        "NOT (nothing IN ('a') AND yes)",
        "nothing NOT LIKE '%'",
        "nothing NOT IN ('a')",
        "count / 0 = 0",
        "count % 0 = 0",
        "count % 1.5 = 0",
        "town + 1 = 2",
        "+town = 'Bergen'",
        "count",
        "no",
        "FALSE",
        "p.user_id = 0x4A6F68",
        "p.user_id = 'Johnny'",
    ],
)
def test_conditions_that_do_not_hold(text: str) -> None:
    assert not matches(text, OF_10)
    assert not matches(text, OF_091)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("", "position 1: expected a value or a condition, found the end"),
        ("a = ", "position 5: expected a value or a condition, found the end"),
        ("a = 1 b", "position 7: expected an operator or the end, found 'b'"),
        ("a = 1 and b = 2", "position 7: 'and' is reserved; a property of this name is [and]"),
        ("Lower = 1", "position 1: 'Lower' is reserved; a property of this name is [Lower]"),
        ("a BETWEEN 1 AND 2", "position 3: expected an operator or the end, found 'BETWEEN'"),
        ("m.a = 1", "position 1: 'm' is not a section that filters read"),
        ("header.ttl = 1", "position 1: 'header.ttl' is not a field that filters read"),
        ("p.message-id = 1", "position 1: 'p.message' is not a field that filters read"),
        ("a.b.c = 1", "position 4: '.' begins nothing that an SQL filter knows"),
        ("$a = 1", "position 1: '$' begins nothing that an SQL filter knows"),
        ("a = 'b", 'position 5: "\'" begins nothing that an SQL filter knows'),
        ("[a\nb] = 1", "position 1: '[' begins nothing that an SQL filter knows"),
        ("a = 5.", "position 5: '5' begins nothing that an SQL filter knows"),
        ("a = 5E2", "position 5: '5' begins nothing that an SQL filter knows"),
        ("a = 1b", "position 5: '1' begins nothing that an SQL filter knows"),
        ("a = 0x1", "position 5: '0' begins nothing that an SQL filter knows"),
        ("a = 0xab", "position 5: '0' begins nothing that an SQL filter knows"),
        ("a = 18446744073709551616", "position 5: '18446744073709551616' is out of range"),
        ("a = 1.0E999", "position 5: '1.0E999' is out of range"),
        ("a LIKE 0x48", "position 8: expected a pattern in quotes, found '0x48'"),
        ("0x48 LIKE 'a'", "position 1: expected a string, found a binary"),
        ("0x48 + 1 = 2", "position 1: expected a number, found a binary"),
        ("a LIKE 'b!' ESCAPE '!'", "position 20: the escape character escapes nothing"),
        ("UTC(1) > 0", "position 5: expected ')', found '1'"),
        ("UTC > 0", "position 5: expected '(', found '>'"),
        ("a IN ()", "position 7: expected a value or a condition, found ')'"),
        ("5", "position 1: expected a condition, found a number"),
        ("a IN (" + ", ".join(["1"] * 99) + ")", "position 302: more than 200 words, signs and values"),
        ("a = '" + "b" * 4091 + "'", "4097 characters, at most 4096 are allowed"),
        ("(" * 51 + "a" + ")" * 51, "position 51: more than 50 parentheses within each other"),
    ],
)
def test_an_expression_without_a_boolean_value_is_refused(text: str, refusal: str) -> None:
    with pytest.raises(PreconditionFailed, match="^" + re.escape(refusal) + "$"):
        SqlFilter(text, date)


def test_as_much_as_is_allowed_is() -> None:
    SqlFilter("a IN (" + ", ".join(["1"] * 98) + ")", date)
    SqlFilter("a = '" + "b" * 4090 + "'", date)
    assert matches("count < " + "0" * 4000 + "13", OF_10)


@pytest.mark.parametrize(
    "text",
    [
        'kind="a" AND p.to!=0x00AB',
        "(a.kind = 'a') AND p.to <> 0x00AB",
        "[kind]='a'AND(properties.to<>0x00AB)",
    ],
)
def test_filters_that_say_the_same_have_the_same_text(text: str) -> None:
    expected = "sql: application_properties.kind = 'a' AND properties.to <> 0x00AB"
    assert SqlFilter(text, date).canonical == expected
    assert SqlFilter(text.replace("AB", "AC"), date).canonical != expected


def test_filters_that_use_utc_have_no_common_canonical_text() -> None:
    texts = [SqlFilter("p.creation_time < UTC()", date).canonical for _ in range(2)]
    assert len(set(texts)) == 2


def test_the_time_is_asked_for_each_message() -> None:
    times = iter([1500, 1501])
    late = SqlFilter("at < UTC()", lambda: next(times))
    assert [late.matches(OF_10), late.matches(OF_10)] == [False, True]


def test_demanded_values_are_headers_of_selectors() -> None:
    text = (
        "kind = 'a' AND 5 = a.level AND [x-a] = 1 AND p.to = 'q' AND h.priority = 4 AND b = 0x00 AND c = TRUE"
    )
    assert SqlFilter(text, date).demands == [("kind", "a"), ("level", 5)]
    assert SqlFilter("kind = 'a' OR level = 5", date).demands == []
