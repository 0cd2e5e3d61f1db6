"""Exclusive consumers as a pika user sees them."""

from collections.abc import Iterator

import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.api import Api
from tests.daemon import PATIENCE_S
from tests.interop.pika_worker import Dial, Worker

pytestmark = pytest.mark.amqpd_only("ActiveMQ's exclusive consumers are not in RabbitMQ")


@pytest.fixture
def publisher(dial: Dial, name: str) -> Iterator[BlockingChannel]:
    """A channel with confirms, and the queue `name`."""
    channel = dial().channel()
    channel.confirm_delivery()
    channel.queue_declare(name)
    yield channel
    channel.queue_delete(name)


def publish(channel: BlockingChannel, queue: str, *numbers: int) -> None:
    for number in numbers:
        channel.basic_publish("", queue, b"%d" % number)


def exclusive(dial: Dial, queue: str, prefetch: int = 5, **arguments: object) -> Worker:
    return Worker(dial, queue, prefetch, exclusive_consumer=True, **arguments)


def disconnect(api: Api, queue: str, worker: Worker) -> None:
    """Have the broker end its connection: pika would cancel the consumer first, which keeps what it has."""
    details = {each["consumer_tag"]: each for each in api.get("queues", "/", queue)["consumer_details"]}
    api.delete("connections", details[worker.tag]["channel_details"]["connection_name"])
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        worker.connection.process_data_events(time_limit=PATIENCE_S)


def numbers(received: list[tuple[int, bool, int]]) -> list[int]:
    return [number for _, _, number in received]


def test_it_takes_over_and_its_successor_begins_with_what_it_had(
    dial: Dial, publisher: BlockingChannel, name: str, api: Api
) -> None:
    ordinary = Worker(dial, name, 2)
    publish(publisher, name, 0, 1, 2, 3)
    held = ordinary.receive(2)
    first = exclusive(dial, name, 2)
    assert numbers(first.receive(2)) == [2, 3]
    second = exclusive(dial, name)
    ordinary.channel.basic_ack(held[0][0])
    ordinary.look()
    publish(publisher, name, 4)
    assert (ordinary.look(), second.look()) == (0, 0)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="exclusive consumer") as locked:
        dial().channel().basic_get(name)
    assert locked.value.reply_code == 405
    disconnect(api, name, first)
    assert [(again, n) for _, again, n in second.receive(3)] == [(True, 2), (True, 3), (False, 4)]
    ordinary.channel.basic_nack(held[1][0])
    assert numbers(second.receive(1)) == [1]
    disconnect(api, name, second)
    assert numbers(ordinary.receive(1)) == [1]


def test_priorities(dial: Dial, publisher: BlockingChannel, name: str) -> None:
    low = exclusive(dial, name)
    high = exclusive(dial, name, priority=127)
    publish(publisher, name, 1)
    assert numbers(high.receive(1)) == [1]
    highest = exclusive(dial, name, priority=127)
    publish(publisher, name, 2)
    assert numbers(highest.receive(1)) == [2]
    assert (low.look(), high.look()) == (0, 0)


def test_a_queue_whose_consumers_are_all_exclusive_and_drain(dial: Dial, name: str, api: Api) -> None:
    channel = dial().channel()
    arguments = {"x-all-consumers-exclusive": True, "x-exclusive-takeover": "drain"}
    channel.queue_declare(name, arguments=arguments)
    low = Worker(dial, name, 1)
    publish(channel, name, 1, 2)
    ((tag, _, _),) = low.receive(1)
    high = Worker(dial, name, priority=1)
    assert high.look() == 0
    shown = {each["consumer_tag"]: each for each in api.get("queues", "/", name)["consumer_details"]}
    assert [shown[worker.tag]["activity_status"] for worker in (low, high)] == ["draining", "waiting"]
    assert [shown[worker.tag]["active"] for worker in (low, high)] == [False, False]
    low.channel.basic_ack(tag)
    low.look()
    assert numbers(high.receive(1)) == [2]
    assert api.get("queues", "/", name)["arguments"] == arguments
    channel.queue_delete(name)


@pytest.mark.parametrize(
    ("arguments", "exclusive", "other"),
    [
        ({"x-exclusive-consumer": True, "x-browse": True}, False, "x-browse"),
        ({"x-exclusive-consumer": True}, True, "exclusive"),
        ({"x-exclusive-consumer": "yes"}, False, "a boolean"),
    ],
)
def test_what_is_refused(
    dial: Dial,
    publisher: BlockingChannel,
    name: str,
    arguments: dict[str, object],
    exclusive: bool,
    other: str,
) -> None:
    channel = dial().channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.basic_consume(name, lambda *_: None, exclusive=exclusive, arguments=arguments)
    assert refused.value.reply_code == 406
    assert "x-exclusive-consumer" in refused.value.reply_text
    assert other in refused.value.reply_text
