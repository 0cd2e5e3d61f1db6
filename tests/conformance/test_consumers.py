"""basic.consume: tags, priorities, browsers, exclusive consumers, and consumers whose queue goes."""

import pytest
from pamqp.commands import Basic, Queue
from pamqp.common import FieldTable

from tests.support.amqp091.peer import CAPABILITIES, Connector, PeerChannel


def numbers(channel: PeerChannel, count: int) -> list[int]:
    """The next deliveries, as numbers."""
    return [int(message.body) for message in channel.deliveries(count)]


@pytest.mark.spec("amqp-0-9-1", "basic.deliver")
def test_a_delivery_has_its_consumer_tag_exchange_and_routing_key(channel: PeerChannel, name: str) -> None:
    queue = channel.declare(exclusive=True)
    channel.call(Queue.Bind(queue=queue, exchange="amq.topic", routing_key=f"{name}.*"), Queue.BindOk)
    channel.publish(b"body", f"{name}.key", "amq.topic")
    channel.consume(queue, "my-tag")
    method = channel.delivery().method
    assert isinstance(method, Basic.Deliver)
    assert dict(method) == {
        "consumer_tag": "my-tag",
        "delivery_tag": 1,
        "redelivered": False,
        "exchange": "amq.topic",
        "routing_key": f"{name}.key",
    }


