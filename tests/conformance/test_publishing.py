"""basic.publish with mandatory and immediate, and publisher confirms."""

import pytest
from pamqp.commands import Basic, Confirm, Queue

from tests.support.amqp091.peer import Connector, PeerChannel

PERSISTENT = Basic.Properties(delivery_mode=2)


@pytest.mark.spec("amqp-0-9-1", "basic.publish#mandatory")
def test_an_unroutable_mandatory_message_comes_back(channel: PeerChannel, name: str) -> None:
    properties = Basic.Properties(content_type="text/plain", headers={"key": "value"}, message_id="id")
    channel.publish(b"body", name, "amq.direct", properties, mandatory=True)
    returned = channel.returned()
    assert isinstance(returned.method, Basic.Return)
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key) == ("amq.direct", name)
    assert returned.body == b"body"
    assert dict(returned.properties) == dict(properties)


@pytest.mark.spec("amqp-0-9-1", "basic.publish#mandatory")
@pytest.mark.parametrize("size", [0, 1, 131072 - 8, 300_000])
def test_bodies_of_every_size_come_back(channel: PeerChannel, name: str, size: int) -> None:
    channel.publish(bytes(size), name, mandatory=True)
    assert channel.returned().body == bytes(size)


@pytest.mark.spec("amqp-0-9-1", "basic.publish#mandatory")
def test_routed_and_not_mandatory_messages_are_not_returned(channel: PeerChannel, name: str) -> None:
    queue = channel.declare(exclusive=True)
    channel.publish(b"dropped", name)
    channel.publish(b"routed", queue, mandatory=True)
    channel.expect_silence()
    assert channel.take(queue).body == b"routed"


@pytest.mark.spec("rabbitmq-extensions", "publisher confirms")
@pytest.mark.parametrize("properties", [None, PERSISTENT], ids=["transient", "persistent"])
def test_the_return_comes_before_the_ack(
    channel: PeerChannel, durable_queue: str, properties: Basic.Properties | None
) -> None:
    queue = durable_queue
    channel.confirm_select()
    for tag in range(1, 20, 2):
        channel.publish(b"routed", queue, properties=properties, mandatory=True)
        channel.publish(b"unroutable", "nowhere." + queue, properties=properties, mandatory=True)
        acked = 0
        returned = False
        while acked <= tag:
            command = channel.peer.expect_any((Basic.Ack, Basic.Return), channel.number)
            if isinstance(command, Basic.Return):
                assert channel.peer.expect_content(command, channel.number).body == b"unroutable"
                returned = True
            else:
                assert isinstance(command, Basic.Ack)
                assert command.delivery_tag is not None
                acked = max(acked, command.delivery_tag)
                assert returned or acked < tag + 1
        assert returned


@pytest.mark.spec("rabbitmq-extensions", "publisher confirms")
@pytest.mark.parametrize("properties", [None, PERSISTENT], ids=["transient", "persistent"])
def test_every_publish_is_confirmed_once_and_in_order(
    channel: PeerChannel, durable_queue: str, properties: Basic.Properties | None
) -> None:
    queue = durable_queue
    channel.confirm_select()
    messages = [
        channel.encode_publish(b"%d" % number, queue, properties=properties) for number in range(3000)
    ]
    channel.peer.send(b"".join(messages))
    channel.expect_confirms(3000)
    channel.expect_silence()
    assert channel.counts(queue) == (3000, 0)


@pytest.mark.spec("rabbitmq-extensions", "publisher confirms")
def test_confirms_of_a_mixed_stream(channel: PeerChannel, durable_queue: str) -> None:
    """Transient, persistent, unroutable and empty publishes: each is confirmed once, none nacked."""
    queue = durable_queue
    channel.call(Queue.Bind(queue=queue, exchange="amq.fanout"), Queue.BindOk)
    channel.confirm_select()
    variants = [
        channel.encode_publish(b"transient", queue),
        channel.encode_publish(b"persistent", queue, properties=PERSISTENT),
        channel.encode_publish(b"unroutable", "nowhere." + queue),
        channel.encode_publish(b"", queue, properties=PERSISTENT),
        channel.encode_publish(b"fanned out", "", "amq.fanout", PERSISTENT),
        channel.encode_publish(bytes(200_000), queue, properties=PERSISTENT),
    ]
    channel.peer.send(b"".join(variants * 20))
    channel.expect_confirms(120)
    channel.expect_silence()
    assert channel.counts(queue) == (100, 0)


