"""Prefetch windows: per consumer, per channel, in bytes; and flow control by the client."""

import pytest
from pamqp.commands import Basic, Channel
from pamqp.common import FieldTable

from tests.support.amqp091.peer import Connector, PeerChannel


@pytest.fixture
def queue(channel: PeerChannel) -> str:
    """A queue with messages 0 to 9."""
    queue = channel.declare(exclusive=True)
    for number in range(10):
        channel.publish(b"%d" % number, queue)
    return queue


def bodies(channel: PeerChannel, count: int) -> list[int]:
    """The next deliveries, as numbers."""
    return [int(message.body) for message in channel.deliveries(count)]


@pytest.mark.spec("amqp-0-9-1", "basic.qos#prefetch-count")
def test_the_window_of_a_consumer(channel: PeerChannel, queue: str) -> None:
    channel.qos(3)
    channel.consume(queue)
    messages = channel.deliveries(3)
    channel.expect_silence()
    assert channel.counts(queue) == (7, 1)
    channel.ack(messages[1].tag)
    assert bodies(channel, 1) == [3]
    channel.ack(messages[2].tag, multiple=True)
    assert bodies(channel, 2) == [4, 5]
    channel.expect_silence()


@pytest.mark.spec("amqp-0-9-1", "basic.qos#prefetch-count")
def test_no_window_without_qos_and_with_zero(channel: PeerChannel, queue: str) -> None:
    tag = channel.consume(queue)
    assert bodies(channel, 10) == list(range(10))
    channel.cancel(tag)
    channel.recover_async()
    channel.qos(0)
    channel.consume(queue)
    assert sorted(bodies(channel, 10)) == list(range(10))


@pytest.mark.spec("amqp-0-9-1", "basic.qos#prefetch-count")
def test_no_ack_consumers_ignore_the_window(channel: PeerChannel, queue: str) -> None:
    channel.qos(1)
    channel.consume(queue, no_ack=True)
    assert bodies(channel, 10) == list(range(10))


@pytest.mark.spec("rabbitmq-extensions", "per_consumer_qos")
def test_each_consumer_has_its_own_window(channel: PeerChannel, queue: str) -> None:
    channel.qos(2)
    channel.consume(queue, "a")
    first = channel.deliveries(2)
    channel.consume(queue, "b")
    second = channel.deliveries(2)
    assert [(message.consumer_tag, int(message.body)) for message in second] == [("b", 2), ("b", 3)]
    channel.expect_silence()
    assert channel.counts(queue) == (6, 2)
    channel.ack(first[1].tag)
    third = channel.delivery()
    assert (third.consumer_tag, int(third.body)) == ("a", 4)
    channel.expect_silence()


@pytest.mark.spec("rabbitmq-extensions", "per_consumer_qos")
def test_the_window_of_the_whole_channel(channel: PeerChannel, queue: str) -> None:
    channel.qos(4, whole_channel=True)
    channel.consume(queue, "a")
    channel.consume(queue, "b")
    messages = channel.deliveries(4)
    channel.expect_silence()
    assert channel.counts(queue) == (6, 2)
    channel.ack(messages[0].tag)
    assert bodies(channel, 1) == [4]
    channel.expect_silence()


@pytest.mark.amqpd_only("RabbitMQ 3.10 goes beyond the channel's window")
@pytest.mark.spec("rabbitmq-extensions", "per_consumer_qos")
def test_the_windows_of_channel_and_consumer_limit_together(channel: PeerChannel, queue: str) -> None:
    channel.qos(5, whole_channel=True)
    channel.qos(2)
    channel.consume(queue, "a")
    assert bodies(channel, 2) == [0, 1]
    channel.expect_silence()
    channel.qos(9)
    channel.consume(queue, "b")
    assert bodies(channel, 3) == [2, 3, 4]
    channel.expect_silence()


@pytest.mark.spec("amqp-0-9-1", "basic.qos#prefetch-count")
def test_rejects_give_the_window_back(channel: PeerChannel, queue: str) -> None:
    channel.qos(2)
    channel.consume(queue)
    first = channel.deliveries(2)
    channel.reject(first[0].tag, requeue=False)
    assert bodies(channel, 1) == [2]
    channel.nack(first[1].tag, requeue=False)
    assert bodies(channel, 1) == [3]
    channel.expect_silence()


