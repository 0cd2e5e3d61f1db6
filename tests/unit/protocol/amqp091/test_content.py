"""Content as frames: cut to another frame size, given another channel, tidied when it comes in crumbs."""

import struct

import pytest
from librt.strings import BytesWriter
from pamqp import commands, header
from pamqp import frame as pamqp_frame
from pamqp.common import FieldTable

from protocol.amqp091 import content
from protocol.amqp091.constants import FRAME_MIN_SIZE
from protocol.amqp091.incoming import DISCARD, EXPECT_METHOD, PARTS_MAX, SMALL_BYTES, IncomingChannel
from protocol.errors import FRAME_ERROR, ProtocolError


class Taker(IncomingChannel):
    """A channel that keeps its content."""

    def __init__(self) -> None:
        super().__init__(1 << 40)
        self.taken: list[tuple[bytes, int]] = []

    def on_publish(self, arguments: bytes, content: bytes, size: int, traits: int) -> None:
        self.taken.append((content, size))


def body_frame(channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", 3, channel, len(payload)) + payload + b"\xce"


def head_frame(channel: int, size: int) -> bytes:
    properties = commands.Basic.Properties(content_type="text/plain", headers={"a": "b"})
    return pamqp_frame.marshal(header.ContentHeader(0, size, properties), channel)


def split(whole: bytes) -> list[tuple[int, int, bytes]]:
    """The frames: type, channel, payload."""
    frames = []
    while whole:
        kind, channel, size = struct.unpack_from(">BHI", whole)
        assert whole[7 + size] == 0xCE
        frames.append((kind, channel, whole[7 : 7 + size]))
        whole = whole[8 + size :]
    return frames


def receive(pieces: list[bytes], channel: int = 7) -> Taker:
    """Return a channel that has received these pieces of a single body."""
    taker = Taker()
    taker.begin_content(b"")
    head = head_frame(channel, sum(map(len, pieces)))
    taker.header_frame(head, 0, len(head) - 8)
    for piece in pieces:
        taker.body_frame(body_frame(channel, piece), 0, len(piece))
    return taker


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 300000])
@pytest.mark.parametrize("frame_max", [4096, 10000, 131072])
def test_content_is_split_for_a_smaller_frame_max(size: int, frame_max: int) -> None:
    body = bytes(i % 251 for i in range(size))
    sent = head_frame(513, size) + body_frame(513, body) * (size > 0)
    out = BytesWriter()
    out.write(b"before")
    content.write_split(out, sent, 65534, frame_max)
    written = out.getvalue()
    assert written.startswith(b"before")
    first, *rest = split(written[6:])
    assert first == (2, 65534, split(sent)[0][2])
    assert {(kind, channel) for kind, channel, _ in rest} <= {(3, 65534)}
    assert b"".join(payload for _, _, payload in rest) == body
    assert len(rest) == -(-size // (frame_max - 8))
    assert all(len(payload) <= frame_max - 8 for _, _, payload in rest)


def test_content_goes_out_on_another_channel_as_it_came() -> None:
    sent = head_frame(1, 5) + body_frame(1, b"abc") + body_frame(1, b"de")
    out = BytesWriter()
    content.write_content(out, sent, 40000)
    assert split(out.getvalue()) == [(kind, 40000, payload) for kind, _, payload in split(sent)]
    assert content.body(sent) == b"abcde"
    assert content.largest_frame(sent) == len(head_frame(1, 5))


def test_a_body_in_single_bytes_takes_little_more_than_its_size() -> None:
    body = bytes(i % 251 for i in range(3 * PARTS_MAX + 5))
    taker = receive([bytes([octet]) for octet in body])
    ((whole, size),) = taker.taken
    assert size == len(body)
    assert content.body(whole) == body
    assert {channel for _, channel, _ in split(whole)} == {7}
    assert len(whole) < len(body) + 200, "frames of one byte are kept as they came"


def test_frames_of_ordinary_size_are_kept_as_they_came() -> None:
    pieces = [b"x" * SMALL_BYTES] * (PARTS_MAX + 1)
    ((whole, _),) = receive(pieces).taken
    assert [payload for _, _, payload in split(whole)[1:]] == pieces


def test_merged_frames_suit_every_peer() -> None:
    frames = b"".join(body_frame(300, bytes([i % 251]) * 100) for i in range(200))
    merged = split(content.merge_frames(frames))
    assert b"".join(payload for _, _, payload in merged) == content.body(head_frame(300, 0) + frames)
    assert {(kind, channel) for kind, channel, _ in merged} == {(3, 300)}
    assert max(len(payload) + 8 for _, _, payload in merged) == FRAME_MIN_SIZE


def test_received_frames_are_dropped_with_the_channel() -> None:
    taker = Taker()
    taker.begin_content(b"")
    head = head_frame(1, 10)
    taker.header_frame(head, 0, len(head) - 8)
    taker.discard()
    assert taker.expecting == DISCARD
    assert taker.taken == []


def test_more_body_than_announced_is_a_frame_error() -> None:
    taker = Taker()
    taker.begin_content(b"")
    head = head_frame(1, 2)
    taker.header_frame(head, 0, len(head) - 8)
    with pytest.raises(ProtocolError) as refused:
        taker.body_frame(body_frame(1, b"abc"), 0, 3)
    assert refused.value.code == FRAME_ERROR


def test_after_a_whole_content_a_method_is_next() -> None:
    assert receive([b"body"]).expecting == EXPECT_METHOD
    assert receive([]).taken[0][1] == 0


@pytest.mark.parametrize(
    ("headers", "traits"),
    [
        ({}, 0),
        ({"a": "x-delay", "delay": 5, "xx": {"x-delay": 5, "CC": ["k"]}}, 0),
        ({"x-delay": 5}, content.DELAYS),
        ({"x-delivery-time": 5}, content.DELAYS),
        ({"x-death": [], "delay": 5}, 0),
        ({"CC": [], "x-delay": 5}, content.DELAYS | content.COPIES),
        ({"BCC": [], "A": True, "x-receipt-arrival": "q"}, content.RECEIPTS | content.COPIES),
        ({"x": 1, "x-": None, "BC": 1, "CCC": 1, "x-receipt": 1}, 0),
    ],
)
def test_headers_that_may_matter_are_found_undecoded(headers: FieldTable, traits: int) -> None:
    head = pamqp_frame.marshal(header.ContentHeader(0, 0, commands.Basic.Properties(headers=headers)), 1)
    assert content.scan(head, 0, len(head) - 8) == traits


@pytest.mark.parametrize(
    "table",
    [
        b"\x01aS\0\0\0\xffx-delay\x02CC",  # a string that is longer than the table
        b"\x01aS\xff\xff\xff\xffx-delay\x02CC",
        b"\x01a?x-delay\x02CC",  # a type that nobody knows
        b"\x01aS\0\0x-delay\x02CC"[:5] + b"x-delay\x02CC",
        b"\x01aV\x20x-delay\x02CC",  # a name that is longer than the table
        b"\x01aV\x07x-delay\x02CCl",
    ],
)
def test_headers_without_borders_matter_if_such_names_occur(table: bytes) -> None:
    head = pamqp_frame.marshal(header.ContentHeader(0, 0, commands.Basic.Properties(headers={"a": 1})), 1)
    size = 14 + 4 + len(table)
    broken = head[:3] + size.to_bytes(4, "big") + head[7:21] + len(table).to_bytes(4, "big") + table + b"\xce"
    assert content.scan(broken, 0, size) == content.DELAYS | content.COPIES
