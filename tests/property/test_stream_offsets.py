"""Offsets in messages of streams: consumers get the offset, and the rest is unchanged."""

import struct

from hypothesis import example, given
from hypothesis import strategies as st

from protocol.amqp091 import properties as basic
from protocol.amqp091.content import header_frame_bytes
from protocol.amqp091.properties import Properties
from protocol.amqp10.types import Symbol
from protocol.streams.chunk import SECTIONS
from protocol.streams.offsets import OFFSET, PARTITION, content_at
from protocol.streams.rows import columns_of
from tests.support.amqp091.field_bytes import FIELDS, field, long_string
from tests.support.amqp10.contents import content10
from tests.support.conversion.contents import ANNOTATIONS, content, decoded_content, sections, short_string

OFFSETS = st.integers(0, 2**63 - 1)
NUMBERS = st.sampled_from([-1, 0, 255])  # partition numbers
SHORT = st.binary(max_size=255).map(short_string)
PROPERTIES: dict[int, st.SearchStrategy[bytes]] = {
    index: SHORT for index in range(14) if index != basic.HEADERS
}
PROPERTIES |= {
    basic.DELIVERY_MODE: st.sampled_from([b"\x01", b"\x02"]),
    basic.PRIORITY: st.binary(min_size=1, max_size=1),
    basic.TIMESTAMP: st.binary(min_size=8, max_size=8),
}
NAMES = st.one_of(
    st.sampled_from([OFFSET, PARTITION]),
    st.text(max_size=60).map(str.encode),
    st.just(b"x" + OFFSET),
    st.just(OFFSET + b"s"),
)
TABLES = st.dictionaries(NAMES, st.sampled_from(sorted(FIELDS.values())), max_size=4)


def on_channel_0(made: bytes) -> bytes:
    """Return a content of a header frame and at most a body frame on channel 0."""
    head = header_frame_bytes(made)
    body = made[head : head + 1] + b"\0\0" + made[head + 3 :] if len(made) > head else b""
    return made[:1] + b"\0\0" + made[3:head] + body


@given(
    st.fixed_dictionaries({}, optional=PROPERTIES),
    st.none() | TABLES,
    st.binary(max_size=40),
    OFFSETS,
    NUMBERS,
)
@example({}, None, b"", 0, -1)
@example({basic.CONTENT_TYPE: short_string(OFFSET)}, {OFFSET: FIELDS["S-long"]}, OFFSET, 2**63 - 1, 0)
@example({basic.APP_ID: short_string(OFFSET)}, {}, b"x", 1, 7)
def test_a_message_of_amqp_0_9_1_has_a_header_more(
    values: dict[int, bytes], table: dict[bytes, bytes] | None, payload: bytes, offset: int, partition: int
) -> None:
    inside = None if table is None else b"".join(field(name, value) for name, value in table.items())
    sent = content(values, inside, payload)
    properties, fields, body = decoded_content(on_channel_0(content_at(offset, partition, *columns_of(sent))))
    added = {OFFSET: b"l" + struct.pack(">Q", offset)}
    if partition >= 0:
        added[PARTITION] = b"l" + struct.pack(">Q", partition)
    wanted = {name: value for name, value in (table or {}).items() if name not in (OFFSET, PARTITION)}
    assert fields == wanted | added
    assert list(fields)[-len(added) :] == list(added)
    assert body == payload
    before = Properties(sent)
    for index in range(14):
        if index not in (basic.HEADERS, basic.DELIVERY_MODE, basic.PRIORITY, basic.TIMESTAMP):
            assert properties.octets(index) == before.octets(index)
        elif index != basic.HEADERS:
            assert properties.number(index) == before.number(index)


SCALARS = st.one_of(st.booleans(), st.integers(-(2**31), 2**31 - 1), st.text(max_size=20))
PAIRS = st.dictionaries(
    st.sampled_from(["x-stream-offset", "x-stream-partition", "x-opt-n", "x-stream-offsets", "x-y"]), SCALARS
)


@given(
    st.none() | PAIRS,
    st.none() | st.dictionaries(st.text(max_size=20), SCALARS, max_size=3),
    st.booleans(),
    st.binary(max_size=40),
    OFFSETS,
    NUMBERS,
)
def test_a_message_of_amqp_1_0_has_an_annotation_more(
    annotations: dict[str, object] | None,
    application: dict[str, object] | None,
    durable: bool,
    payload: bytes,
    offset: int,
    partition: int,
) -> None:
    body = b"\x00\x53\x75\xb0" + long_string(payload)
    sent = content10(annotations, application, durable=durable, body=body, subject="s")
    kind, properties, kept = columns_of(sent)
    assert kind == SECTIONS
    before, after = sections(sent), sections(content_at(offset, partition, kind, properties, kept))
    annotations_after = after.pop(ANNOTATIONS)
    had = before.pop(ANNOTATIONS, {})
    assert isinstance(annotations_after, dict)
    assert isinstance(had, dict)
    had.pop(Symbol("x-stream-offset"), None)
    if partition >= 0:
        had.pop(Symbol("x-stream-partition"), None)
    assert annotations_after.pop(Symbol("x-stream-offset")) == offset
    if partition >= 0:
        assert annotations_after.pop(Symbol("x-stream-partition")) == partition
    assert annotations_after == had
    assert after == before
