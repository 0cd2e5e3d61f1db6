"""Queues that serve a single consumer at a time. [RabbitMQ single active consumer]"""

import pytest
from pamqp.commands import Basic, Queue
from pamqp.common import FieldTable

from tests.support.amqp091.peer import Connector, PeerChannel

SINGLE: FieldTable = {"x-single-active-consumer": True}


@pytest.fixture
def queue(channel: PeerChannel, name: str) -> str:
    """A queue with a single active consumer, deleted with its last consumer."""
    return channel.declare(name, auto_delete=True, arguments=SINGLE)


def publish(channel: PeerChannel, queue: str, *numbers: int) -> None:
    for number in numbers:
        channel.publish(b"%d" % number, queue)
    channel.round_trip()


def taken(channel: PeerChannel, count: int) -> list[tuple[int, bool]]:
    """The next deliveries: number, redelivered."""
    return [(int(message.body), message.redelivered) for message in channel.deliveries(count)]


@pytest.mark.spec("rabbitmq-extensions", "single_active_consumer")
def test_the_first_consumer_gets_all_messages(connect: Connector, channel: PeerChannel, queue: str) -> None:
    consumers = [connect().channel() for _ in range(3)]
    for consumer in consumers:
        consumer.consume(queue)
    publish(channel, queue, *range(20))
    assert taken(consumers[0], 20) == [(number, False) for number in range(20)]
    for consumer in consumers[1:]:
        consumer.expect_silence()
    assert channel.counts(queue) == (0, 3)


@pytest.mark.spec("rabbitmq-extensions", "single_active_consumer")
def test_the_next_consumer_becomes_active_when_the_connection_is_lost(
    connect: Connector, channel: PeerChannel, queue: str
) -> None:
    consumers = [connect().channel() for _ in range(3)]
    for consumer in consumers:
        consumer.qos(3)
        consumer.consume(queue)
    publish(channel, queue, *range(5))
    first = consumers[0].deliveries(3)
    consumers[0].ack(first[1].tag)
    consumers[0].round_trip()
    consumers[0].peer.drop()
    assert taken(consumers[1], 3) == [(0, True), (2, True), (3, True)]
    consumers[1].close()
    assert taken(consumers[2], 3) == [(0, True), (2, True), (3, True)]


@pytest.mark.amqpd_only("RabbitMQ's classic queues do not wait")
@pytest.mark.spec("amqpd", "x-single-active-consumer")
def test_a_cancelled_consumer_drains_first(connect: Connector, channel: PeerChannel, queue: str) -> None:
    old, new = connect().channel(), connect().channel()
    old.qos(3)
    tag = old.consume(queue)
    new.consume(queue)
    publish(channel, queue, *range(5))
    held = old.deliveries(3)
    old.cancel(tag)
    new.expect_silence()
    old.ack(held[0].tag)
    old.nack(held[1].tag)
    old.round_trip()
    new.expect_silence()
    assert channel.counts(queue) == (3, 1)
    old.ack(held[2].tag)
    assert taken(new, 3) == [(1, True), (3, False), (4, False)]


@pytest.mark.amqpd_only("RabbitMQ's classic queues do not wait")
@pytest.mark.spec("amqpd", "x-single-active-consumer")
def test_the_channel_of_a_cancelled_consumer_ends(
    connect: Connector, channel: PeerChannel, queue: str
) -> None:
    old, new = connect().channel(), connect().channel()
    tag = old.consume(queue)
    new.consume(queue)
    publish(channel, queue, 0, 1)
    old.deliveries(2)
    old.cancel(tag)
    publish(channel, queue, 2)
    new.expect_silence()
    old.close()
    assert taken(new, 3) == [(0, True), (1, True), (2, False)]


