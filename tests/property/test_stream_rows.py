"""Messages of both protocols as rows of a stream, and back."""

from hypothesis import given
from hypothesis import strategies as st

from protocol.amqp091.constants import FRAME_MIN_SIZE
from protocol.amqp091.content import body, header_frame_bytes, largest_frame
from protocol.streams.chunk import BASIC, SECTIONS
from protocol.streams.rows import columns_of, content_of
from tests.support.amqp10.contents import content10
from tests.support.amqp10.reference_codec import described
from tests.support.conversion.contents import content, short_string

PAYLOADS = st.one_of(st.binary(max_size=50), st.integers(0, 20_000).map(lambda size: b"x" * size))


@given(PAYLOADS, st.dictionaries(st.sampled_from([0, 1, 5]), st.binary(max_size=200).map(short_string)))
def test_a_message_of_amqp_0_9_1_has_its_header_and_its_body(
    payload: bytes, values: dict[int, bytes]
) -> None:
    sent = content(values, payload=payload)
    kind, properties, kept = columns_of(sent)
    assert (kind, kept) == (BASIC, payload)
    again = content_of(kind, properties, kept)
    head = header_frame_bytes(sent)
    assert again[3:head] == sent[3:head]  # but for the number of the channel
    assert body(again) == payload
    assert largest_frame(again) <= FRAME_MIN_SIZE


@given(st.lists(st.binary(max_size=300), max_size=3), st.booleans())
def test_a_message_of_amqp_1_0_is_the_same_byte_for_byte(parts: list[bytes], annotated: bool) -> None:
    sections = b"".join(described(0x75, b"\xb0" + len(part).to_bytes(4, "big") + part) for part in parts)
    sent = content10({"x-opt-n": 1} if annotated else None, {"a": 1}, body=sections)
    kind, properties, kept = columns_of(sent)
    assert (kind, kept) == (SECTIONS, sections)
    assert content_of(kind, properties, kept) == sent
