"""The parser against everything: any bytes, any fragmentation, any interleaving of channels."""

import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import base, commands, header
from pamqp import frame as pamqp_frame

from protocol.amqp091 import constants as c
from protocol.amqp091 import content, methods
from protocol.amqp091.incoming import IncomingChannel
from protocol.amqp091.wire import Wire
from protocol.errors import ProtocolError
from tests.support.effort import cases

FRAME_MAX = 4096
CHANNELS = 3


class Recorder(IncomingChannel):
    """A channel that records its calls as (channel, what, ...)."""

    def __init__(self, number: int, calls: list[tuple[object, ...]], limit: int = 1 << 20) -> None:
        super().__init__(limit)
        self.number = number
        self.calls = calls

    def on_publish(self, arguments: bytes, content: bytes, size: int, traits: int) -> None:
        self.calls.append((self.number, "publish", arguments, content, size, traits))

    def on_ack(self, tag: int, multiple: bool) -> None:
        self.calls.append((self.number, "ack", tag, multiple))

    def on_oversized(self, size: int) -> None:
        self.calls.append((self.number, "oversized", size))


class Methods:
    """A MethodSink that remembers."""

    def __init__(self, calls: list[tuple[object, ...]]) -> None:
        self.calls = calls

    def on_method(self, channel: int, method: int, payload: bytes) -> None:
        methods.decode_method(method, payload)
        self.calls.append((channel, "method", method, payload))


def wire() -> tuple[Wire, list[tuple[object, ...]]]:
    calls: list[tuple[object, ...]] = []
    made = Wire(Methods(calls), FRAME_MAX)
    made.channels.append(None)
    for number in range(1, CHANNELS + 1):
        made.channels.append(Recorder(number, calls))
    return made, calls


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, value: base.Frame) -> bytes:
    return pamqp_frame.marshal(value, channel)


class Publish:
    """A publish as frames, and the call that must result."""

    def __init__(
        self, channel: int, key: str, body: bytes, piece: int, persistent: bool, priority: int | None
    ) -> None:
        properties = commands.Basic.Properties(
            content_type="text/plain",
            headers={"a": "b"},
            delivery_mode=2 if persistent else None,
            priority=priority,
        )
        first = method(channel, commands.Basic.Publish(exchange="", routing_key=key))
        head = pamqp_frame.marshal(header.ContentHeader(0, len(body), properties), channel)
        bodies = [frame(3, channel, body[i : i + piece]) for i in range(0, len(body), piece)]
        self.frames = [first, head, *bodies]
        traits = (1 if persistent else 0) | (priority or 0) << 8
        self.call = (channel, "publish", first[11:-1], b"".join([head, *bodies]), len(body), traits)


publishes = st.builds(
    Publish,
    channel=st.integers(1, CHANNELS),
    key=st.sampled_from(["", "q", "a.b.c"]),
    body=st.integers(0, 9000).map(lambda n: bytes(i & 255 for i in range(n))),
    piece=st.sampled_from([1000, 4088, 17]),
    persistent=st.booleans(),
    priority=st.one_of(st.none(), st.integers(0, 255)),
)


alike = st.builds(  # publishes that differ in their bodies at most
    lambda size, count, persistent: [
        Publish(1, "q", bytes([i]) * size, 4088, persistent, None) for i in range(count)
    ],
    size=st.sampled_from([0, 1, 300, 4088, 5000]),
    count=st.integers(2, 20),
    persistent=st.booleans(),
)


def flat(lists: list[list[Publish]]) -> list[Publish]:
    return [message for some in lists for message in some]


def interleaved(messages: list[Publish], order: list[int]) -> bytes:
    """Return the frames of all messages, in sequence for each channel, mixed as `order` says."""
    by_channel: dict[int, list[bytes]] = {}
    for message in messages:
        by_channel.setdefault(int(message.call[0]), []).extend(message.frames)
    out = []
    for pick in order:
        waiting = [frames for frames in by_channel.values() if frames]
        if waiting:
            out.append(waiting[pick % len(waiting)].pop(0))
    return b"".join(out + [f for frames in by_channel.values() for f in frames])


@settings(max_examples=60, deadline=None)
@given(
    messages=st.lists(st.lists(publishes, min_size=1, max_size=1) | alike, max_size=6).map(flat),
    order=st.lists(st.integers(0, 5), max_size=60),
    cuts=st.lists(st.integers(1, 5000) | st.integers(5000, 40000), max_size=40),
)
def test_any_fragmentation_and_interleaving_gives_the_same_calls(
    messages: list[Publish], order: list[int], cuts: list[int]
) -> None:
    stream = interleaved(messages, order)
    parser, calls = wire()
    position = 0
    for cut in cuts:
        parser.feed(stream[position : position + cut])
        position += cut
    parser.feed(stream[position:])
    for channel in range(1, CHANNELS + 1):
        expected = [m.call for m in messages if m.call[0] == channel]
        assert [call for call in calls if call[0] == channel] == expected


