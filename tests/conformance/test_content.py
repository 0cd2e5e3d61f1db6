"""Bodies and properties: every size, every frame_max, every order of frames; nothing changes on the way."""

import datetime
import struct

import pytest
from pamqp.commands import Basic

from tests.support.amqp091.field_bytes import FIELDS, field, long_string
from tests.support.amqp091.frames import BODY, body_frames, frame_bytes, header_bytes, method_bytes
from tests.support.amqp091.peer import Connector, Peer, PeerChannel
from tests.support.daemon.daemon import Address
from tests.support.effort import combinations

KIB = 1024
SIZES = [
    0,
    1,
    4096 - 9,  # a byte less than a small frame
    4096 - 8,  # exactly a small frame
    4096 - 7,  # a byte more than a small frame
    131072 - 8,  # exactly a large frame
    131072 - 7,  # a byte more than a large frame
    2 * (131072 - 8),  # two large frames
    1000 * KIB + 1,  # several frames
    KIB * KIB,
    KIB * KIB + 1,
    5 * KIB * KIB,
]


def body_of(size: int, seed: int = 0) -> bytes:
    """Bytes that are different at every place within a frame."""
    pattern = struct.pack(">I", seed) + bytes(range(256)) * 2
    return (pattern[: 4 + 251] * (size // 255 + 1))[:size]


@pytest.mark.spec("amqp-0-9-1", "4.2.6.2")
@pytest.mark.parametrize(
    ("size", "frame_max", "persistent"),
    combinations(SIZES, [(131072, 131072), (131072, 4096), (4096, 131072)], [False, True]),
)
def test_bodies_of_every_size_between_every_frame_max(
    connect: Connector, durable_queue: str, size: int, frame_max: tuple[int, int], persistent: bool
) -> None:
    publisher_max, consumer_max = frame_max
    publisher = connect(frame_max=publisher_max).channel()
    consumer = connect(frame_max=consumer_max).channel()
    consumer.consume(durable_queue)
    body = body_of(size)
    properties = Basic.Properties(delivery_mode=2 if persistent else 1, message_id="m")
    publisher.publish(body, durable_queue, properties=properties)
    message = consumer.delivery()
    assert message.body == body
    assert message.properties.message_id == "m"
    assert max(message.body_frames, default=0) <= consumer_max - 8
    consumer.ack(message.tag)
    publisher.publish(b"next", durable_queue)
    assert consumer.delivery().body == b"next"


@pytest.mark.spec("amqp-0-9-1", "4.2.3")
@pytest.mark.parametrize("apart", [False, True], ids=["one-frame", "two-frames"])
@pytest.mark.parametrize("frame_max", [4096, 131072])
def test_a_client_that_does_not_count_the_eight_bytes_around_a_payload(
    connect: Connector, durable_queue: str, frame_max: int, apart: bool
) -> None:
    publisher = connect(frame_max=frame_max).channel()
    body = body_of(frame_max * (2 if apart else 1))
    publisher.peer.send(
        method_bytes(Basic.Publish(routing_key=durable_queue), 1)
        + header_bytes(len(body), None, 1)
        + b"".join(frame_bytes(BODY, 1, body[at : at + frame_max]) for at in range(0, len(body), frame_max))
    )
    publisher.round_trip()
    consumer = connect(frame_max=frame_max).channel()
    message = consumer.take(durable_queue)
    assert message.body == body
    assert max(message.body_frames) <= frame_max - 8


@pytest.mark.spec("amqp-0-9-1", "4.2.6.2")
def test_empty_and_tiny_body_frames_make_one_body(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    channel.peer.send(
        method_bytes(Basic.Publish(routing_key=queue), 1)
        + header_bytes(6, None, 1)
        + frame_bytes(BODY, 1, b"a")
        + frame_bytes(BODY, 1, b"")
        + frame_bytes(BODY, 1, b"bcd")
        + frame_bytes(BODY, 1, b"ef")
    )
    channel.publish(b"after", queue)
    assert channel.take(queue).body == b"abcdef"
    assert channel.take(queue).body == b"after"


@pytest.mark.spec("amqp-0-9-1", "4.3")
def test_contents_of_several_channels_come_frame_by_frame(connect: Connector) -> None:
    peer = connect(frame_max=4096)
    channels = [peer.channel(number) for number in range(1, 9)]
    queues = [channel.declare(exclusive=True) for channel in channels]
    bodies = [body_of(10_000 + 3_000 * number, number) for number in range(8)]
    streams = [
        [
            method_bytes(Basic.Publish(routing_key=queue), channel.number),
            header_bytes(len(body), None, channel.number),
            *body_frames(body, channel.number, 4096),
        ]
        for channel, queue, body in zip(channels, queues, bodies, strict=True)
    ]
    while any(streams):
        peer.send(b"".join(stream.pop(0) for stream in streams if stream))
    for channel, queue, body in zip(channels, queues, bodies, strict=True):
        assert channel.take(queue).body == body


@pytest.mark.spec("amqp-0-9-1", "4.3")
def test_methods_of_one_channel_between_the_frames_of_another(connect: Connector) -> None:
    peer = connect()
    slow, quick = peer.channel(1), peer.channel(2)
    queue = slow.declare(exclusive=True)
    body = body_of(300_000)
    frames = [
        method_bytes(Basic.Publish(routing_key=queue), 1),
        header_bytes(len(body), None, 1),
        *body_frames(body, 1, 100_000),
    ]
    for frame in frames:
        assert quick.counts(queue) == (0, 0)
        peer.send(frame)
        quick.publish(b"between", "nowhere")
    assert slow.take(queue).body == body


class TricklingPeer(Peer):
    """Sends every byte by itself."""

    def send(self, data: bytes) -> None:
        """Send bytes singly."""
        for byte in data:
            super().send(bytes([byte]))


@pytest.mark.spec("amqp-0-9-1", "4.2.3")
def test_a_whole_session_byte_by_byte(address: Address) -> None:
    peer = TricklingPeer(address)
    with peer.socket:
        peer.open()
        channel = peer.channel()
        queue = channel.declare(exclusive=True)
        channel.confirm_select()
        channel.publish(b"", queue)
        channel.publish(b"first", queue, properties=Basic.Properties(content_type="text/plain"))
        channel.publish(body_of(700), queue)
        channel.publish(b"nowhere", "nowhere", mandatory=True)
        channel.close()
        channel = peer.channel()
        channel.consume(queue)
        received = channel.deliveries(3)
        assert [message.body for message in received] == [b"", b"first", body_of(700)]
        channel.ack(received[1].tag, multiple=True)
        channel.nack(received[2].tag)
        assert channel.delivery().redelivered
        channel.ack(0, multiple=True)
        channel.recover()
        assert channel.counts(queue) == (0, 1)
        peer.close()


@pytest.mark.spec("amqp-0-9-1", "4.2.3")
def test_many_publishes_in_one_write_are_confirmed(connect: Connector) -> None:
    channel = connect().channel()
    queue = channel.declare(exclusive=True)
    channel.confirm_select()
    channel.peer.send(b"".join(channel.encode_publish(b"%d" % number, queue) for number in range(5000)))
    channel.expect_confirms(5000)
    channel.consume(queue, no_ack=True)
    assert [message.body for message in channel.deliveries(5000)] == [
        b"%d" % number for number in range(5000)
    ]


ALL_PROPERTIES = Basic.Properties(
    content_type="application/octet-stream",
    content_encoding="gzip",
    headers={"nested": {"list": [1, "two", None, True]}},
    delivery_mode=2,
    priority=9,
    correlation_id="correlation",
    reply_to="reply",
    expiration="100000",
    message_id="id",
    timestamp=datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    message_type="type",
    user_id="guest",
    app_id="app",
)


@pytest.mark.spec("amqp-0-9-1", "4.2.5.5")
@pytest.mark.parametrize("kind", FIELDS)
def test_headers_of_every_type_come_back_unchanged(channel: PeerChannel, kind: str) -> None:
    queue = channel.declare(exclusive=True)
    encoded = struct.pack(">H", 0x2000) + long_string(field(b"key", FIELDS[kind]))
    channel.publish(b"body", queue, properties=encoded)
    assert channel.take(queue).header[12:] == encoded


@pytest.mark.spec("amqp-0-9-1", "4.2.5.5")
def test_all_types_at_once_and_duplicate_keys_come_back_in_order(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    fields = b"".join(field(name.encode(), value) for name, value in FIELDS.items())
    encoded = struct.pack(">H", 0x2000) + long_string(fields + fields)
    channel.publish(b"body", queue, properties=encoded)
    assert channel.take(queue).header[12:] == encoded


@pytest.mark.spec("amqp-0-9-1", "4.2.6.1")
def test_all_properties_come_back_unchanged(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    channel.publish(b"body", queue, properties=ALL_PROPERTIES)
    message = channel.take(queue)
    assert message.header == struct.pack(">HHQ", 60, 0, 4) + ALL_PROPERTIES.marshal()
    assert dict(message.properties) == dict(ALL_PROPERTIES)


@pytest.mark.spec("amqp-0-9-1", "4.2.6.1")
@pytest.mark.parametrize("bit", range(2, 16))
def test_each_property_alone(channel: PeerChannel, bit: int) -> None:
    queue = channel.declare(exclusive=True)
    values = {13: long_string(b""), 12: b"\x02", 11: b"\x05", 6: struct.pack(">Q", 1), 8: b"\x0510000"}
    encoded = struct.pack(">H", 1 << bit) + values.get(bit, b"\x05guest")
    channel.publish(b"body", queue, properties=encoded)
    assert channel.take(queue).header[12:] == encoded
