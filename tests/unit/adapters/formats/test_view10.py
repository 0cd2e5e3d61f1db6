"""The core's view of a message of AMQP 1.0: properties, headers, group and delay."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from broker.adapters.formats.amqp10 import View10
from broker.core.message_view import PROPERTIES
from broker.core.publishing.delay import due_date
from broker.core.routing.kinds import DELAY, delay_of
from protocol.amqp10.types import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Long,
    Map,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from tests.support.amqp10.contents import BODY, bare10, content10
from tests.support.core.hand_clock import HandClock


def test_a_single_header_is_decoded_alone() -> None:
    annotations: Values = {"x-list": ["a", 1], "x-opt-delivery-delay": Ulong(5)}
    headers: Values = {"text": "t", "x-list": "hidden", "nothing": None}
    view = View10(content10(annotations, headers))
    names = ["x-list", DELAY, "text", "nothing", "absent"]
    single = [view.header_named(name) for name in names]
    assert view.header_named("x-list") is not view.header_named("x-list"), "nothing is kept"
    assert single == [view.headers().get(name) for name in names]
    assert single[2:] == ["t", None, None]
    assert view.header_named("x-list") is view.header_named("x-list"), "all headers are decoded"


ID = UUID("12345678-9abc-def0-1234-56789abcdef0")
Values = dict[str, object]


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("delivery_mode", {"durable": True}, 2),
        ("delivery_mode", {"durable": False}, 1),
        ("delivery_mode", {}, 1),
        ("priority", {"priority": 0}, 0),
        ("priority", {"priority": 255}, 255),
        ("expiration", {"ttl": 0}, "0"),
        ("expiration", {"ttl": 2**32 - 1}, "4294967295"),
        ("message_id", {"message_id": "id"}, "id"),
        ("message_id", {"message_id": ID}, f"urn:uuid:{ID}"),
        ("message_id", {"message_id": Ulong(2**64 - 1)}, "18446744073709551615"),
        ("message_id", {"message_id": Ulong(0)}, "0"),
        ("message_id", {"message_id": b"\x00\xff"}, "00ff"),
        ("message_id", {"message_id": "i" * 255}, "i" * 255),
        ("message_id", {"message_id": "i" * 256}, None),
        ("message_id", {"message_id": "\u00fc" * 128}, None),
        ("correlation_id", {"correlation_id": "id"}, "id"),
        ("correlation_id", {"correlation_id": ID}, f"urn:uuid:{ID}"),
        ("correlation_id", {"correlation_id": Ulong(7)}, "7"),
        ("correlation_id", {"correlation_id": b"A"}, "41"),
        ("user_id", {"user_id": b"guest"}, "guest"),
        ("user_id", {"user_id": "\u00fc".encode()}, "\u00fc"),
        ("user_id", {"user_id": b"\xff"}, None),
        ("reply_to", {"reply_to": "/queues/q"}, "/queues/q"),
        ("content_type", {"content_type": Symbol("text/plain")}, "text/plain"),
        ("content_encoding", {"content_encoding": Symbol("gzip")}, "gzip"),
        ("timestamp", {"creation_time": Timestamp(1_700_000_000_123)}, 1_700_000_000_123),
        ("timestamp", {"creation_time": Timestamp(-1)}, -1),
        ("app_id", {"group_id": "app"}, "app"),
        ("type", {"annotations": {"x-basic-type": "t"}}, "t"),
        ("type", {"annotations": {"x-basic-type": 5}}, None),
        ("type", {"subject": "s"}, None),
        ("message_id", {"to": "only"}, None),
    ],
)
def test_properties_go_by_the_names_of_the_other_protocol(name: str, given: Values, expected: object) -> None:
    found = View10(content10(**given)).property(name)  # type: ignore[arg-type]
    assert found == expected
    assert type(found) is type(expected)


def test_a_message_without_properties_has_only_a_delivery_mode() -> None:
    for content in (content10(), content10(application={}), BODY, b"\0"):
        view = View10(content)
        assert {name: view.property(name) for name in PROPERTIES if view.property(name) is not None} == {
            "delivery_mode": 1
        }
        assert view.headers() == {}
        assert (view.group_id(), view.group_sequence(), view.further_keys()) == (None, None, [])


def test_a_malformed_header_is_ignored() -> None:
    view = View10(b"\0Sp\xc0\x05\x02\x41\xa1\x01x" + BODY)  # durable, and a string for a priority
    assert {name: view.property(name) for name in PROPERTIES if view.property(name) is not None} == {
        "delivery_mode": 1
    }


SIMPLE = [
    (None, None),
    (True, True),
    (False, False),
    (Ubyte(255), 255),
    (Ushort(65535), 65535),
    (Uint(2**32 - 1), 2**32 - 1),
    (Uint(0), 0),
    (Ulong(2**64 - 1), 2**64 - 1),
    (Byte(-128), -128),
    (Short(-(2**15)), -(2**15)),
    (Int(-(2**31)), -(2**31)),
    (Long(-(2**63)), -(2**63)),
    (Float(1.5), 1.5),
    (2.25, 2.25),
    (float("inf"), float("inf")),
    (Char("\u00fc"), "\u00fc"),
    (Timestamp(1), datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)),
    (Timestamp(-1), datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
    (Timestamp(2**62), 2**62),
    (ID, str(ID)),
    (b"\xff", bytearray(b"\xff")),
    ("text" * 100, "text" * 100),
    (Symbol("symbol"), "symbol"),
]


@pytest.mark.parametrize(("value", "expected"), SIMPLE)
def test_every_simple_value_is_one_of_a_header(value: object, expected: object) -> None:
    for given in ({"application": {"x-h": value}}, {"annotations": {"x-h": value}}):
        view = View10(content10(**given))  # type: ignore[arg-type]
        assert view.headers() == {"x-h": expected}
        assert isinstance(view.headers()["x-h"], type(expected))


COMPOUNDS: list[tuple[object, object]] = [
    (["a", 1, [None]], ["a", 1, [None]]),
    (Array(0xA1, ["a", "b"]), ["a", "b"]),
    (Array(0x70, [1, 2]), [1, 2]),
    (
        Map([(Symbol("a"), 1), ("b", {"c": [ID]}), (5, "no string"), ("a", 2)]),
        {"a": 1, "b": {"c": [str(ID)]}},
    ),
    ([Decimal(0x74, b"\0\0\0\1"), Described(Symbol("d"), 1), 3], [3]),
]


@pytest.mark.parametrize(("value", "expected"), COMPOUNDS)
def test_annotations_may_be_compounds_and_application_properties_may_not(
    value: object, expected: object
) -> None:
    view = View10(content10({"x-a": value}, {"x-b": value, "c": 1}))
    assert view.headers() == {"x-a": expected, "c": 1}
    assert view.lookup("x-b") is None


@pytest.mark.parametrize(
    "value",
    [
        Decimal(0x74, b"\0\0\0\1"),
        Decimal(0x94, bytes(16)),
        Described(Symbol("d"), "v"),
        Array(0x41, [], (), 3),
        Array(0xA1, ["a"], (Symbol("d"),)),
    ],
)
def test_headers_without_a_field_value_are_absent(value: object) -> None:
    view = View10(content10({"x-a": value, "x-b": 1}, {"a": value, "b": 2}))
    assert view.headers() == {"x-b": 1, "b": 2}
    assert (view.lookup("x-a"), view.lookup("a")) == (None, None)


def test_headers_are_annotations_that_begin_with_x_and_application_properties() -> None:
    view = View10(content10({"x-a": 1, "other": 2, "x-both": 3}, {"b": 4, "x-both": 5, "x-c": 6}))
    assert view.headers() == {"x-a": 1, "x-both": 3, "b": 4, "x-c": 6}
    assert view.headers() is view.headers()
    assert [view.lookup(name) for name in ("x-a", "other", "x-both", "b", "x-c")] == [1, None, 3, 4, 6]


def test_long_keys_and_large_maps_are_found() -> None:
    long = "x-" + "k" * 300
    application: Values = {f"k{number}": number for number in range(300)}
    annotations: Values = {"x-first": 0, long: 5, "x-tail": "v" * 300}
    view = View10(content10(annotations, application))
    assert view.headers() == annotations | application
    assert (view.lookup(long), view.lookup("k299"), view.lookup("x-tail")) == (5, 299, "v" * 300)


@pytest.mark.parametrize(
    ("given", "group", "sequence"),
    [
        ({"group_id": "g", "group_sequence": Uint(7)}, "g", 7),
        ({"group_id": "g", "group_sequence": Uint(2**32 - 1)}, "g", -1),
        ({"group_id": "g", "application": {"x-group-id": "h", "x-group-seq": 3}}, "g", 3),
        ({"application": {"x-group-id": "h", "JMSXGroupID": "j"}}, "h", None),
        ({"application": {"JMSXGroupID": "j", "JMSXGroupSeq": Int(-1)}}, "j", -1),
        ({"annotations": {"x-group-id": "a"}, "application": {"x-group-id": "h"}}, "a", None),
    ],
)
def test_groups(given: Values, group: object, sequence: object) -> None:
    view = View10(content10(**given))  # type: ignore[arg-type]
    assert (view.group_id(), view.group_sequence()) == (group, sequence)


@pytest.mark.parametrize(
    ("value", "keys"),
    [(["a", "b"], ["a", "b"]), (Array(0xA1, ["a"]), ["a"]), (["a", 5, None], ["a"]), ("a", []), (5, [])],
)
def test_further_keys_stand_in_an_annotation(value: object, keys: list[str]) -> None:
    assert View10(content10({"x-cc": value})).further_keys() == keys
    assert View10(content10(application={"x-cc": "a", "CC": "b"})).further_keys() == []


@pytest.mark.parametrize(
    ("annotations", "application", "released"),
    [
        ({"x-delay": Uint(500), "x-o": "o"}, None, {"x-o": "o", "x-delay": -500}),
        (
            {"x-opt-delivery-delay": Ulong(500), "x-o": "o"},
            None,
            {"x-o": "o", "x-opt-delivery-delay": -500, "x-delay": -500},
        ),
        (None, {"x-delay": "500"}, {"x-delay": -500}),
        ({"x-o": "o"}, {"x-delay": 500.0}, {"x-o": "o", "x-delay": -500}),
        (
            {"x-opt-delivery-delay": 500},
            {"x-delay": 90},
            {"x-opt-delivery-delay": -500, "x-delay": -500},
        ),
    ],
)
def test_a_delayed_message_is_not_delayed_again_and_stays_unchanged(
    annotations: Values | None, application: Values | None, released: Values
) -> None:
    content = content10(annotations, application, durable=True, priority=3, ttl=9, message_id="m")
    view = View10(content)
    clock = HandClock()
    assert delay_of(view) == 500
    assert due_date(view, clock.schedule) > clock.date()

    after = view.released_content(DELAY)

    assert View10(after).headers() == released
    assert due_date(View10(after), clock.schedule) == 0
    bare = bare10(application, message_id="m")
    assert after.endswith(bare)
    assert content.endswith(bare)
    header = content[: content.index(b"\0\x53\x72")] if annotations else content[: -len(bare)]
    assert after.startswith(header)


def test_the_time_of_a_delivery_comes_before_a_delay() -> None:
    clock = HandClock()
    date = clock.date() + 5_000
    for value in (Timestamp(date), Ulong(date)):
        view = View10(content10({"x-opt-delivery-time": value, "x-opt-delivery-delay": 90}))
        assert due_date(view, clock.schedule) == date
        assert view.lookup("x-delivery-time") == date
