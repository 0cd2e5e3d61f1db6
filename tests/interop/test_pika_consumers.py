"""Consumers of an unmodified pika on single-active queues, and with a time-out for settlements."""

from collections.abc import Iterator

import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.pika_connection import Dial
from tests.interop.pika_worker import Worker

SINGLE = {"x-single-active-consumer": True}


@pytest.fixture
def publisher(pika_dial: Dial, name: str) -> Iterator[BlockingChannel]:
    """A channel with confirms, and the queue `name` with a single active consumer."""
    channel = pika_dial().channel()
    channel.confirm_delivery()
    channel.queue_declare(name, arguments=SINGLE)
    yield channel
    channel.queue_delete(name)


def test_workers_follow_one_another_in_order(pika_dial: Dial, publisher: BlockingChannel, name: str) -> None:
    workers = [Worker(pika_dial, name) for _ in range(3)]
    for number in range(30):
        publisher.basic_publish("", name, b"%d" % number)
    done: list[int] = []
    for worker in workers:
        for _ in range(10):
            ((tag, _, number),) = worker.receive(1)
            worker.channel.basic_ack(tag)
            done.append(number)
        others = [other for other in workers if other is not worker and other.connection.is_open]
        assert [other.look() for other in others] == [0] * len(others)
        worker.connection.close()  # with the rest of its window unsettled
    assert done == list(range(30))


@pytest.mark.amqpd_only("RabbitMQ's classic queues do not wait")
def test_a_cancelled_worker_drains(pika_dial: Dial, publisher: BlockingChannel, name: str) -> None:
    old, new = Worker(pika_dial, name), Worker(pika_dial, name)
    for number in range(7):
        publisher.basic_publish("", name, b"%d" % number)
    held = old.receive(5)
    old.channel.basic_cancel(old.tag)
    assert new.look() == 0
    old.channel.basic_ack(held[1][0])
    old.channel.basic_nack(held[0][0], requeue=True)
    old.channel.basic_qos(prefetch_count=5)
    assert new.look() == 0
    old.channel.basic_ack(held[4][0], multiple=True)
    assert [(again, number) for _, again, number in new.receive(3)] == [(True, 0), (False, 5), (False, 6)]


@pytest.mark.amqpd_only("RabbitMQ's classic queues ignore priorities here")
def test_a_more_important_worker_takes_over(pika_dial: Dial, publisher: BlockingChannel, name: str) -> None:
    low = Worker(pika_dial, name)
    for number in range(6):
        publisher.basic_publish("", name, b"%d" % number)
    held = low.receive(5)
    high = Worker(pika_dial, name, priority=10)
    assert high.look() == 0
    low.channel.basic_ack(held[-1][0], multiple=True)
    assert [number for _, _, number in high.receive(1)] == [5]


@pytest.mark.amqpd_only("RabbitMQ's classic queues allow basic.get here")
def test_refused_consumers(pika_dial: Dial, publisher: BlockingChannel, name: str) -> None:
    connection = pika_dial()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as locked:
        connection.channel().basic_get(name)
    assert locked.value.reply_code == 405
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        connection.channel().basic_consume(name, lambda *_: None, exclusive=True)
    assert refused.value.reply_code == 403


@pytest.mark.amqpd_only("RabbitMQ closes the channel")
def test_a_slow_worker_keeps_its_channel(pika_dial: Dial, name: str) -> None:
    channel = pika_dial().channel()
    channel.queue_declare(name, auto_delete=True)
    worker = Worker(pika_dial, name, consumer_timeout=1000)
    for number in range(2):
        channel.basic_publish("", name, b"%d" % number)
    (late, _, _), (quick, _, _) = worker.receive(2)
    worker.channel.basic_ack(quick)
    ((tag, again, number),) = worker.receive(1)
    assert (again, number) == (True, 0)
    worker.channel.basic_ack(late)
    worker.channel.basic_reject(late)
    worker.channel.basic_ack(tag)
    assert worker.look() == 0
    assert worker.channel.is_open
    assert channel.queue_declare(name, passive=True).method.message_count == 0
