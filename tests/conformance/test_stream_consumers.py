"""Consumers of streams that have a name go on where they were."""

from collections.abc import Callable

import pytest
from pamqp.commands import Basic

from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector, Peer, PeerChannel
from tests.support.amqp091.streams import Publisher, declare_stream, offset_of, read
from tests.support.daemon.daemon import Daemon, DaemonStarter
from tests.support.daemon.endings import Ending, both_endings, crash

NUMBERED = [b"%d" % number for number in range(20)]


@pytest.fixture
def publisher(connect: Connector) -> Publisher:
    return Publisher(connect)


@pytest.fixture
def stream(publisher: Publisher, name: str) -> str:
    """A stream with twenty messages."""
    stream = declare_stream(publisher.channel, name)
    publisher.publish(stream, *NUMBERED)
    return stream


def named_consumer(
    connect: Callable[[], Peer], stream: str, name: str = "mine", prefetch: int = 5
) -> PeerChannel:
    """A consumer with a name, on a connection of its own."""
    channel = connect().channel()
    read(channel, stream, "first", prefetch, stream_consumer_name=name)
    return channel


def next_offset(connect: Callable[[], Peer], stream: str, name: str = "mine") -> int:
    """The first offset that a consumer of this name gets."""
    channel = named_consumer(connect, stream, name)
    offset = offset_of(channel.delivery())
    channel.peer.drop()
    return offset


def wait_for_leave(api: Api, stream: str) -> None:
    """Wait until the stream has no consumer."""
    while api.get("queues", "/", stream)["consumers"]:
        pass


def test_a_named_consumer_resumes_after_its_last_settled_offset(
    connect: Connector, api: Api, stream: str
) -> None:
    channel = named_consumer(connect, stream)
    messages = channel.deliveries(5)
    channel.ack(messages[2].tag, multiple=True)
    channel.deliveries(3)
    channel.peer.drop()
    wait_for_leave(api, stream)
    (partition,) = api.get("streams", "/", stream)["partitions"]
    assert partition["consumers"] == {"mine": 3}
    assert next_offset(connect, stream) == 3
    assert next_offset(connect, stream, "other") == 0


def test_offsets_settled_out_of_order_do_not_hide_unsettled_ones(
    connect: Connector, api: Api, stream: str
) -> None:
    channel = named_consumer(connect, stream)
    messages = channel.deliveries(5)
    channel.ack(messages[0].tag)
    channel.reject(messages[1].tag, requeue=False)
    channel.ack(messages[3].tag)
    channel.round_trip()
    channel.peer.drop()
    wait_for_leave(api, stream)
    assert next_offset(connect, stream) == 2


def test_returned_messages_are_redelivered(connect: Connector, api: Api, stream: str) -> None:
    channel = named_consumer(connect, stream)
    messages = channel.deliveries(5)
    channel.nack(messages[0].tag)
    for message in messages[1:]:
        channel.ack(message.tag)
    channel.round_trip()
    channel.peer.drop()
    wait_for_leave(api, stream)
    assert next_offset(connect, stream) == 0


def test_an_operator_has_a_consumer_begin_anew(connect: Connector, api: Api, stream: str) -> None:
    channel = named_consumer(connect, stream)
    channel.ack(channel.deliveries(5)[-1].tag, multiple=True)
    channel.peer.drop()
    wait_for_leave(api, stream)
    api.delete("streams", "/", stream, "consumers", "mine")
    assert next_offset(connect, stream) == 0
    refusal = api.refused(404, "DELETE", "streams", "/", stream, "consumers", "nobody")
    assert "knows no consumer 'nobody'" in refusal["reason"]


@both_endings
def test_a_consumer_offset_survives_a_restart(
    start_daemon: DaemonStarter, connect: Connector, end: Ending
) -> None:
    daemon = start_daemon()
    publisher = Publisher(lambda: connect(daemon.address))
    stream = declare_stream(publisher.channel, "s")
    publisher.publish(stream, *NUMBERED)
    channel = named_consumer(lambda: connect(daemon.address), stream)
    messages = channel.deliveries(5)
    channel.ack(messages[3].tag, multiple=True)
    if end is crash:
        until_known(daemon, 4)  # within a second
    else:
        channel.round_trip()
    channel.peer.drop()
    end(daemon, publisher.channel.peer)

    daemon = start_daemon()
    assert next_offset(lambda: connect(daemon.address), stream) == 4


def until_known(daemon: Daemon, offset: int) -> None:
    """Wait until the consumer's offset is in the log on disk."""
    api = Api(daemon.admin)
    while api.get("streams", "/", "s")["partitions"][0]["consumers"] != {"mine": offset}:
        pass
    api.put("queues", "/", "behind", durable=True)  # answered when all before it is on disk
    api.close()


def test_an_invalid_stream_consumer_name_is_refused(channel: PeerChannel, stream: str) -> None:
    channel.call(Basic.Qos(prefetch_count=1), Basic.QosOk)
    command = Basic.Consume(queue=stream, arguments={"x-stream-consumer-name": "x" * 256})
    assert "invalid arg 'x-stream-consumer-name'" in channel.refused(command, 406)
