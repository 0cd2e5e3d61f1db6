"""Values of AMQP 1.0 out of bytes: every constructor, and every way to be none."""

import sys
import tracemalloc
from struct import pack
from types import FrameType
from uuid import UUID

import pytest

from protocol.amqp10.conditions import DECODE_ERROR, DecodeError
from protocol.amqp10.decoding import COUNT_MAX, DEPTH_MAX, decode, decode_typed, skip
from protocol.amqp10.encoding import encode
from protocol.amqp10.types import Array, Described, Map, Symbol, Timestamp, Uint, Ulong
from tests.support.amqp10.value_bytes import LONGER, MALFORMED, SMALLEST, nested
from tests.support.effort import CountedBytes, ending, lines_executed

FRAME_BYTES = 128 * 1024


def kinds(value: object) -> object:
    """Return the type of a value and of all its items."""
    match value:
        case list():
            return [kinds(item) for item in value]
        case Map(pairs):
            return [(kinds(key), kinds(item)) for key, item in pairs]
        case Array(code, items, descriptors, _):
            return (code, kinds(items), kinds(list(descriptors)))
        case Described(descriptor, item):
            return (kinds(descriptor), kinds(item))
    return type(value)


def plain(value: object) -> object:
    """Return the plain decoded form of a typed value."""
    if isinstance(value, Map) and len(dict(value.pairs)) == len(value.pairs):
        return dict(value.pairs)
    return value


@pytest.mark.spec("amqp-1.0", "1.2.*")
@pytest.mark.spec("amqp-1.0", "1.6.*")
@pytest.mark.parametrize(("digits", "value"), SMALLEST + LONGER)
def test_every_constructor_gives_its_value_and_its_type(digits: str, value: object) -> None:
    data = bytes.fromhex(digits)
    found, behind = decode_typed(data)

    assert (found, kinds(found), behind) == (value, kinds(value), len(data))


@pytest.mark.parametrize(("digits", "value"), SMALLEST + LONGER)
def test_the_plain_value_has_pythons_types(digits: str, value: object) -> None:
    found, behind = decode(bytes.fromhex(digits))

    assert behind == len(digits) // 2
    if not isinstance(value, Array):
        assert found == plain(value)
    if isinstance(value, int) and not isinstance(value, bool | Timestamp):
        assert type(found) is int
    if isinstance(value, float):
        assert type(found) is float


@pytest.mark.parametrize(("digits", "value"), SMALLEST)
def test_typed_values_are_encoded_as_they_were(digits: str, value: object) -> None:
    found, _ = decode_typed(bytes.fromhex(digits))

    assert encode(found).hex() == encode(value).hex() == digits


@pytest.mark.parametrize(("digits", "value"), SMALLEST + LONGER)
def test_a_value_between_others_is_found_and_passed(digits: str, value: object) -> None:
    data = b"\xff\xff" + bytes.fromhex(digits) + b"\xff"
    end = len(data) - 1

    assert decode_typed(data, 2) == (value, end)
    assert decode_typed(data, 2, end) == (value, end)
    assert skip(data, 2) == skip(data, 2, end) == end


@pytest.mark.parametrize(("digits", "value"), SMALLEST + LONGER)
def test_a_value_cut_anywhere_is_an_error(digits: str, value: object) -> None:
    data = bytes.fromhex(digits)
    for length in range(len(data)):
        for read in (decode, decode_typed, skip):
            with pytest.raises(DecodeError):
                read(data[:length])
            with pytest.raises(DecodeError):
                read(data, 0, length)


@pytest.mark.parametrize(("digits", "reason"), MALFORMED)
def test_invalid_bytes_have_an_error_with_the_reason(digits: str, reason: str) -> None:
    for read in (decode, decode_typed):
        with pytest.raises(DecodeError) as caught:
            read(bytes.fromhex(digits))

        assert reason in caught.value.text
        assert caught.value.condition == DECODE_ERROR


def test_all_other_constructors_are_errors() -> None:
    known = {bytes.fromhex(digits)[0] for digits, _ in SMALLEST + LONGER}
    assert len(known) == 40

    for code in set(range(256)) - known:
        for read in (decode, skip):
            with pytest.raises(DecodeError, match=f"unknown constructor 0x{code:02x}"):
                read(bytes([code]) + bytes(64))


@pytest.mark.parametrize("wide", ["d0", "d1"])
def test_values_are_nested_32_deep_and_no_deeper(wide: str) -> None:
    decode(nested(wide, DEPTH_MAX))
    for levels in (DEPTH_MAX + 1, 3000):
        with pytest.raises(DecodeError, match="nested more than 32 deep"):
            decode(nested(wide, levels))
        assert skip(nested(wide, levels)) == len(nested(wide, levels))