@pytest.mark.spec("amqp-0-9-1", "basic.consume#consumer-tag")
def test_tags_chosen_by_the_broker(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    tags = {channel.consume(queue) for _ in range(5)}
    assert len(tags) == 5
    assert all(tag.startswith("amq.ctag-") for tag in tags)


@pytest.mark.spec("amqp-0-9-1", "basic.consume#consumer-tag")
def test_a_tag_is_free_again_after_the_cancel_and_local_to_its_channel(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    other = channel.peer.channel(2)
    channel.consume(queue, "tag")
    other.consume(queue, "tag")
    channel.cancel("tag")
    assert channel.counts(queue) == (0, 1)
    channel.consume(queue, "tag")
    assert channel.counts(queue) == (0, 2)


@pytest.mark.spec("amqp-0-9-1", "basic.cancel")
def test_cancelling_an_unknown_tag_is_no_error(channel: PeerChannel) -> None:
    reply = channel.call(Basic.Cancel(consumer_tag="unknown"), Basic.CancelOk)
    assert reply.consumer_tag == "unknown"


@pytest.mark.spec("amqp-0-9-1", "basic.cancel")
def test_nothing_is_delivered_after_the_cancel(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    channel.consume(queue, "tag")
    channel.cancel("tag")
    channel.publish(b"stays", queue)
    channel.expect_silence()
    assert channel.counts(queue) == (1, 0)


@pytest.mark.spec("amqp-0-9-1", "basic.consume#no-wait")
def test_consume_and_cancel_without_replies(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    channel.write(Basic.Consume(queue=queue, consumer_tag="tag", nowait=True))
    channel.publish(b"body", queue)
    assert channel.delivery().body == b"body"
    channel.write(Basic.Cancel(consumer_tag="tag", nowait=True))
    assert channel.counts(queue) == (0, 0)


@pytest.mark.spec("amqp-0-9-1", "basic.consume")
def test_consuming_from_a_missing_queue_closes_the_channel_with_404(channel: PeerChannel, name: str) -> None:
    text = channel.refused(Basic.Consume(queue=name), 404)
    assert text == f"NOT_FOUND - no queue '{name}' in vhost '/'"


@pytest.mark.spec("amqp-0-9-1", "basic.consume#no-local")
def test_no_local_is_accepted_and_ignored(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    channel.call(Basic.Consume(queue=queue, no_local=True), Basic.ConsumeOk)
    channel.publish(b"own", queue)
    assert channel.delivery().body == b"own"


@pytest.mark.spec("amqp-0-9-1", "basic.consume#exclusive")
def test_consuming_beside_an_exclusive_consumer_is_refused_with_403(
    connect: Connector, channel: PeerChannel, name: str
) -> None:
    channel.declare(name)
    channel.consume(name, "only", exclusive=True)
    other = connect().channel()
    text = other.refused(Basic.Consume(queue=name), 403)
    assert text == f"ACCESS_REFUSED - queue '{name}' in vhost '/' in exclusive use"
    other = other.peer.channel(1)
    text = other.refused(Basic.Consume(queue=name, exclusive=True), 403)
    assert text == f"ACCESS_REFUSED - queue '{name}' in vhost '/' in exclusive use"
    channel.cancel("only")
    other = other.peer.channel(1)
    other.consume(name, "other")
    text = channel.refused(Basic.Consume(queue=name, exclusive=True), 403)
    assert text == f"ACCESS_REFUSED - queue '{name}' in vhost '/' in exclusive use"
    other.call(Queue.Delete(queue=name), Queue.DeleteOk)


@pytest.mark.spec("rabbitmq-extensions", "consumer_priorities")
def test_higher_priority_first_lower_when_it_has_no_credit(connect: Connector, name: str) -> None:
    publisher = connect().channel()
    publisher.declare(name, exclusive=True)
    publisher.confirm_select()
    low, high, middle = (publisher.peer.channel(number) for number in (2, 3, 4))
    for consumer, priority in ((low, 0), (high, 10), (middle, 5)):
        consumer.qos(2)
        consumer.consume(name, arguments={"x-priority": priority})
    for number in range(7):
        publisher.publish(b"%d" % number, name)
        publisher.expect_confirms(number + 1, first=number + 1)
    first = high.deliveries(2)
    assert [int(message.body) for message in first] == [0, 1]
    assert numbers(middle, 2) == [2, 3]
    assert numbers(low, 2) == [4, 5]
    assert publisher.counts(name) == (1, 3)
    high.ack(first[0].tag)
    assert numbers(high, 1) == [6]
    low.expect_silence()


@pytest.mark.spec("rabbitmq-extensions", "consumer_priorities")
def test_negative_and_default_priorities(connect: Connector, name: str) -> None:
    publisher = connect().channel()
    publisher.declare(name, exclusive=True)
    publisher.confirm_select()
    lowest, default = publisher.peer.channel(2), publisher.peer.channel(3)
    for consumer, arguments in ((lowest, {"x-priority": -5}), (default, None)):
        consumer.qos(3)
        consumer.consume(name, arguments=arguments)  # type: ignore[arg-type]
    for number in range(4):
        publisher.publish(b"%d" % number, name)
        publisher.expect_confirms(number + 1, first=number + 1)
    assert numbers(default, 3) == [0, 1, 2]
    assert numbers(lowest, 1) == [3]


@pytest.mark.spec("rabbitmq-extensions", "consumer_priorities")
def test_a_priority_must_be_a_number(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    command = Basic.Consume(queue=queue, arguments={"x-priority": "high"})
    assert channel.refused(command, 406).startswith("PRECONDITION_FAILED - ")


BROWSE: FieldTable = {"x-browse": True}


@pytest.mark.amqpd_only("RabbitMQ has no browsers")
@pytest.mark.spec("amqpd", "x-browse")
def test_a_browser_gets_all_messages_and_leaves_them_ready(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    for number in range(5):
        channel.publish(b"%d" % number, queue)
    browsers = [channel.peer.channel(2), channel.peer.channel(3)]
    for browser in browsers:
        browser.consume(queue, no_ack=True, arguments=BROWSE)
        assert numbers(browser, 5) == [0, 1, 2, 3, 4]
    assert channel.counts(queue)[0] == 5
    channel.publish(b"5", queue)
    for browser in browsers:
        assert numbers(browser, 1) == [5]
        browser.expect_silence()
    taken = [channel.take(queue) for _ in range(6)]
    assert [(int(message.body), message.redelivered) for message in taken] == [(n, False) for n in range(6)]


@pytest.mark.amqpd_only("RabbitMQ has no browsers")
@pytest.mark.spec("amqpd", "x-browse")
def test_a_browser_beside_a_consumer(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    channel.consume(queue, "taker")
    browser = channel.peer.channel(2)
    browser.consume(queue, "browser", no_ack=True, arguments=BROWSE)
    for number in range(3):
        channel.publish(b"%d" % number, queue)
    assert numbers(channel, 3) == [0, 1, 2]
    browser.cancel("browser")
    assert channel.counts(queue) == (0, 1)


@pytest.mark.amqpd_only("RabbitMQ has no browsers")
@pytest.mark.spec("amqpd", "x-browse")
def test_a_browser_on_a_priority_queue_sees_each_message_once(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True, arguments={"x-max-priority": 5})
    for number, priority in enumerate((1, 1, 3)):
        channel.publish(b"%d" % number, queue, properties=Basic.Properties(priority=priority))
    browser = channel.peer.channel(2)
    browser.consume(queue, no_ack=True, arguments=BROWSE)
    assert numbers(browser, 3) == [2, 0, 1]
    channel.publish(b"3", queue, properties=Basic.Properties(priority=4))
    channel.publish(b"4", queue, properties=Basic.Properties(priority=0))
    assert sorted(numbers(browser, 2)) == [3, 4]
    browser.expect_silence()
    assert channel.counts(queue)[0] == 5


@pytest.mark.spec("rabbitmq-extensions", "consumer_cancel_notify")
def test_consumers_are_told_when_their_queue_is_deleted(
    connect: Connector, channel: PeerChannel, name: str
) -> None:
    channel.declare(name)
    consumer = connect().channel()
    consumer.consume(name, "one")
    consumer.consume(name, "two")
    channel.publish(b"held", name)
    held = consumer.delivery()
    channel.call(Queue.Delete(queue=name), Queue.DeleteOk)
    cancelled = [consumer.expect(Basic.Cancel) for _ in range(2)]
    assert {cancel.consumer_tag for cancel in cancelled} == {"one", "two"}
    assert all(cancel.nowait for cancel in cancelled)
    consumer.ack(held.tag)  # the channel still knows a delivery of the deleted queue
    consumer.round_trip()
    consumer.consume(consumer.declare(exclusive=True), "one")


@pytest.mark.spec("rabbitmq-extensions", "consumer_cancel_notify")
@pytest.mark.parametrize("durable", [False, True], ids=["transient", "durable"])
def test_a_client_that_deletes_a_queue_is_answered_before_its_consumers_are_cancelled(
    channel: PeerChannel, name: str, durable: bool
) -> None:
    channel.declare(name, durable=durable)
    channel.consume(name, "mine")
    channel.write(Queue.Delete(queue=name))
    channel.expect(Queue.DeleteOk)
    assert channel.expect(Basic.Cancel).consumer_tag == "mine"
    channel.declare(name, durable=durable)
    channel.consume(name, "mine")
    channel.write(Queue.Delete(queue=name, nowait=True))
    assert channel.expect(Basic.Cancel).consumer_tag == "mine"
    channel.round_trip()


@pytest.mark.spec("rabbitmq-extensions", "consumer_cancel_notify")
def test_consumers_of_an_exclusive_queue_are_told_on_every_channel(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    consumer, deleter = channel.peer.channel(2), channel.peer.channel(3)
    consumer.consume(queue, "tag", exclusive=True)
    deleter.call(Queue.Delete(queue=queue), Queue.DeleteOk)
    assert consumer.expect(Basic.Cancel).consumer_tag == "tag"
    reply = consumer.call(Basic.Cancel(consumer_tag="tag"), Basic.CancelOk)
    assert reply.consumer_tag == "tag"


@pytest.mark.spec("rabbitmq-extensions", "consumer_cancel_notify")
def test_clients_that_do_not_ask_are_not_told(connect: Connector, channel: PeerChannel, name: str) -> None:
    channel.declare(name)
    silent = {key: value for key, value in CAPABILITIES.items() if key != "consumer_cancel_notify"}
    consumer = connect(capabilities=silent).channel()
    consumer.consume(name)
    channel.call(Queue.Delete(queue=name), Queue.DeleteOk)
    consumer.expect_silence()


@pytest.mark.spec("amqp-0-9-1", "3.1.3")
def test_a_priority_queue_delivers_the_highest_first(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True, arguments={"x-max-priority": 5})
    priorities = [0, 9, 3, None, 5, 1, 3, 255, 2]
    for number, priority in enumerate(priorities):
        channel.publish(b"%d" % number, queue, properties=Basic.Properties(priority=priority))
    first = channel.take(queue)
    assert int(first.body) == 1  # 9 counts as 5
    channel.reject(first.tag)
    order = [int(channel.take(queue).body) for _ in priorities]
    assert order == [1, 4, 7, 2, 6, 8, 5, 0, 3]


@pytest.mark.spec("amqp-0-9-1", "4.7")
def test_order_through_one_queue_to_one_consumer(connect: Connector, channel: PeerChannel, name: str) -> None:
    channel.declare(name, auto_delete=True)
    consumer = connect().channel()
    consumer.qos(100)
    consumer.consume(name)
    channel.peer.send(b"".join(channel.encode_publish(b"%d" % number, name) for number in range(2000)))
    received = []
    for _ in range(2000):
        message = consumer.delivery()
        received.append(int(message.body))
        if len(received) % 50 == 0:
            consumer.ack(message.tag, multiple=True)
    assert received == list(range(2000))