@pytest.mark.amqpd_only("RabbitMQ's classic queues do not wait")
@pytest.mark.spec("amqpd", "x-single-active-consumer")
def test_a_consumer_that_starts_again_waits_for_its_own_acknowledgement(
    channel: PeerChannel, queue: str
) -> None:
    consumer = channel.peer.channel(2)
    spare = channel.peer.channel(3)
    consumer.consume(queue, "tag")
    spare.consume(queue)
    publish(channel, queue, 0)
    held = consumer.delivery()
    consumer.cancel("tag")
    consumer.consume(queue, "tag", arguments={"x-priority": 1})
    publish(channel, queue, 1)
    consumer.expect_silence()
    consumer.recover()
    assert taken(consumer, 2) == [(0, True), (1, False)]
    assert held.tag == 1
    spare.expect_silence()


@pytest.mark.amqpd_only("RabbitMQ's classic queues ignore priorities here")
@pytest.mark.spec("amqpd", "x-single-active-consumer")
def test_a_higher_priority_takes_over(connect: Connector, channel: PeerChannel, queue: str) -> None:
    low, equal, high = (connect().channel() for _ in range(3))
    low.qos(2)
    low.consume(queue)
    publish(channel, queue, *range(3))
    held = low.deliveries(2)
    equal.consume(queue)
    high.consume(queue, arguments={"x-priority": 1})
    high.expect_silence()
    low.ack(held[1].tag, multiple=True)
    assert taken(high, 1) == [(2, False)]
    publish(channel, queue, 3)
    assert taken(high, 1) == [(3, False)]
    low.expect_silence()
    high.close()
    assert taken(low, 2) == [(2, True), (3, True)]
    equal.expect_silence()


@pytest.mark.amqpd_only("RabbitMQ's quorum queues refuse this, its classic ones do not")
@pytest.mark.spec("rabbitmq-extensions", "single_active_consumer")
def test_basic_get_is_refused(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True, arguments=SINGLE)
    assert channel.refused(Basic.Get(queue=queue), 405) == (
        f"RESOURCE_LOCKED - cannot obtain access to locked queue '{queue}' in vhost '/'. basic.get "
        "operations are not supported by classic queues with single active consumer"
    )


@pytest.mark.spec("rabbitmq-extensions", "single_active_consumer")
def test_an_exclusive_consumer_is_refused(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True, arguments=SINGLE)
    text = channel.refused(Basic.Consume(queue=queue, exclusive=True), 403)
    assert text == f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"


@pytest.mark.spec("rabbitmq-extensions", "single_active_consumer")
def test_the_argument_is_a_boolean_and_part_of_the_queue(channel: PeerChannel, name: str) -> None:
    command = Queue.Declare(queue=name, arguments={"x-single-active-consumer": "yes"})
    assert channel.refused(command, 406).startswith("PRECONDITION_FAILED - invalid arg")
    channel = channel.peer.channel(1)
    channel.declare(name, exclusive=True, arguments=SINGLE)
    channel.declare(name, exclusive=True, arguments=SINGLE)
    text = channel.refused(Queue.Declare(queue=name, exclusive=True), 406)
    assert "inequivalent arg 'x-single-active-consumer'" in text


@pytest.mark.spec("rabbitmq-extensions", "single_active_consumer")
def test_without_acknowledgements_the_next_consumer_becomes_active_at_once(
    connect: Connector, channel: PeerChannel, queue: str
) -> None:
    old, new = connect().channel(), connect().channel()
    tag = old.consume(queue, no_ack=True)
    new.consume(queue, no_ack=True)
    publish(channel, queue, 0)
    assert taken(old, 1) == [(0, False)]
    old.cancel(tag)
    publish(channel, queue, 1)
    assert taken(new, 1) == [(1, False)]


@pytest.mark.amqpd_only("RabbitMQ has no browsers")
@pytest.mark.spec("amqpd", "x-browse")
def test_browsers_look_on(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True, arguments=SINGLE)
    publish(channel, queue, 0)
    browsers = [channel.peer.channel(number) for number in (2, 3)]
    for browser in browsers:
        browser.consume(queue, no_ack=True, arguments={"x-browse": True, "x-priority": 9})
        assert taken(browser, 1) == [(0, False)]
    channel.consume(queue)
    assert taken(channel, 1) == [(0, False)]
