"""Values of AMQP 0-9-1 fields in AMQP 1.0 messages, and values of AMQP 1.0 in AMQP 0-9-1 headers."""

import struct
from typing import Any
from uuid import UUID

import pytest

from protocol.amqp091 import properties as basic
from protocol.amqp10.encoding import encode
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
from tests.support.amqp091.field_bytes import FIELDS, field, long_string
from tests.support.amqp10.reference_codec import described
from tests.support.conversion.contents import (
    ANNOTATIONS,
    APPLICATION,
    DATA,
    HEADER,
    HELLO,
    OURS,
    annotations,
    application,
    converted091,
    converted10,
    long_string_value,
    other_properties,
    properties_section,
)

TYPED: dict[str, object] = {
    "t": True,
    "f": False,
    "b": Byte(-128),
    "B": Ubyte(255),
    "s": Short(-32768),
    "u": Ushort(65535),
    "I": Int(-(2**31)),
    "i": Uint(2**32 - 1),
    "l": Long(-(2**63)),
    "L": Long(2**63 - 1),
    "f32": Float(struct.unpack(">f", struct.pack(">f", 0.1))[0]),
    "f64": 0.1,
    "D": Decimal(0x94, bytes.fromhex("303c0000000000000000000000000000")[:12] + struct.pack(">i", -12345)),
    "S": "h\u00e9llo",
    "S-empty": "",
    "S-long": "x" * 50_000,
    "S-binary": bytes(range(256)),
    "T": Timestamp(1_700_000_000_000),
    "V": None,
    "x": b"\x00\xff",
}


@pytest.mark.parametrize("kind", TYPED)
def test_simple_headers_keep_their_types(kind: str) -> None:
    found = converted10({}, field(kind.encode(), FIELDS[kind]))[APPLICATION]
    assert found == {kind: TYPED[kind]}
    assert type(found[kind]) is type(TYPED[kind])


def test_every_type_of_field_is_tried() -> None:
    assert set(TYPED) | {"A", "F"} == set(FIELDS)


def test_text_with_a_null_character_is_binary() -> None:
    assert converted10({}, field(b"h", b"S" + long_string(b"a\0b")))[APPLICATION] == {"h": b"a\0b"}


def test_arrays_and_tables_are_no_application_properties() -> None:
    table = field(b"a", FIELDS["A"]) + field(b"f", FIELDS["F"]) + field(b"n", b"I\0\0\0\1")
    assert converted10({}, table)[APPLICATION] == {"n": 1}


def test_headers_that_begin_with_x_are_annotations_whatever_they_hold() -> None:
    table = field(b"x-a", FIELDS["A"]) + field(b"x-f", FIELDS["F"]) + field(b"x-s", FIELDS["S"])
    sections = converted10({}, table)
    assert sections[ANNOTATIONS] == OURS | {
        "x-a": [1, "x", []],
        "x-f": Map([("inner", Map([("x", None)]))]),
        "x-s": "h\u00e9llo",
    }
    assert all(isinstance(key, Symbol) for key in sections[ANNOTATIONS])
    assert APPLICATION not in sections


def test_the_last_of_several_headers_with_one_name_stays() -> None:
    twice = field(b"n", b"B\1") + field(b"n", b"B\2")
    assert converted10({}, twice + field(b"x-f", b"F" + long_string(twice))) == {
        HEADER: [False, None, None, True, 0],
        ANNOTATIONS: OURS | {"x-f": Map([("n", 2)])},
        APPLICATION: {"n": 2},
        DATA: b"hello",
    }


def test_values_deeper_than_receivers_decode_are_left_out() -> None:
    value = b"V"
    for _ in range(100):
        value = b"A" + long_string(value)
    deep: Any = converted10({}, field(b"x-deep", value))[ANNOTATIONS]["x-deep"]
    depth = 0
    while deep:
        deep = deep[0]
        depth += 1
    assert depth == 29  # in the section, its map, and a list around all of them


