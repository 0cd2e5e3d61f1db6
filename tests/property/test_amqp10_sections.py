"""Sections of messages, compared with a model: order, bytes, and inserted annotations."""

from hypothesis import given
from hypothesis import strategies as st

from protocol.amqp10.annotations import annotations_section
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.properties import check_properties, read_property
from protocol.amqp10.sections import Sections, scan
from tests.support.amqp10.reference_codec import compound, decode, message, sized

NULL = b"\x40"
MAP = b"\xc1\x01\x00"

KEYS = st.sampled_from([b"x-a", b"x-exchange", b"k" * 40, b"x"])
VALUES = st.sampled_from(
    [NULL, b"\x41", sized(0xA1, b"x-exchange"), sized(0xB0, b"v" * 200), compound(0xC0, [NULL])]
)


@given(
    st.lists(st.tuples(st.sampled_from([0xA3, 0xB3]), KEYS, VALUES), max_size=6),
    st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=3, unique_by=lambda entry: entry[0]),
    st.binary(max_size=50),
)
def test_annotating_keeps_the_bytes_of_all_else(
    old: list[tuple[int, bytes, bytes]], new: list[tuple[bytes, bytes]], body: bytes
) -> None:
    items = [item for code, key, value in old for item in (sized(code, key), value)]
    data = message((0x70, b"\x45"), (0x72, compound(0xD1, items)), (0x75, sized(0xB0, body)))
    layout = scan(data, 0, len(data))
    keys = [key for key, _ in new]
    section = annotations_section(
        data, layout.annotations, layout.annotations_end, keys, [value for _, value in new]
    )
    sent = data[: layout.header_end] + section + data[layout.bare :]

    again = scan(sent, 0, len(sent))
    assert sent[again.bare :] == data[layout.bare :] == message((0x75, sized(0xB0, body)))
    kept = [item for code, key, value in old if key not in keys for item in (sized(code, key), value)]
    added = [item for key, value in new for item in (sized(0xA3, key), value)]
    (_, _, pairs), end = decode(sent, again.annotations)
    assert end == again.annotations_end
    assert pairs == [decode(item)[0] for item in kept + added]
    assert (
        b"".join(kept + added)
        == sent[again.annotations_end - len(b"".join(kept + added)) : again.annotations_end]
    )


@given(st.lists(st.sampled_from([0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78]), max_size=7))
def test_sections_are_taken_as_the_specification_orders_them(codes: list[int]) -> None:
    values = {0x70: b"\x45", 0x73: b"\x45", 0x75: b"\xa0\x00", 0x76: b"\x45", 0x77: b"\x53\x05"}
    data = message(*((code, values.get(code, MAP)) for code in codes))
    once = [code for code in codes if code not in (0x75, 0x76)]
    bodies = {code for code in codes if code in (0x75, 0x76, 0x77)}
    legal = codes == sorted(codes) and len(set(once)) == len(once) and len(bodies) <= 1
    read_codes = []
    sections = Sections(data, 0, len(data))
    try:
        while sections.advance():
            read_codes.append(sections.code)
    except DecodeError:
        assert not legal
        return

    assert legal
    assert read_codes == codes


@given(st.lists(st.one_of(st.just(NULL), st.just(sized(0xA1, b"s"))), max_size=13))
def test_properties_that_are_read_are_those_at_their_places(fields: list[bytes]) -> None:
    texts = [2, 3, 4, 10, 12]
    fields = [field if index in texts else NULL for index, field in enumerate(fields)]
    data = compound(0xC0, fields)
    check_properties(data, 0, len(data))

    expected = [None if field == NULL else field for field in fields] + [None] * (13 - len(fields))
    assert [read_property(data, 0, len(data), index) for index in range(13)] == expected
