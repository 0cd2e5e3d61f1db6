"""Sections of messages: order, number and shape; scalars read in place; annotations put in."""

import pytest

from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import NONE
from protocol.amqp10.descriptors import AMQP_SEQUENCE, AMQP_VALUE, DATA
from protocol.amqp10.sections import SECTIONS_MAX, Sections, scan
from tests.support.amqp10.reference_codec import described, message, sized

NULL = b"\x40"
MAP = b"\xc1\x01\x00"
H = described(0x70, b"\x45")
DA = described(0x71, MAP)
MA = described(0x72, MAP)
P = described(0x73, b"\x45")
AP = described(0x74, MAP)
D = described(0x75, b"\xa0\x01x")
S = described(0x76, b"\x45")
V = described(0x77, b"\x40")
F = described(0x78, MAP)


def codes(data: bytes, ordered: bool = True) -> list[int]:
    sections = Sections(data, 0, len(data), ordered)
    found = []
    behind = 0
    while sections.advance():
        assert sections.start == behind < sections.value < sections.end
        behind = sections.end
        found.append(sections.code)
    assert behind == len(data)
    return found


@pytest.mark.spec("amqp-1.0", "3.2.6")
@pytest.mark.spec("amqp-1.0", "3.2.7")
@pytest.mark.spec("amqp-1.0", "3.2.8")
@pytest.mark.spec("amqp-1.0", "3.2.9")
@pytest.mark.parametrize(
    "data",
    [H + DA + MA + P + AP + D + F, D, D + D + D, S + S, V, H + V + F, b"", H, P + AP, MA + P, F, H + DA + MA],
)
def test_sections_in_their_order_are_taken(data: bytes) -> None:
    found = codes(data)

    assert found == sorted(found)
    assert found == codes(data, ordered=False)


@pytest.mark.spec("amqp-1.0", "3.2")
@pytest.mark.parametrize(
    "data",
    [DA + H, MA + DA, P + MA, AP + P, D + AP, V + P, F + D, F + H, D + H, D + F + D, V + H, S + P],
)
def test_sections_out_of_order_are_refused_where_it_matters(data: bytes) -> None:
    with pytest.raises(DecodeError):
        codes(data)

    if data != D + F + D:
        assert len(codes(data, ordered=False)) == 2


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(
    "data", [H + H, DA + DA, MA + MA, P + P, AP + AP, V + V, F + F, D + S, S + D, D + V, V + S]
)
def test_second_sections_and_mixed_bodies_are_refused(data: bytes, ordered: bool) -> None:
    with pytest.raises(DecodeError):
        codes(data, ordered)


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        (described(0x70, MAP), "header: constructor 0xc1"),
        (described(0x71, b"\x45"), "delivery-annotations: constructor"),
        (described(0x72, b"\x40"), "message-annotations: constructor"),
        (described(0x73, b"\xa0\x00"), "properties: constructor"),
        (described(0x74, b"\xc0\x01\x00"), "application-properties: constructor"),
        (described(0x75, b"\xa1\x00"), "data: constructor"),
        (described(0x76, MAP), "amqp-sequence: constructor"),
        (described(0x77, b"\x57"), "amqp-value: constructor 0x57 does not exist"),
        (described(0x78, b"\x45"), "footer: constructor"),
        (described(0x72, b"\xc1\x02\x01\x40"), "key without a value"),
        (described(0x72, b"\xc1\x02\x02\x40"), "1 bytes for 2 values"),
        (described(0x76, b"\xd0\x00\x00\x00\x04\x7f\xff\xff\xff"), "0 bytes for 2147483647"),
        (described(0x76, b"\xd0\x00\x00\x00\x04\xff\xff\xff\xff"), "0 bytes for -1"),
        (described(0x70, b"\xc0\x00"), "header is truncated"),
        (described(0x70, b"\xd0\x00\x00\x00\x03\x00\x00\x00\x00"), "header is truncated"),
        (described(0x75, b"\xb0\x80\x00\x00\x00"), "data is truncated"),
        (described(0x6F, b"\x45"), "section with an unknown descriptor"),
        (described(0x79, b"\x45"), "section with an unknown descriptor"),
        (b"\x00\xa3\x03abc\x45", "section with an unknown descriptor"),
        (b"\x00\x80" + b"\xff" * 8 + b"\x45", "section with an unknown descriptor"),
        (b"\x45", "section has no descriptor"),
        (b"\x00" * 100, "more than 32 nested descriptors"),
        (b"\x00\x53", "truncated"),
        (b"\x00\x53\x75", "truncated"),
    ],
)
def test_a_section_of_the_wrong_shape_is_refused(section: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        codes(section)


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_message_that_is_cut_inside_a_section_is_refused(cut: int) -> None:
    data = message(
        (0x70, b"\xc0\x02\x01\x41"), (0x73, b"\xd0\0\0\0\x06\0\0\0\x01\xa0\0"), (0x77, b"\xb1\0\0\0\x04text")
    )
    ends = {7, 7 + 14, len(data)}
    if cut >= len(data) or cut in ends:
        codes(data[:cut])
        return

    with pytest.raises(DecodeError):
        codes(data[:cut])


def test_descriptors_may_be_symbols_or_long() -> None:
    data = b"\x00" + sized(0xA3, b"amqp:header:list") + b"\x45"
    data += b"\x00" + sized(0xB3, b"amqp:message-annotations:map") + MAP
    data += (
        b"\x00\x80" + bytes(7) + b"\x75\xa0\x00" + b"\x00" + sized(0xA3, b"amqp:data:binary") + b"\xa0\x00"
    )

    assert codes(data) == [0x70, 0x72, 0x75, 0x75]


def test_a_message_has_so_many_sections_and_no_more() -> None:
    assert len(codes(D * SECTIONS_MAX)) == SECTIONS_MAX
    with pytest.raises(DecodeError, match="more than 1000"):
        codes(D * (SECTIONS_MAX + 1))


def test_a_layout_says_where_everything_is() -> None:
    data = b"..." + H + DA + MA + P + AP + D + D + F + b"..."
    layout = scan(data, 3, len(data) - 3)

    assert data[layout.header_start : layout.header_end] == H
    assert data[layout.header] == 0x45
    assert data[layout.annotations_start : layout.annotations_end] == MA
    assert data[layout.annotations : layout.annotations_end] == MAP
    assert data[layout.bare : -3] == P + AP + D + D + F
    assert data[layout.properties : layout.properties_end] == b"\x45"
    assert data[layout.application_properties : layout.application_properties_end] == MAP
    assert data[layout.body : layout.body_end] == D + D
    assert (layout.body_code, layout.body_count) == (DATA, 2)
    assert data[layout.footer : layout.footer_end] == MAP


def test_a_layout_of_an_empty_message_and_of_sequence_and_value_bodies() -> None:
    layout = scan(b"", 0, 0)
    nothing = [layout.header, layout.annotations, layout.properties, layout.body, layout.footer]
    assert nothing == [NONE] * 5
    assert (layout.bare, layout.body_code, layout.body_count) == (0, 0, 0)
    assert scan(H + MA, 0, len(H + MA)).bare == len(H + MA)
    assert scan(S + S, 0, len(S + S)).body_code == AMQP_SEQUENCE
    value = scan(V + F, 0, len(V + F))
    assert (value.body_code, value.body, value.body_end) == (AMQP_VALUE, 0, len(V))
