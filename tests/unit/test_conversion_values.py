"""What fields of AMQP 0-9-1 are among the annotations and properties of AMQP 1.0."""

import struct
from typing import Any

import pytest

from protocol.amqp10.types import (
    Byte,
    Decimal,
    Float,
    Int,
    Long,
    Map,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ushort,
)
from tests.conversion import (
    ANNOTATIONS,
    APPLICATION,
    DATA,
    HEADER,
    OURS,
    converted10,
)
from tests.field_bytes import FIELDS, field, long_string

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
    found = converted10({}, table)
    assert found[ANNOTATIONS] == OURS | {
        "x-a": [1, "x", []],
        "x-f": Map([("inner", Map([("x", None)]))]),
        "x-s": "h\u00e9llo",
    }
    assert all(isinstance(key, Symbol) for key in found[ANNOTATIONS])
    assert APPLICATION not in found


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