VALUES: list[tuple[object, bytes | None]] = [
    (None, b"V"),
    (True, b"t\x01"),
    (False, b"t\x00"),
    (Ubyte(255), b"B\xff"),
    (Ushort(65535), b"u\xff\xff"),
    (Uint(0), b"i\0\0\0\0"),
    (Uint(255), b"i\0\0\0\xff"),
    (Uint(2**32 - 1), b"i\xff\xff\xff\xff"),
    (Ulong(0), b"l" + bytes(8)),
    (Ulong(255), b"l" + bytes(7) + b"\xff"),
    (Ulong(2**63 - 1), b"l\x7f" + b"\xff" * 7),
    (Ulong(2**63), long_string_value("9223372036854775808")),
    (Ulong(2**64 - 1), long_string_value("18446744073709551615")),
    (Byte(-128), b"b\x80"),
    (Short(-32768), b"s\x80\x00"),
    (Int(-1), b"I" + b"\xff" * 4),
    (Int(127), b"I\0\0\0\x7f"),
    (Int(-(2**31)), b"I\x80\0\0\0"),
    (Long(-1), b"l" + b"\xff" * 8),
    (Long(127), b"l" + bytes(7) + b"\x7f"),
    (Long(-(2**63)), b"l\x80" + bytes(7)),
    (Float(0.5), b"f" + struct.pack(">f", 0.5)),
    (Float("nan"), None),
    (Float("-inf"), None),
    (0.1, b"d" + struct.pack(">d", 0.1)),
    (float("nan"), None),
    (float("inf"), None),
    (Decimal(0x74, bytes(4)), None),
    (Decimal(0x84, bytes(8)), None),
    (Decimal(0x94, bytes(16)), None),
    (Char("\U0001f600"), long_string_value("\U0001f600")),
    (Timestamp(1_700_000_000_999), b"T" + struct.pack(">Q", 1_700_000_000)),
    (Timestamp(-1), None),
    (Timestamp(2**63 - 1), None),
    (UUID(int=7), long_string_value("urn:uuid:00000000-0000-0000-0000-000000000007")),
    (b"\x00\xff", b"x" + long_string(b"\x00\xff")),
    (b"b" * 256, b"x" + long_string(b"b" * 256)),
    ("h\u00e9llo", long_string_value("h\u00e9llo")),
    ("", long_string_value("")),
    ("x" * 256, long_string_value("x" * 256)),
    (Symbol("s"), long_string_value("s")),
    (Symbol("s" * 256), long_string_value("s" * 256)),
    (Described(Symbol("d"), "v"), None),
    ([], b"A" + long_string(b"")),
    (
        [None, "a", Described(1, 2), [True]],
        b"A" + long_string(b"V" + long_string_value("a") + b"A\0\0\0\2t\1"),
    ),
    ([None] * 300, b"A" + long_string(b"V" * 300)),
    ({}, b"F" + long_string(b"")),
    (
        {"a": Ubyte(1), Symbol("b"): "x", 5: "dropped", b"c": "dropped", "x" * 256: "dropped"},
        b"F" + long_string(field(b"a", b"B\1") + field(b"b", long_string_value("x"))),
    ),
    ({"k": "v" * 300}, b"F" + long_string(field(b"k", long_string_value("v" * 300)))),
    (Array(0x70, [1, 2]), b"A" + long_string(b"i\0\0\0\1i\0\0\0\2")),
    (Array(0x54, [-1]), b"A" + long_string(b"I\xff\xff\xff\xff")),
    (Array(0x56, [True, False]), b"A" + long_string(b"t\1t\0")),
    (Array(0xA1, ["a", ""]), b"A" + long_string(long_string_value("a") + long_string_value(""))),
    (Array(0xB3, [Symbol("s")] * 2), b"A" + long_string(long_string_value("s") * 2)),
    (Array(0xA0, [b"b"]), b"A" + long_string(b"x\0\0\0\1b")),
    (Array(0x98, [UUID(int=0)]), b"A" + long_string(long_string_value("urn:uuid:" + str(UUID(int=0))))),
    (Array(0x94, [Decimal(0x94, bytes(16))]), b"A" + long_string(b"")),
    (Array(0xD0, [["a"]]), b"A" + long_string(b"A" + long_string(long_string_value("a")))),
    (Array(0xD1, [{"a": None}]), b"A" + long_string(b"F" + long_string(field(b"a", b"V")))),
    (Array(0xE0, [Array(0x50, [1])]), b"A" + long_string(b"A\0\0\0\2B\1")),
    (Array(0x40, [], (), 1_000_000), None),
    (Array(0x50, [1], (Symbol("d"),)), None),
]


@pytest.mark.parametrize(("value", "expected"), VALUES)
def test_application_properties_are_headers_of_their_types(value: object, expected: bytes | None) -> None:
    _, headers, body = converted091(application({"h": value, "next": None}), HELLO)
    assert headers == ({} if expected is None else {b"h": expected}) | {b"next": b"V"}
    assert body == b"hello"


@pytest.mark.parametrize(("value", "expected"), VALUES)
def test_annotations_that_begin_with_x_are_headers_of_the_same_types(
    value: object, expected: bytes | None
) -> None:
    _, headers, _ = converted091(annotations({"x-h": value, "other": "not seen", "x-n": None}), HELLO)
    assert headers == ({} if expected is None else {b"x-h": expected}) | {b"x-n": b"V"}


BAD_VALUES = [
    b"\xa1\x01\xff",
    b"\xa3\x01\x80",
    b"\x56\x02",
    b"\x73\x00\x00\xd8\x00",
    b"\x73\x00\x11\x00\x00",
    b"\xc0\x03\x02\xa1\x09",
    b"\xc1\x02\x01\x40",
    b"\xd0\x00\x00\x00\x01\x00",
    b"\xe0\x02\x01\x57",
    b"\xe0\x03\x01\xa2\x00",
    b"\xe0\x04\x02\x70\x00\x00",
    b"\xe0\x01\x01",
    b"\xf0\x00\x00\x00\x06\x00\x00\x00\x01\xb0\x00",
    b"\xc0\x04\x01\xa1\x01\xff",
]


@pytest.mark.parametrize("value", BAD_VALUES)
def test_a_value_that_does_not_decode_is_left_out_and_the_others_are_not(value: bytes) -> None:
    items = encode("before") + b"\x40" + encode("bad") + value + encode("behind") + b"\x40"
    section = described(0x74, b"\xc1" + bytes([len(items) + 1, 6]) + items)
    properties, headers, body = converted091(properties_section(message_id="id"), section, HELLO)
    assert headers == {b"before": b"V", b"behind": b"V"}
    assert other_properties(properties) == {basic.MESSAGE_ID: b"id"}
    assert body == b"hello"


def test_values_deeper_than_the_broker_decodes_are_left_out() -> None:
    value: object = []
    for _ in range(100):
        value = [value]
    encoded = annotations({"x-deep": value, "x-n": None})
    _, headers, _ = converted091(encoded, HELLO)
    assert headers[b"x-n"] == b"V"
    assert headers[b"x-deep"].count(b"A\0\0\0") == 32


def test_a_name_that_comes_twice_is_one_header() -> None:
    twice = described(0x74, encode(Map([("n", Ubyte(1)), ("n", Ubyte(2))])))
    assert converted091(twice, HELLO)[1] == {b"n": b"B\2"}
