"""Peers whose sockets go without a word, at any byte."""

import pytest
from pamqp.commands import Queue

from tests.conformance.conftest import Bystander
from tests.support.amqp091.frames import PROTOCOL_HEADER
from tests.support.amqp091.peer import Connector, Dialler, PeerChannel


@pytest.mark.spec("amqp-0-9-1", "4.2.2")
def test_in_the_middle_of_the_header(dial: Dialler, bystander: Bystander, connect: Connector) -> None:
    for size in range(len(PROTOCOL_HEADER)):
        peer = dial()
        peer.send(PROTOCOL_HEADER[:size])
        peer.drop()
    bystander.expect_progress()
    connect().channel().round_trip()


@pytest.mark.spec("amqp-0-9-1", "4.2.3")
def test_in_the_middle_of_a_publish(connect: Connector, bystander: Bystander, name: str) -> None:
    watcher = connect().channel()
    watcher.declare(name)
    publish = watcher.encode_publish(bytes(300), name)
    for cut in range(1, len(publish), 29):
        peer = connect()
        peer.channel()
        peer.send(publish[:cut])
        peer.drop()
    bystander.expect_progress()
    assert watcher.counts(name) == (0, 0)
    watcher.call(Queue.Delete(queue=name), Queue.DeleteOk)


@pytest.mark.amqpd_only("RabbitMQ takes a moment to notice, and answers 405 in the meantime")
@pytest.mark.spec("amqp-0-9-1", "queue.declare#exclusive")
def test_exclusive_queues_are_free_at_once(connect: Connector, name: str) -> None:
    for cut in range(1, 200, 17):
        peer = connect()
        channel = peer.channel()
        channel.declare(name, exclusive=True)
        channel.consume(name)
        peer.send(channel.encode_publish(bytes(200), name)[:cut])
        peer.drop()
        successor = connect()
        successor.channel().declare(name, exclusive=True)  # 405 while the other still counts
        successor.close()


@pytest.mark.spec("amqp-0-9-1", "3.1.8")
def test_deliveries_of_a_vanished_consumer_return_in_order(
    channel: PeerChannel, connect: Connector, name: str
) -> None:
    channel.declare(name, auto_delete=True)
    for number in range(10):
        channel.publish(b"%d" % number, name)
    holder = connect()
    consumer = holder.channel()
    consumer.qos(4)
    consumer.consume(name)
    assert [message.body for message in consumer.deliveries(4)] == [b"0", b"1", b"2", b"3"]
    channel.consume(name)
    assert [message.body for message in channel.deliveries(6)] == [b"%d" % number for number in range(4, 10)]
    holder.drop()
    again = channel.deliveries(4)
    assert [(message.body, message.redelivered) for message in again] == [
        (b"0", True),
        (b"1", True),
        (b"2", True),
        (b"3", True),
    ]