def test_described_values_and_descriptors_are_nested_32_deep_and_no_deeper() -> None:
    for levels, good in ((DEPTH_MAX, True), (DEPTH_MAX + 1, False), (FRAME_BYTES // 2, False)):
        for data in (b"\x00\x40" * levels + b"\x40", b"\x00" * levels + b"\x40" * (levels + 1)):
            for read in (decode, decode_typed, skip):
                if good:
                    read(data)
                    continue
                with pytest.raises(DecodeError, match="nested more than 32 deep"):
                    read(data)


def test_arrays_of_arrays_are_nested_32_deep_and_no_deeper() -> None:
    def arrays(levels: int) -> bytes:
        data = pack(">II", 5, 0) + b"\x40"
        for _ in range(levels - 1):
            data = pack(">II", 5 + len(data), 1) + b"\xf0" + data
        return b"\xf0" + data

    decode(arrays(DEPTH_MAX))
    for levels in (DEPTH_MAX + 1, 3000):
        with pytest.raises(DecodeError, match="nested more than 32 deep"):
            decode(arrays(levels))


def test_a_compound_has_65536_values_and_no_more() -> None:
    def values(code: int, head: bytes, item: bytes, count: int) -> bytes:
        body = head + item * count
        return bytes([code]) + pack(">II", 4 + len(body), count) + body

    assert decode(values(0xD0, b"", b"\x40", COUNT_MAX))[0] == [None] * COUNT_MAX
    assert decode(values(0xF0, b"\x50", b"\x07", COUNT_MAX))[0] == Array(0x50, [7] * COUNT_MAX)
    for data in (
        values(0xD0, b"", b"\x40", COUNT_MAX + 1),
        values(0xD1, b"", b"\x40", COUNT_MAX + 2),
        values(0xF0, b"\x50", b"\x07", COUNT_MAX + 1),
    ):
        with pytest.raises(DecodeError, match="65536 are allowed"):
            decode(data)


def test_values_without_width_are_counted_and_not_made() -> None:
    bomb = b"\xf0" + pack(">II", 5, COUNT_MAX) + b"\x40"
    many = b"\xd0" + pack(">II", 4 + 10_000 * len(bomb), 10_000) + bomb * 10_000
    found, _ = decode(many)

    assert found == [Array(0x40, [], (), COUNT_MAX)] * 10_000


@pytest.mark.parametrize(
    "item",
    ["45", "43", "a300", "e0020040", "004040", "c10100", "c0020145", "0000404040", "00" * 8 + "40" * 9],
)
def test_time_and_memory_are_in_proportion_to_the_bytes(item: str) -> None:
    one = bytes.fromhex(item)

    def values(count: int) -> bytes:
        return b"\xd0" + pack(">II", 4 + count * len(one), count) + one * count

    most = min(COUNT_MAX, FRAME_BYTES // len(one))
    few, many = CountedBytes.of(values(most // 800)), CountedBytes.of(values(most // 8))
    lines = lines_executed(lambda: decode_typed(few))
    assert lines_executed(lambda: decode_typed(many)) <= 110 * lines
    assert many.copied[0] <= 4 * len(many)
    with ending():
        decode_typed(values(most))
    data = values(most // 8)  # memory is traced at the cost of much time
    tracemalloc.start()
    try:
        kept = decode_typed(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert kept[1] == len(data)
    assert peak < 120 * len(data)


def test_keys_that_a_dict_would_not_hold_give_the_pairs() -> None:
    many: list[list[object]] = [
        [1, 1],
        [1, True],
        ["a", Symbol("a")],
        [[], {}],
        [UUID(int=1)],
        [Described(Ulong(1), 2)],
    ]
    for keys in many:
        pairs: list[tuple[object, object]] = [(key, None) for key in keys]

        assert decode(encode(Map(pairs)))[0] == Map([(decode(encode(key))[0], None) for key, _ in pairs])
    assert decode(encode(Map([(None, 1), ("a", 2), (b"a", 3), (Timestamp(1), 4), (2.5, 5)])))[0] == {
        None: 1,
        "a": 2,
        b"a": 3,
        1: 4,
        2.5: 5,
    }


def test_keys_with_one_hash_are_not_compared_with_each_other() -> None:
    modulus = 2**61 - 1
    alike = [UUID(int=number * modulus) for number in range(2000)]
    assert len({hash(key) for key in alike}) == 1
    data = encode(Map([(key, None) for key in alike]))
    comparisons = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal comparisons
        comparisons += event == "call" and frame.f_code is UUID.__eq__.__code__

    sys.setprofile(count)
    try:
        found, _ = decode(data)
    finally:
        sys.setprofile(None)

    assert isinstance(found, Map)
    assert comparisons < 50 * len(alike)  # a dictionary would make half of 2000 for each


def test_a_list_in_a_plain_map_is_plain_too() -> None:
    found, _ = decode(
        encode({Symbol("a"): [Uint(1), {Symbol("b"): Ulong(2)}], Symbol("c"): Described(Ulong(3), Uint(4))})
    )

    assert found == {"a": [1, {"b": 2}], "c": Described(3, 4)}
    assert isinstance(found, dict)
    assert [type(item) for item in found["a"]] == [int, dict]
    assert type(found["c"].descriptor) is type(found["c"].value) is int
    assert all(type(key) is Symbol for key in found)
