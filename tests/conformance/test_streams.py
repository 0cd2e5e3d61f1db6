"""Streams: messages stay, have offsets, and are read by every consumer from any offset."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pamqp.commands import Basic, Queue, Tx
from pamqp.common import FieldTable, FieldValue

from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp091.streams import Publisher, declare_stream, offset_of, offsets_and_bodies, read
from tests.support.daemon.daemon import DaemonStarter
from tests.support.daemon.endings import Ending, both_endings

YESTERDAY = datetime.now(UTC) - timedelta(days=1)
TOMORROW = datetime.now(UTC) + timedelta(days=1)
NUMBERED = [b"%d" % number for number in range(10)]


@pytest.fixture
def stream(connect: Connector, name: str) -> Iterator[str]:
    """A stream that any connection may use."""
    owner = connect().channel()
    stream = declare_stream(owner, name + ".stream")
    yield stream
    owner.call(Queue.Delete(queue=stream), Queue.DeleteOk)


@pytest.fixture
def publisher(connect: Connector) -> Publisher:
    return Publisher(connect)


def test_each_consumer_reads_all_messages_and_acks_remove_no_message(
    channel: PeerChannel, connect: Connector, publisher: Publisher, stream: str
) -> None:
    publisher.publish(stream, *NUMBERED)
    for reader in (channel, connect().channel()):
        read(reader, stream, "first")
        messages = reader.deliveries(10)
        assert offsets_and_bodies(messages) == list(enumerate(NUMBERED))
        reader.ack(messages[-1].tag, multiple=True)
        reader.round_trip()
    assert publisher.channel.counts(stream) == (10, 2)


@pytest.mark.parametrize(
    ("offset", "first"),
    [("first", 0), ("last", 9), (0, 0), (7, 7), ("1h", 0), (YESTERDAY, 0)],
    ids=["first", "last", "0", "7", "1h", "yesterday"],
)
def test_a_consumer_reads_from_its_stream_offset(
    channel: PeerChannel, publisher: Publisher, stream: str, offset: FieldValue, first: int
) -> None:
    publisher.publish(stream, *NUMBERED)
    read(channel, stream, offset)
    assert offsets_and_bodies(channel.deliveries(10 - first)) == list(enumerate(NUMBERED))[first:]


@pytest.mark.parametrize("offset", ["next", None, 10, TOMORROW], ids=["next", "none", "10", "tomorrow"])
def test_a_consumer_without_an_old_offset_reads_new_messages(
    channel: PeerChannel, publisher: Publisher, stream: str, offset: FieldValue
) -> None:
    publisher.publish(stream, *NUMBERED)
    read(channel, stream, offset)
    publisher.publish(stream, b"new")
    assert offsets_and_bodies([channel.delivery()]) == [(10, b"new")]


def test_a_consumer_waits_for_a_future_offset(
    channel: PeerChannel, publisher: Publisher, stream: str
) -> None:
    read(channel, stream, 5)
    publisher.publish(stream, *NUMBERED)
    assert offsets_and_bodies(channel.deliveries(5)) == list(enumerate(NUMBERED))[5:]


def test_a_time_is_that_of_the_append(channel: PeerChannel, publisher: Publisher, stream: str) -> None:
    publisher.publish(stream, b"before")
    between = datetime.now(UTC)
    while datetime.now(UTC) - between < timedelta(seconds=2):  # field tables count in seconds
        publisher.publish(stream, b"meanwhile")
    publisher.publish(stream, b"meanwhile")  # if the one before took long
    publisher.publish(stream, b"after")
    last = publisher.count - 1
    read(channel, stream, between + timedelta(seconds=1))
    first = channel.delivery()
    assert 0 < offset_of(first) < last
    assert first.body == b"meanwhile"


def test_a_consumer_has_no_more_than_its_prefetch(
    channel: PeerChannel, publisher: Publisher, stream: str
) -> None:
    publisher.publish(stream, *NUMBERED)
    read(channel, stream, "first", prefetch=3)
    messages = channel.deliveries(3)
    channel.round_trip()
    assert not channel.peer.kept(channel.number)
    channel.ack(messages[-1].tag, multiple=True)
    assert offsets_and_bodies(channel.deliveries(3)) == list(enumerate(NUMBERED))[3:6]


def test_a_consumer_with_a_filter_reads_only_messages_with_its_values(
    channel: PeerChannel, publisher: Publisher, stream: str
) -> None:
    for value in ("amer", "emea", "apac"):
        publisher.publish(stream, value.encode(), headers={"x-stream-filter-value": value})
    publisher.publish(stream, b"none")
    read(channel, stream, "first", stream_filter="emea")
    assert channel.delivery().body == b"emea"
    other = channel.peer.channel(2)
    read(other, stream, "first", stream_filter=["amer", "apac"], stream_match_unfiltered=True)
    assert offsets_and_bodies(other.deliveries(3)) == [(0, b"amer"), (2, b"apac"), (3, b"none")]
    publisher.publish(stream, b"more", headers={"x-stream-filter-value": "emea"})
    assert offsets_and_bodies([channel.delivery()]) == [(4, b"more")]
    assert not other.peer.kept(2)


def test_headers_are_kept_and_an_old_offset_is_replaced(
    channel: PeerChannel, publisher: Publisher, stream: str
) -> None:
    publisher.publish(stream, b"1", headers={"x-stream-offset": 77, "name": "value"})
    read(channel, stream, "first")
    message = channel.delivery()
    assert message.properties.headers == {"name": "value", "x-stream-offset": 0}


@pytest.mark.parametrize("size", [0, 1, 4096, 1_000_000, 20_000_000])
def test_bodies_of_any_size_come_as_they_were(
    channel: PeerChannel, publisher: Publisher, stream: str, size: int
) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    publisher.publish(stream, body[:size], b"behind")
    read(channel, stream, "first")
    assert offsets_and_bodies(channel.deliveries(2)) == [(0, body[:size]), (1, b"behind")]


@both_endings
def test_confirmed_messages_are_readable_after_a_restart(
    start_daemon: DaemonStarter, connect: Connector, end: Ending
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    declare_stream(channel, "kept")
    declare_stream(channel, "deleted")
    channel.confirm_select()
    for body in NUMBERED:
        channel.publish(body, "kept")  # persistent or not
        channel.publish(body, "deleted")
    channel.expect_confirms(20)
    channel.call(Queue.Delete(queue="deleted"), Queue.DeleteOk)
    end(daemon, channel.peer)

    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    declare_stream(channel, "kept")
    assert channel.counts("kept") == (10, 0)
    declare_stream(channel, "deleted")
    assert channel.counts("deleted") == (0, 0)
    read(channel, "kept", 3)
    assert offsets_and_bodies(channel.deliveries(7)) == list(enumerate(NUMBERED))[3:]
    channel.publish(b"new", "kept")
    assert offsets_and_bodies([channel.delivery()]) == [(10, b"new")]


def test_a_stream_and_a_queue_get_the_same_message(
    channel: PeerChannel, publisher: Publisher, stream: str, durable_queue: str
) -> None:
    for queue in (stream, durable_queue):
        channel.call(Queue.Bind(queue=queue, exchange="amq.fanout"), Queue.BindOk)
    publisher.channel.publish(b"both", "", "amq.fanout", Basic.Properties(delivery_mode=2))
    publisher.channel.expect_confirms(1)
    assert channel.take(durable_queue).body == b"both"
    read(channel, stream, "first")
    assert offsets_and_bodies([channel.delivery()]) == [(0, b"both")]


def test_transactions_append_when_they_commit(channel: PeerChannel, connect: Connector, stream: str) -> None:
    reader = connect().channel()
    read(reader, stream, "first")
    channel.call(Tx.Select(), Tx.SelectOk)
    channel.publish(b"never", stream)
    channel.call(Tx.Rollback(), Tx.RollbackOk)
    channel.publish(b"1", stream)
    channel.publish(b"2", stream)
    channel.call(Tx.Commit(), Tx.CommitOk)
    assert offsets_and_bodies(reader.deliveries(2)) == [(0, b"1"), (1, b"2")]


def test_dead_letters_go_to_streams(
    channel: PeerChannel, publisher: Publisher, stream: str, name: str
) -> None:
    arguments: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": stream}
    queue = channel.declare(name + ".source", durable=True, arguments=arguments)
    publisher.channel.publish(b"bad", queue, properties=Basic.Properties(delivery_mode=2))
    publisher.channel.expect_confirms(1)
    channel.reject(channel.take(queue).tag, requeue=False)
    read(channel, stream, "first")
    message = channel.delivery()
    assert message.body == b"bad"
    assert message.properties.headers is not None
    assert message.properties.headers["x-first-death-reason"] == "rejected"
    assert channel.counts(queue) == (0, 0)
    channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)


# ---- refusals of streams


def test_consumers_have_to_acknowledge(channel: PeerChannel, stream: str) -> None:
    channel.write(Basic.Consume(queue=stream, no_ack=True))
    assert f"queue '{stream}' in vhost '/' is a stream" in channel.peer.expect_close(540)


def test_consumers_need_a_prefetch_count(channel: PeerChannel, stream: str) -> None:
    text = channel.refused(Basic.Consume(queue=stream), 406)
    assert f"consumer prefetch count is not set for queue '{stream}'" in text


@pytest.mark.parametrize("offset", ["third", -1, True, [1], "h"], ids=str)
def test_an_offset_that_makes_no_sense_is_refused(
    channel: PeerChannel, stream: str, offset: FieldValue
) -> None:
    channel.call(Basic.Qos(prefetch_count=1), Basic.QosOk)
    command = Basic.Consume(queue=stream, arguments={"x-stream-offset": offset})
    text = channel.refused(command, 406)
    assert "invalid arg 'x-stream-offset'" in text
    assert "is not one of first, last, next, an offset" in text


def test_basic_get_from_a_stream_closes_the_connection_with_540(
    channel: PeerChannel, publisher: Publisher, stream: str
) -> None:
    publisher.publish(stream, b"kept")
    other = channel.peer
    channel.write(Basic.Get(queue=stream))
    assert "is a stream and cannot be read with basic.get" in other.expect_close(540)


def test_a_purge_is_refused(channel: PeerChannel, stream: str) -> None:
    channel.write(Queue.Purge(queue=stream))
    assert "is a stream and cannot be purged" in channel.peer.expect_close(540)


@pytest.mark.parametrize(
    ("durable", "exclusive", "auto_delete", "what"),
    [
        (False, False, False, "non-durable"),
        (True, True, False, "exclusive-owner"),
        (True, False, True, "auto-delete"),
    ],
)
def test_a_stream_must_be_durable_and_not_exclusive_or_auto_delete(
    channel: PeerChannel, name: str, durable: bool, exclusive: bool, auto_delete: bool, what: str
) -> None:
    command = Queue.Declare(
        queue=name,
        durable=durable,
        exclusive=exclusive,
        auto_delete=auto_delete,
        arguments={"x-queue-type": "stream"},
    )
    assert f"invalid property '{what}' for queue '{name}'" in channel.refused(command, 406)


@pytest.mark.parametrize("argument", ["x-max-length", "x-message-ttl", "x-max-priority", "x-expires"])
def test_arguments_that_take_messages_out_are_refused(channel: PeerChannel, name: str, argument: str) -> None:
    command = Queue.Declare(queue=name, durable=True, arguments={"x-queue-type": "stream", argument: 5})
    text = channel.refused(command, 406)
    assert f"invalid arg '{argument}' for queue '{name}'" in text
    assert "does not go with x-queue-type 'stream'" in text
