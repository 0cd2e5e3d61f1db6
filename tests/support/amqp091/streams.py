"""Streams, as tests of AMQP 0-9-1 use them."""

from collections.abc import Callable

from pamqp.commands import Basic
from pamqp.common import FieldTable, FieldValue

from tests.support.amqp091.frames import Message
from tests.support.amqp091.peer import Peer, PeerChannel


def declare_stream(channel: PeerChannel, queue: str, arguments: FieldTable | None = None) -> str:
    """Declare a stream."""
    stream_type: FieldTable = {"x-queue-type": "stream"}
    return channel.declare(queue, durable=True, arguments=stream_type | (arguments or {}))


class Publisher:
    """A channel in confirm mode. `count`: the number of published messages."""

    def __init__(self, connect: Callable[[], Peer]) -> None:
        self.channel = connect().channel()
        self.channel.confirm_select()
        self.count = 0

    def publish(self, queue: str, *bodies: bytes, headers: FieldTable | None = None) -> None:
        """Publish, and wait until all is confirmed."""
        first = self.count + 1
        for body in bodies:
            self.channel.publish(body, queue, properties=Basic.Properties(headers=headers))
        self.count += len(bodies)
        self.channel.expect_confirms(self.count, first)


def read(
    channel: PeerChannel, queue: str, offset: FieldValue = None, prefetch: int = 1000, **more: FieldValue
) -> str:
    """Consume a stream from an offset on; further arguments as `stream_filter` for x-stream-filter."""
    channel.call(Basic.Qos(prefetch_count=prefetch), Basic.QosOk)
    arguments: FieldTable = {"x-" + name.replace("_", "-"): value for name, value in more.items()}
    if offset is not None:
        arguments["x-stream-offset"] = offset
    return channel.consume(queue, arguments=arguments)


def offset_of(message: Message) -> int:
    """The offset that a delivery says it has."""
    headers = message.properties.headers
    assert headers is not None
    offset = headers["x-stream-offset"]
    assert isinstance(offset, int)
    return offset


def offsets_and_bodies(messages: list[Message]) -> list[tuple[int, bytes]]:
    """The offsets and bodies of deliveries."""
    return [(offset_of(message), message.body) for message in messages]