@pytest.mark.spec("amqp-0-9-1", "basic.qos#prefetch-count")
def test_get_is_not_limited_by_the_window(channel: PeerChannel, queue: str) -> None:
    channel.qos(1)
    for number in range(3):
        assert channel.take(queue).body == b"%d" % number


@pytest.mark.amqpd_only("RabbitMQ refuses prefetch_size with 540")
@pytest.mark.spec("amqp-0-9-1", "basic.qos#prefetch-size")
def test_the_window_in_bytes(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    for size in (60, 60, 500, 10):
        channel.publish(bytes(size), queue)
    channel.qos(0, size=100)
    channel.consume(queue)
    first = channel.delivery()
    assert len(first.body) == 60
    channel.expect_silence()
    channel.ack(first.tag)
    second = channel.delivery()
    channel.expect_silence()
    channel.ack(second.tag)
    large = channel.delivery()  # fits no window of 100, and is not stuck for ever
    assert len(large.body) == 500
    channel.expect_silence()
    channel.ack(large.tag)
    assert len(channel.delivery().body) == 10


@pytest.mark.spec("rabbitmq-extensions", "per_consumer_qos")
def test_a_change_is_for_consumers_to_come(channel: PeerChannel, queue: str) -> None:
    channel.qos(1)
    tag = channel.consume(queue, "a")
    assert bodies(channel, 1) == [0]
    channel.qos(3)
    channel.expect_silence()
    channel.consume(queue, "b")
    later = channel.deliveries(3)
    assert [(message.consumer_tag, int(message.body)) for message in later] == [
        ("b", 1),
        ("b", 2),
        ("b", 3),
    ]
    channel.ack(1)
    message = channel.delivery()
    assert (message.consumer_tag, int(message.body)) == ("a", 4), "its window is still one"
    channel.expect_silence()
    channel.cancel(tag)
    channel.consume(queue, "c")
    assert bodies(channel, 3) == [5, 6, 7], "what the former consumer holds is not in the new one's window"
    channel.ack(message.tag)
    channel.expect_silence()


@pytest.mark.amqpd_only("amqpd's own argument")
@pytest.mark.spec("rabbitmq-extensions", "per_consumer_qos")
def test_a_consumer_has_the_prefetch_of_its_argument(channel: PeerChannel, queue: str) -> None:
    channel.qos(1)
    channel.consume(queue, "a", arguments={"x-prefetch": 3})
    assert bodies(channel, 3) == [0, 1, 2]
    channel.expect_silence()
    channel.consume(queue, "b")
    assert bodies(channel, 1) == [3]
    channel.expect_silence()
    channel.consume(queue, "c", arguments={"x-prefetch": 0})
    assert bodies(channel, 6) == [4, 5, 6, 7, 8, 9], "0 is no limit"


@pytest.mark.amqpd_only("amqpd's own argument")
@pytest.mark.parametrize("value", [-1, 65536, "7", True])
@pytest.mark.spec("rabbitmq-extensions", "per_consumer_qos")
def test_an_invalid_prefetch_argument_is_refused(channel: PeerChannel, queue: str, value: object) -> None:
    arguments: FieldTable = {"x-prefetch": value}  # type: ignore[dict-item]
    text = channel.refused(Basic.Consume(queue=queue, arguments=arguments), 406)
    assert "x-prefetch" in text
    assert queue in text


@pytest.mark.parametrize("count", [1, 10])
@pytest.mark.spec("rabbitmq-extensions", "per_consumer_qos")
def test_the_window_of_the_channel_goes_round_queues(channel: PeerChannel, count: int) -> None:
    queues = [channel.declare(exclusive=True) for _ in range(3)]
    for _ in range(40):
        for queue in queues:
            channel.publish(b"0", queue)
    channel.qos(count, whole_channel=True)
    for queue in queues:
        channel.consume(queue, queue)
    shares = dict.fromkeys(queues, 0)
    for _ in range(99):
        message = channel.delivery()
        shares[str(message.consumer_tag)] += 1
        channel.ack(message.tag)
    assert max(shares.values()) - min(shares.values()) <= count + 1, shares


@pytest.mark.spec("rabbitmq-extensions", "per_consumer_qos")
def test_the_window_of_the_channel_goes_round_consumers_of_one_queue(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    for _ in range(100):
        channel.publish(b"0", queue)
    channel.qos(1, whole_channel=True)
    shares = {"a": 0, "b": 0}
    for tag in shares:
        channel.consume(queue, tag)
    for _ in range(100):
        message = channel.delivery()
        shares[str(message.consumer_tag)] += 1
        channel.ack(message.tag)
    assert max(shares.values()) - min(shares.values()) <= 2, shares


@pytest.mark.amqpd_only("RabbitMQ applies a window of the channel to later consumers only")
@pytest.mark.spec("amqp-0-9-1", "basic.qos")
def test_a_window_of_the_channel_takes_in_running_consumers(channel: PeerChannel, queue: str) -> None:
    channel.qos(2)
    channel.consume(queue, "a")
    first = channel.deliveries(2)
    channel.qos(3, whole_channel=True)
    channel.consume(queue, "b")
    assert [(message.consumer_tag, int(message.body)) for message in channel.deliveries(1)] == [("b", 2)]
    channel.expect_silence()
    channel.qos(1, whole_channel=True)
    channel.ack(first[1].tag, multiple=True)
    channel.expect_silence()  # a single delivery is unacknowledged, and a single one is allowed
    channel.qos(4, whole_channel=True)
    assert bodies(channel, 3) == [3, 4, 5]
    channel.expect_silence()
    channel.qos(0, whole_channel=True)
    channel.expect_silence()  # now each consumer's own window is full


@pytest.mark.amqpd_only("RabbitMQ refuses prefetch_size with 540")
@pytest.mark.spec("amqp-0-9-1", "basic.qos#prefetch-size")
def test_the_window_of_the_channel_in_bytes(channel: PeerChannel) -> None:
    queues = [channel.declare(exclusive=True) for _ in range(2)]
    for queue in queues:
        for size in (70, 30):
            channel.publish(bytes(size), queue)
    channel.qos(0, size=100, whole_channel=True)
    channel.consume(queues[0], "a")
    first = channel.deliveries(2)
    assert [len(message.body) for message in first] == [70, 30]
    channel.consume(queues[1], "b")
    channel.expect_silence()
    channel.ack(first[1].tag)
    channel.expect_silence()  # 30 are free, and 70 are next
    channel.ack(first[0].tag)
    assert [len(message.body) for message in channel.deliveries(2)] == [70, 30]


@pytest.mark.spec("amqp-0-9-1", "channel.flow")
def test_flow_true_is_answered(channel: PeerChannel) -> None:
    assert channel.call(Channel.Flow(True), Channel.FlowOk).active is True


@pytest.mark.amqpd_only("RabbitMQ refuses active=false with 540")
@pytest.mark.spec("amqp-0-9-1", "channel.flow")
def test_flow_false_pauses_deliveries(connect: Connector, channel: PeerChannel, queue: str) -> None:
    assert channel.call(Channel.Flow(False), Channel.FlowOk).active is False
    channel.consume(queue)
    channel.publish(b"10", queue)
    for _ in range(3):
        assert channel.counts(queue) == (11, 1)
    assert channel.call(Channel.Flow(True), Channel.FlowOk).active is True
    assert bodies(channel, 11) == list(range(11))


@pytest.mark.spec("amqp-0-9-1", "basic.qos")
def test_a_slow_consumer_does_not_hold_up_another(
    connect: Connector, channel: PeerChannel, name: str
) -> None:
    channel.declare(name, auto_delete=True)
    slow, quick = connect().channel(), connect().channel()
    slow.qos(1)
    slow.consume(name)
    quick.qos(1)
    quick.consume(name)
    for number in range(20):
        channel.publish(b"%d" % number, name)
    held = slow.delivery()
    received = []
    for _ in range(19):
        message = quick.delivery()
        received.append(int(message.body))
        quick.ack(message.tag)
    assert received == sorted(received)
    assert sorted([*received, int(held.body)]) == list(range(20))
    slow.ack(held.tag)
    slow.round_trip()


@pytest.mark.spec("amqp-0-9-1", "3.1.6")
def test_equal_consumers_take_turns(connect: Connector, channel: PeerChannel, name: str) -> None:
    channel.declare(name, auto_delete=True)
    consumers = [connect().channel() for _ in range(3)]
    for consumer in consumers:
        consumer.qos(10)
        consumer.consume(name)
    for number in range(30):
        channel.publish(b"%d" % number, name)
    received = [bodies(consumer, 10) for consumer in consumers]
    assert sorted(number for numbers in received for number in numbers) == list(range(30))
    assert all(numbers == sorted(numbers) for numbers in received)
