"""The sections before a body: validity, and the entries of their maps."""

import pytest

from protocol.amqp10.annotations import replace_annotations
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import NONE, STRING8, SYMBOL8
from protocol.amqp10.entries import NAMED, Entries
from protocol.amqp10.headers import read_priority
from protocol.amqp10.sections import is_sections, scan, scan_preamble
from tests.support.amqp10.reference_codec import compound, described, sized, uint

NULL = b"\x40"
H = described(0x70, b"\x45")
DA = described(0x71, b"\xc1\x01\x00")
MA = described(0x72, compound(0xC1, [sized(0xA3, b"x-a"), NULL]))
P = described(0x73, compound(0xC0, [sized(0xA1, b"id")]))
AP = described(0x74, compound(0xD1, [sized(0xA1, b"a"), NULL]))
D = described(0x75, b"\xa0\x01x")
F = described(0x78, b"\xc1\x01\x00")
PLACES = ("header", "annotations", "bare", "properties", "application_properties")


@pytest.mark.parametrize(
    "data", [H + MA + P + AP + D + D + F, H + DA + MA + D, H + F, H + P, MA + AP, H, D, F, b""]
)
def test_the_front_is_where_a_whole_scan_finds_it(data: bytes) -> None:
    front, whole = scan_preamble(data), scan(data, 0, len(data))
    assert [getattr(front, place) for place in PLACES] == [getattr(whole, place) for place in PLACES]
    assert (front.body, front.body_count, front.footer) == (NONE, 0, NONE)


@pytest.mark.parametrize(
    ("sound", "rest"),
    [
        (H + MA, b"\0"),
        (H, b"\0\x53\x72\x45"),
        (H, MA[:-1]),
        (H + MA, MA),
        (b"", b"\0garbage"),
        (H + MA, b"\0\x53\x75\xb0\x7f\xff\xff\xff"),
    ],
)
def test_bytes_that_are_no_section_begin_the_body(sound: bytes, rest: bytes) -> None:
    front = scan_preamble(sound + rest)
    assert front.bare == len(sound)
    assert (front.header != NONE, front.annotations != NONE) == (H in sound, MA in sound)
    assert scan_preamble(sound + P + rest).bare == len(sound)
    assert scan_preamble(sound + P + rest).properties == len(sound) + 3


def test_the_first_octet_tells_the_protocol() -> None:
    assert is_sections(H)
    assert not is_sections(b"\x02" + H)
    assert not is_sections(b"")


def found(data: bytes, kind: int) -> list[tuple[bytes, bytes]]:
    padded = b"\x40" + data + b"\x40"
    entries = Entries(padded, 1, len(data) + 1, kind)
    taken = []
    while entries.advance():
        key = entries.name()
        assert key == padded[entries.key : entries.key_end]
        assert entries.has_key(key)
        assert not entries.has_key(key + b"\x40")
        assert not entries.has_key(key[:-1])
        taken.append((key, padded[entries.key_end : entries.end]))
    assert not entries.advance()
    return taken


@pytest.mark.parametrize("code", [0xC1, 0xD1])
def test_entries_of_one_kind_are_found(code: int) -> None:
    data = compound(
        code,
        [
            *(sized(0xA3, b"a"), NULL),
            *(sized(0xA1, b"b"), uint(300)),
            *(uint(1, 1), NULL),
            *(sized(0xB3, b"c"), compound(0xC0, [NULL])),
            *(sized(0xB1, b"d"), described(1, NULL)),
        ],
    )
    assert found(data, SYMBOL8) == [(b"a", NULL), (b"c", compound(0xC0, [NULL]))]
    assert found(data, STRING8) == [(b"b", uint(300)), (b"d", described(1, NULL))]
    assert [name for name, _ in found(data, NAMED)] == [b"a", b"b", b"c", b"d"]
    entries = Entries(data, 0, len(data), SYMBOL8)
    while entries.advance():
        assert not entries.malformed
    assert not entries.malformed


@pytest.mark.parametrize("tail", [b"", b"\xa3", b"\xa3\x05b", b"\xa3\x01b", b"\xa3\x01b\x57", b"\x57\x40"])
def test_entries_in_front_of_a_fault_are_found(tail: bytes) -> None:
    data = b"\xc1" + bytes([len(tail) + 5, 4]) + sized(0xA3, b"a") + NULL + tail
    assert found(data, SYMBOL8) == [(b"a", NULL)]
    entries = Entries(data, 0, len(data), SYMBOL8)
    assert entries.advance()
    assert not entries.advance()
    assert entries.malformed


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\xd1\0\0\0\4", b"\xd1\0\0\0\4" + b"\xff" * 4, b"\x45", b"\xc1\1\0"]
)
def test_values_that_are_no_map_have_no_entries(data: bytes) -> None:
    assert found(data, SYMBOL8) == []
    assert Entries(data, 0, len(data), SYMBOL8).malformed or data == b"\xc1\1\0"
    absent = Entries(data, NONE, NONE, SYMBOL8)
    assert not absent.advance()
    assert not absent.malformed


def test_annotations_are_taken_out_and_put_in() -> None:
    items = [sized(0xA3, b"x-a"), NULL, sized(0xB3, b"x-b"), uint(300), sized(0xA3, b"x-c"), NULL]
    value = compound(0xC1, items)
    made = replace_annotations(value, 0, len(value), [b"x-a", b"x-none"], [b"x-c"], [b"\x41"])
    assert made == described(0x72, compound(0xC1, [*items[2:4], sized(0xA3, b"x-c"), b"\x41"]))
    assert replace_annotations(value, 0, len(value), [], [], []) == described(0x72, value)


@pytest.mark.parametrize("value", [b"", b"\xc1\x04\x02\xa3\x01a", b"\xc1\x06\x02\xa1\x01a\x40\x40", b"\x45"])
def test_annotations_that_do_not_decode_are_taken_out(value: bytes) -> None:
    made = replace_annotations(value, 0, len(value), [], [b"k"], [b"\x41"])
    assert made == replace_annotations(value, NONE, NONE, [], [b"k"], [b"\x41"])
    assert made == described(0x72, compound(0xC1, [sized(0xA3, b"k"), b"\x41"]))


@pytest.mark.parametrize(
    ("value", "priority"),
    [
        (b"\x45", NONE),
        (compound(0xC0, [NULL]), NONE),
        (compound(0xC0, [b"\x41", NULL]), NONE),
        (compound(0xD0, [b"\x42", b"\x50\x00", uint(300)]), 0),
        (compound(0xC0, [NULL, b"\x50\xff"]), 255),
    ],
)
def test_an_absent_priority_differs_from_a_present_one(value: bytes, priority: int) -> None:
    assert read_priority(b"~" + value, 1, 1 + len(value)) == priority


def test_a_priority_of_another_type_is_refused() -> None:
    value = compound(0xC0, [NULL, uint(300)])
    with pytest.raises(DecodeError, match=r"header\.priority"):
        read_priority(value, 0, len(value))
