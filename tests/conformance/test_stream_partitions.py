"""Streams with partitions: a single name, and an order and offsets for each partition."""

from collections import defaultdict
from collections.abc import Iterator

import pytest
from pamqp.commands import Basic, Queue
from pamqp.common import FieldTable, FieldValue

from protocol.streams.chunk import BODY, Chunk
from tests.support.admin.api import Api
from tests.support.amqp091.frames import Message
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp091.streams import Publisher, declare_stream, offset_of, read
from tests.support.daemon.daemon import DaemonStarter
from tests.support.daemon.endings import Ending, both_endings

KEYS = [f"customer {number}" for number in range(20)]


@pytest.fixture
def publisher(connect: Connector) -> Publisher:
    return Publisher(connect)


@pytest.fixture
def stream(publisher: Publisher, name: str) -> Iterator[str]:
    """A stream with four partitions and two hundred messages, ten for each of twenty keys."""
    stream = declare_stream(publisher.channel, name + ".stream", {"x-partitions": 4})
    fill(publisher, stream)
    yield stream
    publisher.channel.call(Queue.Delete(queue=stream), Queue.DeleteOk)


def fill(publisher: Publisher, stream: str) -> None:
    """Publish ten messages for each key, the keys by turns."""
    for number in range(10):
        for key in KEYS:
            publisher.publish(stream, f"{key}: {number}".encode(), headers={"x-partition-key": key})


def partition_of(message: Message) -> int:
    """The partition that a delivery says it is of."""
    headers = message.properties.headers
    assert headers is not None
    partition = headers["x-stream-partition"]
    assert isinstance(partition, int)
    return partition


def by_partition(messages: list[Message]) -> dict[int, list[tuple[int, bytes]]]:
    """Offsets and bodies of deliveries, by their partitions, in the order in which they came."""
    found: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for message in messages:
        found[partition_of(message)].append((offset_of(message), message.body))
    return found


def test_each_key_has_its_order_and_each_partition_its_offsets(channel: PeerChannel, stream: str) -> None:
    assert channel.counts(stream) == (200, 0)
    read(channel, stream, "first")
    found = by_partition(channel.deliveries(200))
    assert sorted(found) == [0, 1, 2, 3]
    for rows in found.values():
        assert [offset for offset, _ in rows] == list(range(len(rows)))
    for key in KEYS:
        of_key = [
            [body for _, body in rows if body.startswith(key.encode() + b":")] for rows in found.values()
        ]
        assert [bodies for bodies in of_key if bodies] == [[f"{key}: {n}".encode() for n in range(10)]]


def test_a_consumer_may_want_one_partition(channel: PeerChannel, connect: Connector, stream: str) -> None:
    read(channel, stream, "first")
    everything = by_partition(channel.deliveries(200))
    for partition, rows in everything.items():
        reader = connect().channel()
        read(reader, stream, 5, stream_partition=partition)
        assert by_partition(reader.deliveries(len(rows) - 5)) == {partition: rows[5:]}
        reader.round_trip()
        assert not reader.peer.kept(1)


def test_the_routing_key_is_the_key_of_messages_without_one(
    channel: PeerChannel, publisher: Publisher, stream: str
) -> None:
    channel.call(Queue.Bind(queue=stream, exchange="amq.topic", routing_key="#"), Queue.BindOk)
    read(channel, stream)
    for number in range(20):
        for key in ("a", "b.c", "d"):
            publisher.channel.publish(b"%d" % number, key, "amq.topic")
    found: dict[str, set[int]] = defaultdict(set)
    for message in channel.deliveries(60):
        assert isinstance(message.method, Basic.Deliver)
        found[str(message.method.routing_key)].add(partition_of(message))
    assert {key: len(partitions) for key, partitions in found.items()} == {"a": 1, "b.c": 1, "d": 1}


@pytest.mark.parametrize(("offset", "count"), [("next", 0), ("last", 4), (3, 200 - 12), ("1h", 200)])
def test_a_consumer_starts_at_its_offset_in_each_partition(
    channel: PeerChannel, publisher: Publisher, stream: str, offset: FieldValue, count: int
) -> None:
    read(channel, stream, offset)
    channel.deliveries(count)
    publisher.publish(stream, b"new", headers={"x-partition-key": "any"})
    assert channel.delivery().body == b"new"


