"""Values of AMQP 1.0 as bytes: the smallest encoding of each, and values without an encoding."""

from uuid import UUID

import pytest

from protocol.amqp10.decoding import decode_typed
from protocol.amqp10.encoding import encode, encode_described, encode_list
from protocol.amqp10.types import (
    Array,
    Byte,
    Char,
    Decimal,
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
    symbols,
)


@pytest.mark.parametrize(
    ("value", "digits"),
    [
        (0, "5500"),
        (-128, "5580"),
        (128, "810000000000000080"),
        (2**63 - 1, "817fffffffffffffff"),
        (2**63, "808000000000000000"),
        (1.0, "823ff0000000000000"),
        ("a", "a10161"),
        ((None, True), "c003024041"),
        ({}, "c10100"),
        ({Symbol("a"): "b"}, "c10702a30161a10162"),
        (symbols(["a", "bc"]), "e00702a3016102" + "6263"),
    ],
)
def test_pythons_own_types_have_an_encoding(value: object, digits: str) -> None:
    assert encode(value).hex() == digits


def test_an_encoded_list_is_never_the_empty_one_without_size() -> None:
    assert encode_list([]).hex() == "c00100"
    assert encode_list([b"\x40", b"\x43"]).hex() == "c003024043"
    assert encode_described(0x10, b"\x45").hex() == "00531045"


@pytest.mark.parametrize(
    "value",
    [
        Ubyte(256),
        Ubyte(-1),
        Ushort(65536),
        Uint(2**32),
        Uint(-1),
        Ulong(2**64),
        Ulong(-1),
        Byte(128),
        Short(-32769),
        Int(2**31),
        Long(2**63),
        Timestamp(2**63),
        2**64,
        -(2**63) - 1,
        Symbol("\u00e9"),
        "\ud800",
        Decimal(0x74, b"\0" * 5),
        Array(0xA0, [b"x" * 256]),
        Array(0x40, [None]),
        Array(0x84, [Decimal(0x84, b"")]),
    ],
)
def test_values_out_of_range_are_refused(value: object) -> None:
    with pytest.raises((ValueError, OverflowError)):
        encode(value)


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, bytearray(b"x")])
def test_values_without_an_encoding_raise_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match=f"{type(value).__name__} has no encoding"):
        encode(value)


def test_arrays_keep_the_width_that_they_came_with() -> None:
    wide = bytes.fromhex("e00b02b1000000016100000000")
    of_lists = bytes.fromhex("e00b01d0" + "00000005" + "00000001" + "40")
    of_maps = Array(0xC1, [{Symbol("a"): UUID(int=0)}, Map([(Char("b"), None)])])

    assert encode(decode_typed(wide)[0]) == wide
    assert encode(decode_typed(of_lists)[0]) == of_lists
    assert encode(decode_typed(encode(of_maps))[0]) == encode(of_maps)
