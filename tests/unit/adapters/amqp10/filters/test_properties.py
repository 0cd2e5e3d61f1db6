"""Filters that compare properties and application properties with references."""

import re
from datetime import UTC, datetime
from uuid import UUID

import pytest

from broker.adapters.amqp10.filters.properties import ApplicationPropertiesFilter, PropertiesFilter
from broker.adapters.formats.amqp091 import ContentView
from broker.adapters.formats.amqp10 import View10
from protocol.amqp10.types import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Map,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
)
from tests.support.amqp10.contents import content10
from tests.support.core.topology import content_of

ID = UUID("12345678-9abc-def0-1234-56789abcdef0")
FULL = View10(
    content10(
        message_id=Ulong(999),
        user_id=b"guest",
        to="/queues/q",
        subject="&Hello",
        reply_to="/queues/r",
        correlation_id=ID,
        content_type=Symbol("text/plain"),
        content_encoding=Symbol("gzip"),
        absolute_expiry_time=Timestamp(2000),
        creation_time=Timestamp(1000),
        group_id="g\u00fc",
        group_sequence=Uint(2**32 - 1),
        reply_to_group_id="rg",
    )
)
OLD = ContentView(
    content_of(
        message_id="999",
        user_id="guest",
        reply_to="r",
        correlation_id=f"urn:uuid:{ID}",
        content_type="text/plain",
        timestamp=datetime.fromtimestamp(1, UTC),
        app_id="g",
    )
)
EMPTY = View10(content10(application={}))


def properties(**fields: object) -> PropertiesFilter:
    return PropertiesFilter(Map([(Symbol(name.replace("_", "-")), value) for name, value in fields.items()]))


def application(fields: dict[str, object]) -> ApplicationPropertiesFilter:
    return ApplicationPropertiesFilter(Map(list(fields.items())))


@pytest.mark.parametrize(
    "fields",
    [
        {"message_id": Ulong(999)},
        {"user_id": b"guest", "to": "/queues/q", "reply_to": "/queues/r"},
        {"correlation_id": ID, "content_encoding": Symbol("gzip")},
        {"content_type": Symbol("text/plain")},
        {"content_type": "&p:text/", "content_encoding": "gzip"},
        {"absolute_expiry_time": Timestamp(2000), "creation_time": Timestamp(1000)},
        {"group_id": "g\u00fc", "group_sequence": Uint(2**32 - 1), "reply_to_group_id": "rg"},
        {"group_sequence": Ulong(2**32 - 1)},
        {"subject": "&&Hello"},
        {"to": "&p:/queues", "reply_to": "&s:r", "group_id": "&s:\u00fc", "reply_to_group_id": "&p:"},
        {"subject": None, "message_id": None},
        {},
    ],
)
def test_a_properties_filter_matches_equal_properties(fields: dict[str, object]) -> None:
    assert properties(**fields).matches(FULL)
    assert properties(**fields).matches(EMPTY) == (not fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"message_id": "999"},
        {"message_id": b"999"},
        {"message_id": "&p:"},
        {"user_id": b"guess"},
        {"correlation_id": ID.bytes},
        {"correlation_id": str(ID)},
        {"correlation_id": UUID(int=1)},
        {"creation_time": Timestamp(1001)},
        {"group_sequence": Uint(1)},
        {"subject": "Hello"},
        {"subject": "&s:&Hello!"},
        {"to": "/queues/q", "subject": "other"},
    ],
)
def test_properties_that_are_not(fields: dict[str, object]) -> None:
    assert not properties(**fields).matches(FULL)


def test_properties_of_amqp_091_are_as_consumers_get_them() -> None:
    assert properties(message_id="999", user_id=b"guest", correlation_id=ID, group_id="g").matches(OLD)
    assert properties(reply_to="/queues/r", content_type=Symbol("text/plain")).matches(OLD)
    assert properties(creation_time=Timestamp(1000)).matches(OLD)
    for missing in ("to", "subject", "group_sequence", "absolute_expiry_time", "content_encoding"):
        assert not properties(**{missing: None}).matches(OLD)


APPLICATION: dict[str, object] = {
    "n": -2,
    "ten": 10.0,
    "no": False,
    "yes": True,
    "text": "hey",
    "word": Symbol("hey"),
    "char": Char("c"),
    "raw": b"hey",
    "id": ID,
    "at": Timestamp(1000),
    "money": Decimal(0x74, b"\0\0\0\1"),
    "void": None,
}


@pytest.mark.parametrize(
    "fields",
    [
        {"n": Byte(-2), "ten": Ubyte(10), "no": False, "yes": True},
        {"n": -2.0, "ten": Float(10.0)},
        {"text": Symbol("hey"), "word": "hey", "char": Char("c"), "raw": b"hey"},
        {"char": "c", "text": "&p:he", "word": "&s:y"},
        {"id": ID, "at": Timestamp(1000), "money": Decimal(0x74, b"\0\0\0\1")},
        {"n": None, "no": None},
    ],
)
def test_an_application_properties_filter_matches_equal_values(fields: dict[str, object]) -> None:
    assert application(fields).matches(View10(content10(application=APPLICATION)))
    assert not application(fields).matches(EMPTY)
    assert not application(fields).matches(View10(content10()))