@both_endings
def test_partitions_and_consumers_are_known_after_a_restart(
    start_daemon: DaemonStarter, connect: Connector, end: Ending
) -> None:
    daemon = start_daemon()
    publisher = Publisher(lambda: connect(daemon.address))
    declare_stream(publisher.channel, "s", {"x-partitions": 4})
    publisher.channel.declare("behind", durable=True)
    fill(publisher, "s")
    consumer = connect(daemon.address).channel()
    read(consumer, "s", "first", 100, stream_consumer_name="mine")
    messages = consumer.deliveries(100)
    consumer.ack(messages[79].tag, multiple=True)
    consumer.round_trip()
    consumer.peer.drop()
    api = Api(daemon.admin)
    while api.get("queues", "/", "s")["consumers"]:
        pass
    publisher.channel.declare("after", durable=True)  # answered when all before it is on disk
    shown = api.get("streams", "/", "s")["partitions"]
    api.close()
    end(daemon, publisher.channel.peer)

    daemon = start_daemon()
    api = Api(daemon.admin)
    assert api.get("streams", "/", "s")["partitions"] == shown
    assert sum(partition["consumers"]["mine"] for partition in shown) == 80
    api.close()
    channel = connect(daemon.address).channel()
    read(channel, "s", "first", stream_consumer_name="mine")
    found = by_partition(channel.deliveries(120))
    for number, rows in found.items():
        first, behind = shown[number]["consumers"]["mine"], shown[number]["next"]
        assert [offset for offset, _ in rows] == list(range(first, behind))


def test_chunks_are_had_by_partition(api: Api, stream: str) -> None:
    partition_rows = api.get("streams", "/", stream)["partitions"]
    assert [partition["partition"] for partition in partition_rows] == [0, 1, 2, 3]
    assert len({partition["incarnation"] for partition in partition_rows}) == 4
    bodies: set[bytes] = set()
    for partition in partition_rows:
        number, behind = str(partition["partition"]), str(partition["next"])
        answer = api.ask("GET", "streams", "/", stream, number, "chunks", **{"from": "0", "to": behind})
        position = 0
        while position < len(answer.content):
            chunk = Chunk(answer.content, position)
            bodies |= {chunk.value(BODY, row) for row in range(chunk.rows)}
            position += chunk.header.size
    assert bodies == {f"{key}: {number}".encode() for key in KEYS for number in range(10)}


def test_consuming_a_missing_partition_is_refused_with_406(channel: PeerChannel, stream: str) -> None:
    channel.call(Basic.Qos(prefetch_count=1), Basic.QosOk)
    text = channel.refused(Basic.Consume(queue=stream, arguments={"x-stream-partition": 4}), 406)
    assert f"queue '{stream}' in vhost '/' has no partition 4, it has 4" in text


def test_a_consumer_of_one_partition_has_no_name(channel: PeerChannel, stream: str) -> None:
    channel.call(Basic.Qos(prefetch_count=1), Basic.QosOk)
    arguments: FieldTable = {"x-stream-partition": 1, "x-stream-consumer-name": "mine"}
    text = channel.refused(Basic.Consume(queue=stream, arguments=arguments), 406)
    assert "does not go with x-stream-consumer-name" in text


@pytest.mark.parametrize("count", [0, 257, "4"])
def test_a_number_of_partitions_that_cannot_be_is_refused(
    channel: PeerChannel, name: str, count: FieldValue
) -> None:
    command = Queue.Declare(
        queue=name, durable=True, arguments={"x-queue-type": "stream", "x-partitions": count}
    )
    assert "invalid arg 'x-partitions'" in channel.refused(command, 406)


def test_queues_have_no_partitions(channel: PeerChannel, name: str) -> None:
    command = Queue.Declare(queue=name, durable=True, arguments={"x-partitions": 4})
    assert "needs x-queue-type 'stream'" in channel.refused(command, 406)