@pytest.mark.spec("rabbitmq-extensions", "publisher confirms")
def test_tags_count_from_the_select_and_per_channel(connect: Connector, channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    channel.publish(b"before", queue)
    channel.confirm_select()
    other = channel.peer.channel(2)
    other.confirm_select()
    for _ in range(2):
        channel.publish(b"", queue)
        other.publish(b"", queue)
    channel.expect_confirms(2)
    other.expect_confirms(2)
    channel.confirm_select()  # again: changes nothing
    channel.publish(b"", queue)
    channel.expect_confirms(3, first=3)


@pytest.mark.spec("rabbitmq-extensions", "publisher confirms")
def test_confirm_select_nowait(channel: PeerChannel) -> None:
    channel.write(Confirm.Select(nowait=True))
    channel.publish(b"", "nowhere")
    channel.expect_confirms(1)


@pytest.mark.spec("rabbitmq-extensions", "publisher confirms")
def test_publishes_are_confirmed_when_their_queue_is_deleted_before_the_sync(
    connect: Connector, channel: PeerChannel, name: str
) -> None:
    other = connect().channel()
    channel.confirm_select()
    for turn in range(10):
        other.declare(name, durable=True)
        messages = [channel.encode_publish(b"x" * 100, name, properties=PERSISTENT) for _ in range(100)]
        channel.peer.send(b"".join(messages))
        other.call(Queue.Delete(queue=name), Queue.DeleteOk)
        channel.expect_confirms(100 * (turn + 1), first=100 * turn + 1)


@pytest.mark.spec("amqp-0-9-1", "basic.publish#exchange")
def test_publishing_to_a_missing_exchange_closes_the_channel_with_404(
    channel: PeerChannel, name: str
) -> None:
    channel.publish(b"body", "key", name)
    assert channel.expect_close(404) == f"NOT_FOUND - no exchange '{name}' in vhost '/'"


@pytest.mark.spec("amqp-0-9-1", "4.5")
def test_frames_behind_a_channel_error_are_ignored_until_the_close_is_answered(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    channel.publish(b"", "key", "no-such-exchange")
    channel.publish(bytes(200_000), queue)
    channel.publish(b"ignored", queue)
    channel.expect_close(404)
    again = channel.peer.channel(1)
    assert again.counts(queue) == (0, 0)


@pytest.mark.amqpd_only("RabbitMQ refuses immediate with 540")
@pytest.mark.spec("amqp-0-9-1", "basic.publish#immediate")
def test_immediate_without_a_consumer_comes_back(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    channel.publish(b"at once", queue, immediate=True)
    returned = channel.returned()
    assert isinstance(returned.method, Basic.Return)
    assert (returned.method.reply_code, returned.method.reply_text) == (313, "NO_CONSUMERS")
    assert returned.body == b"at once"
    assert channel.counts(queue) == (0, 0)


@pytest.mark.amqpd_only("RabbitMQ refuses immediate with 540")
@pytest.mark.spec("amqp-0-9-1", "basic.publish#immediate")
@pytest.mark.parametrize("properties", [None, PERSISTENT], ids=["transient", "persistent"])
def test_immediate_with_a_ready_consumer_is_delivered(
    connect: Connector, channel: PeerChannel, name: str, properties: Basic.Properties | None
) -> None:
    channel.declare(name, durable=True)
    consumer = connect().channel()
    consumer.qos(1)
    consumer.consume(name)
    channel.confirm_select()
    channel.publish(b"first", name, properties=properties, immediate=True)
    channel.expect_confirms(1)
    message = consumer.delivery()
    assert message.body == b"first"
    channel.publish(b"no credit left", name, properties=properties, immediate=True)
    assert channel.returned().body == b"no credit left"
    channel.expect_confirms(2, first=2)
    consumer.ack(message.tag)
    consumer.round_trip()
    channel.publish(b"third", name, properties=properties, immediate=True)
    channel.expect_confirms(3, first=3)
    assert consumer.delivery().body == b"third"
    consumer.close()
    channel.call(Queue.Delete(queue=name), Queue.DeleteOk)


@pytest.mark.amqpd_only("RabbitMQ refuses immediate with 540")
@pytest.mark.spec("amqp-0-9-1", "basic.publish#immediate")
def test_immediate_and_mandatory_without_a_route_is_312(channel: PeerChannel, name: str) -> None:
    channel.publish(b"body", name, mandatory=True, immediate=True)
    returned = channel.returned().method
    assert isinstance(returned, Basic.Return)
    assert returned.reply_code == 312


@pytest.mark.spec("rabbitmq-extensions", "publisher confirms")
def test_confirms_reach_a_publisher_that_also_consumes(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    channel.confirm_select()
    channel.consume(queue, no_ack=True)
    channel.peer.send(b"".join(channel.encode_publish(b"%d" % number, queue) for number in range(200)))
    confirmed: set[int] = set()
    received: list[int] = []
    while len(confirmed) < 200 or len(received) < 200:
        command = channel.peer.expect_any((Basic.Ack, Basic.Deliver), channel.number)
        if isinstance(command, Basic.Deliver):
            received.append(int(channel.peer.expect_content(command, channel.number).body))
        else:
            assert isinstance(command, Basic.Ack)
            assert command.delivery_tag is not None
            first = 1 if command.multiple else command.delivery_tag
            confirmed.update(range(first, command.delivery_tag + 1))
    assert received == list(range(200))


@pytest.mark.spec("rabbitmq-extensions", "publisher confirms")
def test_a_confirmed_message_can_be_got_from_another_connection(
    connect: Connector, channel: PeerChannel, name: str
) -> None:
    """Visibility: after the confirm, and after any reply on the publishing channel. [amqp-0-9-1 4.4]"""
    channel.declare(name, auto_delete=True)
    other = connect().channel()
    for number in range(50):
        channel.publish(b"%d" % number, name)
        channel.round_trip()
        message = other.get(name)
        assert message is not None
        assert int(message.body) == number