def test_byte_by_byte_and_whole_are_the_same() -> None:
    messages = [
        Publish(1, "q", b"x" * 5000, 4088, True, 3),
        Publish(2, "", b"", 1, False, None),
        Publish(1, "a", b"y", 1, False, 9),
    ]
    stream = b"".join(f for m in messages for f in m.frames) + c.HEARTBEAT_FRAME
    stream += method(3, commands.Basic.Ack(7, True)) + method(0, commands.Connection.CloseOk())
    whole, whole_calls = wire()
    whole.feed(stream)
    slow, slow_calls = wire()
    for i in range(len(stream)):
        slow.feed(stream[i : i + 1])
    assert slow_calls == whole_calls
    assert [call[1] for call in whole_calls] == ["publish", "publish", "publish", "ack", "method"]
    assert whole_calls[3] == (3, "ack", 7, True)


def test_suspended_bytes_are_kept_in_order() -> None:
    message = Publish(1, "q", b"body", 4, False, None)
    parser, calls = wire()
    parser.suspend()
    for part in message.frames:
        parser.feed(part)
    assert calls == []
    parser.resume()
    assert calls == [message.call]


@settings(max_examples=cases(300), deadline=None)
@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(1, 40), max_size=20))
def test_arbitrary_bytes_raise_nothing_but_protocol_errors(data: bytes, cuts: list[int]) -> None:
    outcomes = []
    for pieces in (_pieces(data, cuts), [data], [data[i : i + 1] for i in range(len(data))]):
        parser, calls = wire()
        code = 0
        try:
            for piece in pieces:
                parser.feed(piece)
        except ProtocolError as error:
            code = error.code
        outcomes.append((code, calls))
    assert outcomes[0] == outcomes[1] == outcomes[2]


kinds = st.sampled_from([0, 1, 2, 3, 4, 8, 9, 65])
frames = st.builds(
    lambda kind, channel, payload, end: struct.pack(">BHI", kind, channel, len(payload)) + payload + end,
    kind=kinds,
    channel=st.integers(0, 4),
    payload=st.one_of(
        st.binary(max_size=40),
        st.builds(
            lambda method, rest: struct.pack(">I", method) + rest,
            st.sampled_from([c.BASIC_PUBLISH, c.BASIC_ACK, c.QUEUE_DECLARE, c.CHANNEL_OPEN, 0x005A0A0A]),
            st.binary(max_size=20),
        ),
        st.builds(
            lambda size, flags, rest: struct.pack(">HHQH", 60, 0, size, flags) + rest,
            st.integers(0, 2**64 - 1) | st.integers(0, 20),
            st.integers(0, 65535),
            st.binary(max_size=20),
        ),
    ),
    end=st.sampled_from([b"\xce", b"\xce", b"\xce", b"\xcd"]),
)


@settings(max_examples=cases(400), deadline=None)
@given(stream=st.lists(frames, max_size=6).map(b"".join), cuts=st.lists(st.integers(1, 40), max_size=20))
def test_frames_of_nonsense_raise_nothing_but_protocol_errors(stream: bytes, cuts: list[int]) -> None:
    test_arbitrary_bytes_raise_nothing_but_protocol_errors.hypothesis.inner_test(stream, cuts)  # type: ignore[attr-defined]


def _pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    pieces = []
    position = 0
    for cut in cuts:
        pieces.append(data[position : position + cut])
        position += cut
    return [*pieces, data[position:]]


@settings(max_examples=cases(200), deadline=None)
@given(
    body=st.integers(0, 9000).map(lambda n: bytes(i % 251 for i in range(n))),
    piece=st.sampled_from([100, 4088, 130000]),
    frame_max=st.sampled_from([4096, 131072]),
    channel=st.integers(1, 65535),
)
def test_content_survives_another_channel_and_frame_max(
    body: bytes, piece: int, frame_max: int, channel: int
) -> None:
    from librt.strings import BytesWriter

    message = Publish(1, "q", body, piece, True, 5)
    received = b"".join(message.frames[1:])
    out = BytesWriter()
    out.write(b"before")
    if content.largest_frame(received) > frame_max:
        content.write_split(out, received, channel, frame_max)
    else:
        content.write_content(out, received, channel)
    sent = out.getvalue()[6:]
    assert content.body(sent) == body
    assert content.largest_frame(sent) <= frame_max
    head = content.header_frame_bytes(received)
    assert sent[3:head] == received[3:head]
    position = 0
    while position < len(sent):
        size = struct.unpack_from(">I", sent, position + 3)[0]
        assert struct.unpack_from(">H", sent, position + 1)[0] == channel
        assert sent[position + 7 + size] == 0xCE
        position += size + 8
