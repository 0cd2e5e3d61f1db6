"""New annotations of a message; existing annotations keep their bytes."""

import pytest

from protocol.amqp10.annotations import annotations_section, check_annotations
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.sections import Sections
from tests.support.amqp10.reference_codec import compound, decode, sized

NULL = b"\x40"


def codes(data: bytes) -> list[int]:
    sections = Sections(data, 0, len(data))
    found = []
    while sections.advance():
        found.append(sections.code)
    return found


def entries(section: bytes) -> tuple[int, list[bytes]]:
    """Constructor of the map, and its items, encoded."""
    width = 4 if section[3] == 0xD1 else 1
    p = 4 + 2 * width
    items = []
    while p < len(section):
        _, end = decode(section, p)
        items.append(section[p:end])
        p = end
    assert codes(section) == [0x72]
    assert int.from_bytes(section[4 + width : 4 + 2 * width], "big") == len(items)
    return section[3], items


OLD = [
    sized(0xA3, b"x-a"),
    sized(0xA1, b"1"),
    sized(0xB3, b"x-b"),
    compound(0xD1, [sized(0xA3, b"x-new"), NULL]),
]


@pytest.mark.parametrize("code", [0xC1, 0xD1])
def test_annotations_are_appended_to_existing_annotations(code: int) -> None:
    value = compound(code, OLD)
    check_annotations(value, 0, len(value))
    made = annotations_section(value, 0, len(value), [b"x-new", b"x-other"], [b"\x41", sized(0xA1, b"v")])

    new = [sized(0xA3, b"x-new"), b"\x41", sized(0xA3, b"x-other"), sized(0xA1, b"v")]
    assert entries(made) == (0xC1, OLD + new)
    assert annotations_section(value, 0, len(value), [b"y"], [NULL])[-4:] == b"\xa3\x01y\x40"


@pytest.mark.parametrize("key", [b"x-a", b"x-b"])
def test_an_annotation_of_the_same_name_is_replaced(key: bytes) -> None:
    value = compound(0xC1, OLD)
    made = annotations_section(b"~" + value, 1, 1 + len(value), [key], [b"\x42"])

    rest = OLD[2:] if key == b"x-a" else OLD[:2]
    assert entries(made) == (0xC1, [*rest, sized(0xA3, key), b"\x42"])


def test_annotations_are_added_to_a_message_without_annotations() -> None:
    assert entries(annotations_section(b"", 0, 0, [b"k"], [b"\x41"])) == (0xC1, [b"\xa3\x01k", b"\x41"])


@pytest.mark.parametrize("length", range(235, 256))
def test_a_map_grows_out_of_its_short_form(length: int) -> None:
    value = compound(0xC1, [b"\xa3\x01a", sized(0xB0, b"v" * (length - 15))])
    made = annotations_section(value, 0, len(value), [b"k"], [b"\x41"])

    code, items = entries(made)
    assert items == [b"\xa3\x01a", sized(0xB0, b"v" * (length - 15)), b"\xa3\x01k", b"\x41"]
    assert code == (0xC1 if len(b"".join(items)) < 255 else 0xD1)


@pytest.mark.spec("amqp-1.0", "3.2.10")
@pytest.mark.parametrize(
    ("value", "text_expected"),
    [
        (compound(0xC1, [b"\x53\x01", NULL]), "key of constructor 0x53"),
        (compound(0xC1, [b"\xa1\x01a", NULL]), "key of constructor 0xa1"),
        (compound(0xC1, [b"\xa3\x01\xff", NULL]), "not ASCII"),
        (compound(0xC1, [b"\xa3\x01a"]), "1 keys and values"),
        (b"\xc1\x04\x02\xa3\x01a", "truncated"),
        (b"\xc1\x05\x02\xa3\x01a\x57", "value: constructor 0x57"),
        (b"\xc1\x06\x02\xa3\x01a\x40\x40", "bytes follow the last entry"),
        (b"\x45", "constructor 0x45"),
        (b"\xd1\x00", "truncated"),
        (b"", "truncated"),
    ],
)
def test_broken_annotations_are_refused(value: bytes, text_expected: str) -> None:
    with pytest.raises(DecodeError, match=text_expected):
        check_annotations(value, 0, len(value))
