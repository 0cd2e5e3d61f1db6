"""Frame headers: the order and time of errors, and streams in pieces."""

import struct

import pytest

from protocol.amqp10.conditions import FRAMING_ERROR, PeerError
from protocol.amqp10.frames import AMQP_FRAME, EMPTY_FRAME, SASL_FRAME, Frames


def frame(body: bytes, channel: int = 0, kind: int = AMQP_FRAME, words: int = 2) -> bytes:
    head = struct.pack(">IBBH", words * 4 + len(body), words, kind, channel)
    return head + b"\xee" * (words * 4 - 8) + body


def stream(kind: int = AMQP_FRAME) -> Frames:
    return Frames(kind, 1024, 7)


def drain(frames: Frames) -> list[tuple[int, bytes]]:
    found = []
    while frames.advance():
        found.append((frames.channel, frames.data[frames.start : frames.end]))
    return found


FRAMES = (
    frame(b"one", 1) + EMPTY_FRAME + frame(b"x" * 1016, 7) + frame(b"two", 2, words=5) + frame(b"three", 3)
)
FOUND = [(1, b"one"), (0, b""), (7, b"x" * 1016), (2, b"two"), (3, b"three")]


def test_frames_of_one_read_come_one_by_one() -> None:
    frames = stream()
    frames.append(FRAMES)

    assert drain(frames) == FOUND


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 8, 9, 100, 1023, 1024, 1025])
@pytest.mark.parametrize("asks", [1, 2, 50])
def test_pieces_give_the_same_frames(piece: int, asks: int) -> None:
    frames = stream()
    found = []
    for turn, at in enumerate(range(0, len(FRAMES), piece)):
        frames.append(FRAMES[at : at + piece])
        if turn % asks == 0:
            found += drain(frames)
    found += drain(frames)

    assert found == FOUND


def test_a_pause_after_any_frame_loses_nothing() -> None:
    frames = stream()
    frames.append(FRAMES[:20])
    assert frames.advance()
    frames.append(FRAMES[20:500])
    assert frames.advance()
    frames.append(FRAMES[500:1100])
    frames.append(FRAMES[1100:])

    assert drain(frames) == FOUND[2:]


def test_consumed_bytes_are_released() -> None:
    frames = stream()
    frames.append(frame(b"x" * 1000) + b"\x00\x00")
    drain(frames)

    assert frames.data == b"\x00\x00"


@pytest.mark.parametrize("piece", [1, 8, 100])
def test_a_protocol_header_may_stand_between_frames(piece: int) -> None:
    frames = Frames(SASL_FRAME, 512, 7)
    bytes_ = (
        b"AMQP\x03\x01\x00\x00"
        + frame(b"sasl", kind=SASL_FRAME, channel=9)
        + b"AMQP\x00\x01\x00\x00"
        + frame(b"o")
    )
    found: list[bytes] = []
    for at in range(0, len(bytes_), piece):
        frames.append(bytes_[at : at + piece])
        while True:
            if len(found) in (0, 2):
                header = frames.take_protocol_header()
                if header is None:
                    break
                found.append(header)
            elif frames.advance():
                found.append(frames.data[frames.start : frames.end])
            else:
                break
            frames.kind = SASL_FRAME if len(found) < 3 else AMQP_FRAME

    assert found == [b"AMQP\x03\x01\x00\x00", b"sasl", b"AMQP\x00\x01\x00\x00", b"o"]


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("00000007", "frame of 7 bytes"),
        ("00000000", "frame of 0 bytes"),
        ("00000401", "frame of 1025 bytes"),
        ("ffffffff", "frame of 4294967295 bytes"),
        ("80000000", "frame of 2147483648 bytes"),
        ("00000008 01 00 0000", "data offset of 1 words"),
        ("00000008 00 01 ffff", "data offset of 0 words"),
        ("00000008 03 01 ffff", "with a data offset of 12 bytes"),
        ("00000400 ff 00 0000", None),
        ("00000300 ff 00 0000", "with a data offset of 1020 bytes"),
        ("00000400 02 01 ffff", "frame of type 1, expected 0"),
        ("00000400 02 02 0000", "frame of type 2, expected 0"),
        ("00000400 02 00 0008", "channel 8, channel-max is 7"),
        ("00000400 02 00 ffff", "channel 65535, channel-max is 7"),
        ("00000400 02 00 0007", None),
    ],
)
def test_a_header_is_judged_before_anything_is_kept(head: str, reason: str | None) -> None:
    frames = stream()
    frames.append(bytes.fromhex(head))
    if reason is None:
        assert not frames.advance()
        return

    with pytest.raises(PeerError, match=reason) as caught:
        frames.advance()

    assert caught.value.condition == FRAMING_ERROR


def test_sasl_has_no_empty_frames_and_no_channels() -> None:
    frames = stream(SASL_FRAME)
    frames.append(frame(b"x", 65535, SASL_FRAME))
    assert drain(frames) == [(0, b"x")]
    frames.append(frame(b"", 0, SASL_FRAME))

    with pytest.raises(PeerError, match="empty"):
        frames.advance()
