"""A request for messages in the same write as their publishing does not overtake a consumer that waits."""

import pytest
from pamqp.commands import Basic, Queue

from tests.support.amqp091.frames import Message, method_bytes
from tests.support.amqp091.peer import Connector, PeerChannel


def consumer_of(queue: str, channel: PeerChannel, connect: Connector, elsewhere: bool) -> PeerChannel:
    """Return a channel with a waiting consumer, of this connection or of another."""
    waiting = connect().channel() if elsewhere else channel.peer.channel(2)
    waiting.qos(2)
    waiting.consume(queue)
    return waiting


def bodies(messages: list[Message]) -> list[bytes]:
    return [message.body for message in messages]


def contents(channel: PeerChannel, queue: str, count: int) -> bytes:
    return b"".join(channel.encode_publish(b"%d" % number, queue) for number in range(count))


@pytest.mark.spec("amqp-0-9-1", "basic.get")
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_get_takes_what_waiting_consumers_leave(
    channel: PeerChannel, node: str, connect: Connector, elsewhere: bool
) -> None:
    waiting = consumer_of(node, channel, connect, elsewhere)
    get = method_bytes(Basic.Get(queue=node, no_ack=True), channel.number)
    channel.peer.send(contents(channel, node, 2) + get)
    channel.expect(Basic.GetEmpty)
    assert bodies(waiting.deliveries(2)) == [b"0", b"1"]
    channel.peer.send(contents(channel, node, 1) + get)  # the prefetch window is full
    assert channel.peer.expect_content(channel.expect(Basic.GetOk), channel.number).body == b"0"


@pytest.mark.spec("amqp-0-9-1", "basic.cancel")
def test_a_cancelled_consumer_gets_what_was_published_before(channel: PeerChannel, name: str) -> None:
    channel.declare(name, exclusive=True)
    tag = channel.consume(name, no_ack=True)
    channel.peer.send(contents(channel, name, 10) + method_bytes(Basic.Cancel(tag), channel.number))
    assert bodies(channel.deliveries(10)) == [b"%d" % number for number in range(10)]
    channel.expect(Basic.CancelOk)
    assert channel.counts(name) == (0, 0)


@pytest.mark.spec("amqp-0-9-1", "queue.purge")
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_purge_leaves_waiting_consumers_their_messages(
    channel: PeerChannel, node: str, connect: Connector, elsewhere: bool
) -> None:
    waiting = consumer_of(node, channel, connect, elsewhere)
    channel.peer.send(contents(channel, node, 3) + method_bytes(Queue.Purge(queue=node), channel.number))
    assert channel.expect(Queue.PurgeOk).message_count == 1
    assert bodies(waiting.deliveries(2)) == [b"0", b"1"]


@pytest.mark.spec("amqp-0-9-1", "queue.declare-ok.message-count")
@pytest.mark.parametrize("elsewhere", [False, True])
def test_messages_for_waiting_consumers_do_not_count_as_ready(
    channel: PeerChannel, node: str, connect: Connector, elsewhere: bool
) -> None:
    waiting = consumer_of(node, channel, connect, elsewhere)
    declare = method_bytes(Queue.Declare(queue=node, passive=True), channel.number)
    channel.peer.send(contents(channel, node, 3) + declare)
    assert channel.expect(Queue.DeclareOk).message_count == 1
    assert bodies(waiting.deliveries(2)) == [b"0", b"1"]


@pytest.mark.spec("amqp-0-9-1", "queue.delete")
def test_a_deleted_queue_has_served_waiting_consumers(channel: PeerChannel, connect: Connector) -> None:
    queue = channel.declare()
    waiting = consumer_of(queue, channel, connect, True)
    channel.peer.send(contents(channel, queue, 3) + method_bytes(Queue.Delete(queue=queue), channel.number))
    assert channel.expect(Queue.DeleteOk).message_count == 1
    assert bodies(waiting.deliveries(2)) == [b"0", b"1"]
