"""Bodies of AMQP 1.0 that come in parts: the content of data sections, wherever they are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.sections import SECTIONS_MAX
from protocol.conversion.parts import START_BYTES_MAX, BodyParts
from tests.support.amqp10.reference_codec import described
from tests.support.conversion.contents import DATA, FOOTER, SEQUENCE, VALUE

FOOT = described(FOOTER, b"\xc1\x01\x00")
NAMED = b"\x00\xb3\x00\x00\x00\x10amqp:data:binary"
EMPTY = described(DATA, b"\xa0\x00")
BODIES = [
    (described(DATA, b"\xa0\x05hello"), b"hello"),
    (described(DATA, b"\xb0\x00\x00\x01\x2c" + b"x" * 300) + FOOT, b"x" * 300),
    (EMPTY + described(DATA, b"\xb0\x00\x00\x00\x02hi") + EMPTY, b"hi"),
    (NAMED + b"\xb0\x00\x00\x00\x03abc" + described(DATA, b"\xa0\x01d") + FOOT, b"abcd"),
    (b"\x00\x80\0\0\0\0\0\0\0\x75\xa0\x02hi", b"hi"),
    (FOOT, b""),
    (b"", b""),
]


def joined(parts: BodyParts, pieces: list[bytes]) -> bytes:
    contents = [content for piece in pieces for content in parts.feed(piece)]
    parts.end()
    return b"".join(contents)


@pytest.mark.parametrize(("body", "contents"), BODIES)
@pytest.mark.parametrize("step", [1, 2, 3, 7, 26, 1000])
def test_the_content_of_data_sections_is_found_however_they_are_cut(
    body: bytes, contents: bytes, step: int
) -> None:
    parts = BodyParts()
    assert joined(parts, [body[p : p + step] for p in range(0, len(body), step)]) == contents
    assert parts.size == len(contents)


@given(st.lists(st.binary(max_size=300), max_size=8), st.data())
def test_any_data_sections_are_joined(contents: list[bytes], data: st.DataObject) -> None:
    body = b"".join(described(DATA, b"\xb0" + len(each).to_bytes(4, "big") + each) for each in contents)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(body)))))
    pieces = [body[p:q] for p, q in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert joined(BodyParts(), pieces) == b"".join(contents)


def test_the_content_of_a_section_can_be_skipped() -> None:
    parts = BodyParts()
    assert parts.feed(described(DATA, b"\xb0\x00\x00\x00\x0912")) == [b"12"]
    parts.skip(5)
    assert (parts.left, parts.size, parts.code) == (2, 7, DATA)
    assert parts.feed(b"89" + described(DATA, b"\xa0\x01!")) == [b"89", b"!"]
    parts.end()
    assert parts.size == 10


@pytest.mark.parametrize("code", [SEQUENCE, VALUE])
@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_body_without_data_sections_is_known_by_its_first_one(code: int, cut: int) -> None:
    parts = BodyParts()
    body = described(code, b"\xd0\x00\x00")
    assert parts.feed(body[:cut]) == []
    assert not parts.ended
    assert parts.feed(body[cut:]) == []
    assert (parts.ended, parts.code) == (True, code)
    assert parts.feed(b"whatever follows") == []
    parts.end()


@pytest.mark.parametrize(
    "body",
    [
        b"no section" + bytes(START_BYTES_MAX),
        b"\x00\x53\x75\xa1\x02hi" + bytes(START_BYTES_MAX),
        b"\x00\x53\x70\x45",
        described(DATA, b"\xa0\x02hi") + described(VALUE, b"\x40"),
        EMPTY * (SECTIONS_MAX + 1),
    ],
)
def test_sections_that_are_no_body_are_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        BodyParts().feed(body)


@pytest.mark.parametrize("body", [b"\x00", b"no", b"\x00\x53\x75\xb0\x00", b"\x00\x53\x75\xa0\x02h"])
def test_an_end_within_a_section_is_refused(body: bytes) -> None:
    parts = BodyParts()
    parts.feed(body)
    with pytest.raises(DecodeError):
        parts.end()
