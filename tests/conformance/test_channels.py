"""Channels: numbers, churn, and many at once."""

import pytest
from pamqp.commands import Channel

from tests.support.amqp091.frames import METHOD, frame_bytes, method_bytes
from tests.support.amqp091.peer import Connector, PeerChannel


@pytest.mark.spec("amqp-0-9-1", "channel.open")
def test_a_single_channel_opened_and_closed_many_times(connect: Connector) -> None:
    peer = connect()
    for _ in range(2000):
        peer.channel(1).close()
    peer.channel(1).round_trip()


@pytest.mark.amqpd_only("RabbitMQ takes a moment to forget a channel")
@pytest.mark.spec("amqp-0-9-1", "channel.open")
def test_churn_without_waiting_for_replies(connect: Connector) -> None:
    peer = connect()
    turn = method_bytes(Channel.Open(), 5) + method_bytes(Channel.Close(200, "", 0, 0), 5)
    peer.send(turn * 3000)
    for _ in range(3000):
        peer.expect(Channel.OpenOk, 5)
        peer.expect(Channel.CloseOk, 5)


@pytest.mark.spec("amqp-0-9-1", "connection.tune#channel-max")
def test_every_channel_up_to_channel_max_at_once(connect: Connector) -> None:
    peer = connect()
    peer.send(b"".join(method_bytes(Channel.Open(), number) for number in range(1, 2048)))
    for number in range(1, 2048):
        peer.expect(Channel.OpenOk, number)
    last = PeerChannel(peer, 2047)
    queue = last.declare(exclusive=True)
    for number in (1, 1000, 2046):
        PeerChannel(peer, number).publish(b"%d" % number, queue)
        assert PeerChannel(peer, number).take(queue).body == b"%d" % number
    peer.close()


@pytest.mark.spec("amqp-0-9-1", "connection.tune#channel-max")
def test_a_channel_beyond_the_limit(connect: Connector) -> None:
    peer = connect(channel_max=3)
    for number in (1, 2, 3):
        peer.channel(number)
    peer.write(Channel.Open(), 4)
    assert peer.expect_close(530).startswith("NOT_ALLOWED - ")


@pytest.mark.spec("amqp-0-9-1", "channel.close")
def test_both_ends_close_a_channel_at_the_same_time(connect: Connector) -> None:
    peer = connect()
    for _ in range(50):
        channel = peer.channel(1)
        # the second method makes the broker close the channel while the client's close is on its way
        channel.publish(b"", "key", "no-such-exchange")
        channel.write(Channel.Close(200, "", 0, 0))
        command = peer.expect_any((Channel.Close, Channel.CloseOk), 1)
        if isinstance(command, Channel.Close):
            channel.write(Channel.CloseOk())
            # the client's own close may or may not be answered too
            peer.write(Channel.Open(), 1)
            while isinstance(peer.expect_any((Channel.CloseOk, Channel.OpenOk), 1), Channel.CloseOk):
                pass
            PeerChannel(peer, 1).close()


@pytest.mark.spec("amqp-0-9-1", "4.5")
def test_a_channel_error_leaves_the_other_channels_alone(connect: Connector) -> None:
    peer = connect()
    bad, good = peer.channel(1), peer.channel(2)
    queue = good.declare(exclusive=True)
    good.consume(queue)
    bad.publish(b"", "key", "no-such-exchange")
    bad.expect_close(404)
    good.publish(b"still here", queue)
    assert good.delivery().body == b"still here"
    peer.channel(1).round_trip()


@pytest.mark.spec("amqp-0-9-1", "channel.close")
def test_delivery_tags_begin_again_on_a_new_channel(connect: Connector) -> None:
    peer = connect()
    for _ in range(2):
        channel = peer.channel(1)
        queue = channel.declare(exclusive=True)
        for tag in (1, 2, 3):
            channel.publish(b"", queue)
            assert channel.take(queue).tag == tag
        channel.ack(0, multiple=True)
        channel.close()


@pytest.mark.spec("amqp-0-9-1", "4.3")
def test_a_delivery_to_a_consumer_on_another_channel(connect: Connector) -> None:
    peer = connect()
    publisher, consumer = peer.channel(300), peer.channel(7)
    queue = publisher.declare(exclusive=True)
    consumer.consume(queue)
    body = bytes(range(256)) * 2000
    publisher.publish(body, queue)
    message = consumer.delivery()
    assert message.body == body
    assert message.tag == 1
    consumer.ack(1)
    consumer.round_trip()
    assert publisher.counts(queue) == (0, 1)


@pytest.mark.spec("amqp-0-9", "access.request")
def test_access_request_is_answered_with_a_ticket(channel: PeerChannel) -> None:
    arguments = b"\x05/data" + b"\x1f"  # realm; exclusive, passive, active, write, read
    channel.peer.send(frame_bytes(METHOD, channel.number, b"\x00\x1e\x00\x0a" + arguments))
    answer = channel.peer.next_frame(channel.number)
    assert (answer.kind, answer.payload) == (METHOD, b"\x00\x1e\x00\x0b\x00\x01")
    channel.round_trip()