@pytest.mark.parametrize(
    "fields",
    [
        {"ten": 10.1},
        {"no": 0},
        {"yes": 1},
        {"yes": 1.0},
        {"n": "-2"},
        {"text": "Hey"},
        {"text": Symbol("&p:he")},
        {"raw": "hey"},
        {"text": b"hey"},
        {"raw": "&p:h"},
        {"id": str(ID)},
        {"at": 1000},
        {"n": Timestamp(-2)},
        {"money": Decimal(0x74, b"\0\0\0\2")},
        {"money": Decimal(0x84, b"\0\0\0\0\0\0\0\1")},
        {"void": None},
        {"ten": float("nan")},
        {"absent": None},
        {"text": "hey", "n": 1},
    ],
)
def test_application_properties_that_are_not(fields: dict[str, object]) -> None:
    assert not application(fields).matches(View10(content10(application=APPLICATION)))


def test_headers_of_amqp_091_are_application_properties_but_those_with_x() -> None:
    headers: dict[str, object] = {
        "n": 5,
        "text": "a",
        "on": True,
        "raw": bytearray(b"r"),
        "x-n": 5,
        "list": [1],
        "at": datetime.fromtimestamp(1, UTC),
        "nul": "a\0",
    }
    view = ContentView(content_of(headers=headers))
    assert application({"n": Ulong(5), "text": "&p:a", "on": True, "raw": b"r"}).matches(view)
    assert application({"at": Timestamp(1000), "nul": b"a\0"}).matches(view)
    for missing in ("x-n", "list", "other"):
        assert not application({missing: None}).matches(view)


@pytest.mark.parametrize(
    ("value", "refusal"),
    [
        ([], "is not a map"),
        ("subject", "is not a map"),
        (Map([("nothing", "a")]), "'nothing' is not a property"),
        (Map([("message_id", "a")]), "'message_id' is not a property"),
        (Map([(5, "a")]), "has a key that is not a string"),
        (Map([(Char("a"), "a")]), "has a key that is not a string"),
        (Map([("to", "a"), (Symbol("to"), "b")]), "has 'to' twice"),
        (Map([("to", "&")]), "'to' begins with an & that is followed by neither &, p: nor s:"),
        (Map([("to", "&x")]), "'to' begins with an & that is followed by neither &, p: nor s:"),
        (Map([("to", 5)]), "'to' is not a string"),
        (Map([("message-id", True)]), "'message-id' is not a string, a ulong, a UUID or a binary"),
        (Map([("message-id", Timestamp(1))]), "'message-id' is not a string, a ulong, a UUID or a binary"),
        (Map([("user-id", "guest")]), "'user-id' is not a binary"),
        (Map([("creation-time", 5)]), "'creation-time' is not a timestamp"),
        (Map([("group-sequence", "5")]), "'group-sequence' is not an integer"),
        (Map([(str(number), "a") for number in range(17)]), "has more than 16 fields"),
    ],
)
def test_maps_that_are_no_filters_of_properties(value: object, refusal: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(refusal) + "$"):
        PropertiesFilter(value)


@pytest.mark.parametrize(
    ("value", "refusal"),
    [
        (None, "is not a map"),
        (Map([("a", "&b")]), "'a' begins with an & that is followed by neither &, p: nor s:"),
        (Map([("a", [])]), "'a' is not a simple value"),
        (Map([("a", Map([]))]), "'a' is not a simple value"),
        (Map([("a", Described(1, 2))]), "'a' is not a simple value"),
        (Map([("a", Array(0x50, [1]))]), "'a' is not a simple value"),
        (Map([(str(number), 1) for number in range(17)]), "has more than 16 fields"),
    ],
)
def test_maps_that_are_no_filters_of_application_properties(value: object, refusal: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(refusal) + "$"):
        ApplicationPropertiesFilter(value)


def test_as_many_fields_as_are_allowed_are() -> None:
    assert not application({str(number): 1 for number in range(16)}).matches(EMPTY)


def test_the_order_of_the_fields_and_the_widths_of_integers_make_no_difference() -> None:
    one = application({"a": Uint(5), "b": Symbol("x")})
    other = application({"b": "x", "a": Byte(5)})
    assert one.canonical == other.canonical
    texts = [
        application({"a": value}).canonical
        for value in (5, 5.5, "5", b"5", True, Timestamp(5), "&p:5", "&s:5", None, ID, Decimal(0x74, b"5555"))
    ]
    assert len(set(texts)) == len(texts)
    assert properties(to="a").canonical != application({"to": "a"}).canonical


def test_demanded_values() -> None:
    fields: dict[str, object] = {
        "kind": "a",
        "level": Uint(5),
        "word": Symbol("&w"),
        "x-a": 1,
        "p": "&p:a",
        "on": True,
        "at": Timestamp(1),
        "f": 1.5,
        "n": None,
    }
    assert application(fields).demands == [("kind", "a"), ("level", 5), ("word", "&w")]
