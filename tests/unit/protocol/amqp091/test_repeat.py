"""Publishes that differ only in their bodies: recognized, and only while nothing else changes."""

import pytest
from pamqp.commands import Basic, Channel

from protocol.amqp091.constants import CHANNEL_CLOSE
from protocol.amqp091.content import PERSISTENT
from protocol.amqp091.incoming import IncomingChannel
from protocol.amqp091.wire import Wire
from protocol.errors import FRAME_ERROR, UNEXPECTED_FRAME, ProtocolError
from tests.support.amqp091.frames import FRAME_END, body_frames, header_bytes, method_bytes

FRAME_MAX = 4096


class Taken(IncomingChannel):
    """Remembers the bodies."""

    def __init__(self, limit: int = 1 << 20) -> None:
        super().__init__(limit)
        self.keys: list[bytes] = []
        self.contents: list[bytes] = []
        self.traits: list[int] = []

    def on_publish(self, arguments: bytes, content: bytes, size: int, traits: int) -> None:
        assert content[-1] == FRAME_END
        self.keys.append(arguments)
        self.contents.append(content)
        self.traits.append(traits)


class Reopening:
    """A MethodSink that opens a new channel for each closed one."""

    def __init__(self) -> None:
        self.wire = Wire(self, FRAME_MAX)
        self.first = Taken()
        self.second = Taken()
        self.wire.channels += [None, self.first]

    def on_method(self, channel: int, method: int, payload: bytes) -> None:
        assert method == CHANNEL_CLOSE
        self.wire.channels[channel] = self.second


def content(body: bytes) -> bytes:
    return header_bytes(len(body), None, 1) + b"".join(body_frames(body, 1, FRAME_MAX))


def publish(body: bytes, key: str = "q") -> bytes:
    return method_bytes(Basic.Publish(routing_key=key), 1) + content(body)


def persistent(body: bytes) -> bytes:
    head = header_bytes(len(body), b"\x10\x00\x02", 1)
    return publish(b"")[: -len(content(b""))] + head + b"".join(body_frames(body, 1, FRAME_MAX))


BODIES = [bytes([i]) * 20 for i in range(5)]
SAME = [publish(body) for body in BODIES]


def test_publishes_that_differ_in_their_bodies_are_recognised() -> None:
    peer = Reopening()
    peer.wire.feed(b"".join(SAME))
    assert peer.first.contents == [content(body) for body in BODIES]


def test_another_key_size_or_property_is_noticed() -> None:
    peer = Reopening()
    others = [publish(b"z" * 20, "r"), publish(b"z" * 21), persistent(b"z" * 20)]
    peer.wire.feed(b"".join([*SAME, *others, *SAME]))
    assert peer.first.contents[5:7] == [content(b"z" * 20), content(b"z" * 21)]
    assert peer.first.keys[5] != peer.first.keys[4]
    assert peer.first.traits == [0] * 7 + [PERSISTENT] + [0] * 5
    assert peer.first.contents[-5:] == [content(body) for body in BODIES]


@pytest.mark.parametrize("cut", range(1, 2 * len(SAME[0]), 7))
def test_a_read_may_end_anywhere(cut: int) -> None:
    peer = Reopening()
    stream = b"".join(SAME)
    peer.wire.feed(stream[:-cut])
    peer.wire.feed(stream[-cut:])
    assert peer.first.contents == [content(body) for body in BODIES]


def test_a_reopened_channel_gets_its_own_publishes() -> None:
    peer = Reopening()
    peer.wire.feed(b"".join([*SAME, method_bytes(Channel.Close(200, "", 0, 0), 1), *SAME]))
    assert len(peer.first.contents) == len(peer.second.contents) == 5


def test_a_channel_that_this_end_has_closed_gets_nothing() -> None:
    peer = Reopening()
    peer.wire.feed(b"".join(SAME))
    peer.first.discard()
    peer.wire.feed(b"".join(content(b"late") for _ in range(2)))
    assert len(peer.first.contents) == 5


def test_a_publish_inside_a_content_is_still_unexpected() -> None:
    peer = Reopening()
    begun = method_bytes(Basic.Publish(routing_key="q"), 1) + header_bytes(9000, None, 1)
    with pytest.raises(ProtocolError) as caught:
        peer.wire.feed(b"".join([*SAME, begun, SAME[0]]))
    assert caught.value.code == UNEXPECTED_FRAME
    assert len(peer.first.contents) == 5


def test_a_wrong_last_octet_is_a_frame_error() -> None:
    peer = Reopening()
    with pytest.raises(ProtocolError) as caught:
        peer.wire.feed(b"".join([*SAME, SAME[0][:-1] + b"\x00", SAME[1]]))
    assert caught.value.code == FRAME_ERROR
    assert len(peer.first.contents) == 5


def test_a_content_interrupted_by_a_method_continues() -> None:
    """A large read after an incomplete one is not joined to it; nothing is parsed twice or lost."""
    peer = Reopening()
    long = [publish(bytes([i]) * 3000) for i in range(20)]
    stream = b"".join(long)
    for cut in (1, 6, 7, 30, 60, 100, 3000, len(long[0]) + 5):
        peer.first.contents.clear()
        peer.wire.feed(stream[:cut])
        peer.wire.feed(stream[cut:-10])
        peer.wire.suspend()
        peer.wire.feed(stream[-10:])
        assert len(peer.first.contents) == 19
        peer.wire.resume()
        assert peer.first.contents == [content(bytes([i]) * 3000) for i in range(20)]
