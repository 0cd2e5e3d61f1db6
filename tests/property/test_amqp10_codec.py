"""The codec of AMQP 1.0 against everything: any bytes, any values, any cut."""

import math
import struct
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.amqp10.composing import compose, decode_composite, encode_composite
from protocol.amqp10.composites import Accepted, Error, Source, Target
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.decoding import decode, decode_typed, skip
from protocol.amqp10.definitions import COMPOSITES
from protocol.amqp10.encoding import encode
from protocol.amqp10.performatives import Attach, Close, Open
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
from tests.support.amqp10.invariants import value as value_holds
from tests.support.amqp10.value_bytes import LONGER, MALFORMED, SMALLEST
from tests.support.effort import cases


def whole(bits: int, signed: bool) -> st.SearchStrategy[int]:
    edge = 1 << bits - 1
    return st.integers(-edge, edge - 1) if signed else st.integers(0, 2 * edge - 1)


TEXT = st.text(max_size=300)
SYMBOLS = st.text(st.characters(max_codepoint=127), max_size=300).map(Symbol)
DECIMALS = st.sampled_from([(0x74, 4), (0x84, 8), (0x94, 16)]).flatmap(
    lambda kind: st.binary(min_size=kind[1], max_size=kind[1]).map(lambda raw: Decimal(kind[0], raw))
)
# By the constructor that holds them all, so that an array can be made of them.
ITEMS: dict[int, st.SearchStrategy[object]] = {
    0x50: whole(8, False).map(Ubyte),
    0x51: whole(8, True).map(Byte),
    0x56: st.booleans(),
    0x60: whole(16, False).map(Ushort),
    0x61: whole(16, True).map(Short),
    0x70: whole(32, False).map(Uint),
    0x71: whole(32, True).map(Int),
    0x72: st.floats(width=32, allow_nan=False).map(Float),
    0x73: st.characters(exclude_categories=["Cs"]).map(Char),
    0x80: whole(64, False).map(Ulong),
    0x81: whole(64, True).map(Long),
    0x82: st.floats(allow_nan=False),
    0x83: whole(64, True).map(Timestamp),
    0x98: st.uuids(),
    0xB0: st.binary(max_size=300),
    0xB1: TEXT,
    0xB3: SYMBOLS,
}
SCALARS = st.one_of(st.none(), DECIMALS, *ITEMS.values())


def arrays(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    items = {**ITEMS, 0xD0: st.lists(values, max_size=3)}
    return st.sampled_from(sorted(items)).flatmap(
        lambda code: st.builds(
            Array, st.just(code), st.lists(items[code], max_size=4), st.lists(values, max_size=2).map(tuple)
        )
    )


VALUES = st.recursive(
    SCALARS,
    lambda values: st.one_of(
        st.lists(values, max_size=5),
        st.lists(st.tuples(values, values), max_size=4).map(Map),
        st.builds(Described, values, values),
        arrays(values),
    ),
    max_leaves=15,
)

# Bytes that are likely to be valid: constructors, sizes and counts that nearly fit.
PIECES = st.one_of(
    st.sampled_from([bytes.fromhex(digits) for digits, _ in SMALLEST + LONGER if len(digits) < 60]),
    st.sampled_from([bytes.fromhex(digits) for digits, _ in MALFORMED if digits]),
    st.sampled_from([bytes([code]) for code in range(256)]),
    st.binary(max_size=4),
    st.builds(
        lambda code, size, count: bytes([code]) + struct.pack(">II", size, count),
        st.sampled_from([0xD0, 0xD1, 0xF0]),
        st.integers(0, 40) | st.integers(0, 2**32 - 1),
        st.integers(0, 10) | st.integers(0, 2**32 - 1),
    ),
)
NEARLY = st.binary(max_size=60) | st.lists(PIECES, max_size=12).map(b"".join)


@settings(max_examples=cases(300))
@given(VALUES)
def test_encoded_values_are_decoded_unchanged(value: object) -> None:
    data = encode(value)
    decoded, behind = decode_typed(data)

    assert behind == skip(data) == len(data)
    assert decoded == value
    assert encode(decoded) == data
    assert decode(data)[1] == len(data)


@settings(max_examples=cases(100))
@given(VALUES, st.data())
def test_a_value_cut_anywhere_is_an_error(value: object, draw: st.DataObject) -> None:
    data = encode(value)
    length = draw.draw(st.integers(0, len(data) - 1))

    for read in (decode, decode_typed, skip):
        with pytest.raises(DecodeError):
            read(data[:length])


@settings(max_examples=cases(200))
@given(VALUES, st.data())
def test_a_value_with_another_octet_is_a_value_or_an_error(value: object, draw: st.DataObject) -> None:
    data = bytearray(encode(value))
    data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))

    value_holds(bytes(data))


@settings(max_examples=cases(1000))
@given(NEARLY)
def test_any_bytes_are_a_value_or_an_error(data: bytes) -> None:
    value_holds(data)


@settings(max_examples=cases(300))
@given(st.sampled_from([named.code for named in COMPOSITES]), st.lists(PIECES, max_size=12))
def test_any_list_is_a_composite_or_an_error(code: int, pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    value_holds(b"\x00\x53" + bytes([code, 0xD0]) + struct.pack(">II", 4 + len(body), len(pieces)) + body)


@settings(max_examples=cases(300))
@given(st.sampled_from([named.code for named in COMPOSITES]), st.lists(VALUES, max_size=6))
def test_any_values_are_fields_or_an_error(code: int, fields: list[object]) -> None:
    try:
        composite = compose(Described(Ulong(code), fields))
    except DecodeError:
        return
    assert compose(decode(encode_composite(composite))[0]) is not None


FRAMES = [
    encode_composite(composite)
    for composite in (
        Open(container_id="client", hostname="vhost:a", properties={"product": "x", "list": [1, None, 2.5]}),
        Attach(
            name="link",
            handle=0,
            role=False,
            source=Source(
                address="/queues/a", filter={"f": Described(Symbol("f"), "a = 1")}, outcomes=("a", "b")
            ),
            target=Target(capabilities=("queue",)),
            unsettled={b"tag": Accepted()},
        ),
        Close(error=Error(condition="amqp:not-found", description="x" * 300, info={"a": UUID(int=1)})),
    )
]


@pytest.mark.parametrize("frame", FRAMES, ids=["open", "attach", "close"])
def test_a_performative_cut_anywhere_or_with_any_octet_changed_is_never_a_surprise(frame: bytes) -> None:
    for length in range(len(frame)):
        with pytest.raises(DecodeError):
            decode_composite(frame[:length])
    for p in range(len(frame)):
        for octet in (0x00, 0x40, 0x45, 0x7F, 0x80, 0xC0, 0xE0, 0xFF, frame[p] ^ 1):
            value_holds(frame[:p] + bytes([octet]) + frame[p + 1 :])


def test_nan_values_keep_their_bits() -> None:
    for digits in ("827ff8000000000000", "727fc00000"):
        decoded, _ = decode_typed(bytes.fromhex(digits))

        assert isinstance(decoded, float)
        assert math.isnan(decoded)
        assert encode(decoded).hex() == digits
