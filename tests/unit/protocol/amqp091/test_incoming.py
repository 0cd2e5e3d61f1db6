"""Content that comes in pieces: small bodies as a whole, large ones handed on as they come."""

import random
import struct

import pytest

from protocol.amqp091.content import body_of_frames
from protocol.amqp091.incoming import EXPECT_METHOD, WHOLE_BYTES_MAX, IncomingChannel
from tests.support.amqp091.frames import BODY, HEADER, frame_bytes

BODY_MAX = 8 * WHOLE_BYTES_MAX


class Heard(IncomingChannel):
    """A channel that records its calls."""

    def __init__(self) -> None:
        super().__init__(BODY_MAX)
        self.pieces: list[tuple[bytes, int]] = []
        self.published: list[tuple[bytes, int]] = []

    def on_piece(self, frames: bytes, size: int, traits: int) -> None:
        assert not self.published, "the pieces come before the message"
        self.pieces.append((frames, size))

    def on_publish(self, arguments: bytes, content: bytes, size: int, traits: int) -> None:
        self.published.append((content, size))


def header(size: int) -> bytes:
    """A content header frame with a delivery mode."""
    return frame_bytes(HEADER, 7, struct.pack(">HHQHB", 60, 0, size, 0x1000, 2))


def feed(channel: IncomingChannel, body: bytes, steps: list[int]) -> None:
    """A content in body frames of these sizes, in turn."""
    head = header(len(body))
    channel.begin_content(b"")
    channel.header_frame(head, 0, len(head) - 8)
    at = turn = 0
    while at < len(body):
        payload = body[at : at + steps[turn % len(steps)]]
        channel.body_frame(frame_bytes(BODY, 7, payload), 0, len(payload))
        at += len(payload)
        turn += 1


@pytest.mark.parametrize("steps", [[131064], [4088], [100], [0, 1_500_000], [5, 131064, 700]], ids=str)
@pytest.mark.parametrize("more", [1, 100, WHOLE_BYTES_MAX, 3 * WHOLE_BYTES_MAX + 17])
def test_a_large_body_is_handed_on_in_pieces_of_about_a_mebibyte(steps: list[int], more: int) -> None:
    body = random.Random(more).randbytes(WHOLE_BYTES_MAX + more)
    channel = Heard()
    feed(channel, body, steps)
    assert channel.published == [(header(len(body)), len(body))]
    assert b"".join(body_of_frames(frames) for frames, _ in channel.pieces) == body
    for frames, size in channel.pieces:
        assert len(body_of_frames(frames)) == size <= WHOLE_BYTES_MAX + max(steps)
        assert len(frames) < size * 1.09 + 8, "tiny frames were merged"
    assert [size >= WHOLE_BYTES_MAX for _, size in channel.pieces[:-1]] == [True] * (len(channel.pieces) - 1)
    assert channel.expecting == EXPECT_METHOD


@pytest.mark.parametrize("size", [0, 1, WHOLE_BYTES_MAX - 1, WHOLE_BYTES_MAX])
def test_small_bodies_arrive_in_one_piece(size: int) -> None:
    body = bytes(size)
    channel = Heard()
    feed(channel, body, [131064])
    ((content, body_size),) = channel.published
    assert body_size == size
    assert content.startswith(header(size))
    assert body_of_frames(content[len(header(size)) :]) == body
    assert channel.pieces == []


def test_the_next_content_starts_without_the_earlier_one() -> None:
    channel = Heard()
    feed(channel, bytes(WHOLE_BYTES_MAX + 5), [131064])
    channel.published.clear()
    channel.pieces.clear()
    feed(channel, b"small", [2])
    assert body_of_frames(channel.published[0][0][len(header(5)) :]) == b"small"
    assert channel.pieces == []
