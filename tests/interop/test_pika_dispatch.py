"""Start and order of deliveries to consumers, with pika."""

import threading
import time
from collections.abc import Callable, Iterator

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.pika_connection import Dial, connected
from tests.interop.pika_worker import Worker
from tests.support.daemon.daemon import PATIENCE_S, Address

pytestmark = pytest.mark.amqpd_only("amqpd's own arguments")
Declare = Callable[..., BlockingChannel]


@pytest.fixture
def declare(pika_dial: Dial, name: str) -> Iterator[Declare]:
    """Declare the queue `name` with arguments; gives a channel with confirms."""
    channel = pika_dial().channel()
    channel.confirm_delivery()

    def declared(**arguments: object) -> BlockingChannel:
        named = {"x-" + argument.replace("_", "-"): value for argument, value in arguments.items()}
        channel.queue_declare(name, arguments=named)
        return channel

    yield declared
    channel.queue_delete(name)


def publish(channel: BlockingChannel, queue: str, *numbers: int) -> None:
    for number in numbers:
        channel.basic_publish("", queue, b"%d" % number)


def test_strict_dispatch(pika_dial: Dial, declare: Declare, name: str) -> None:
    channel = declare(dispatch="strict")
    first, second = Worker(pika_dial, name, 2), Worker(pika_dial, name)
    publish(channel, name, 1, 2, 3, 4)
    held = first.receive(2)
    assert [number for _, _, number in held] == [1, 2]
    assert [number for _, _, number in second.receive(2)] == [3, 4]
    first.channel.basic_ack(held[0][0])
    first.look()
    publish(channel, name, 5, 6)
    assert [number for _, _, number in first.receive(1)] == [5]
    assert [number for _, _, number in second.receive(1)] == [6]


def test_consumers_before_dispatch_delays_deliveries(pika_dial: Dial, declare: Declare, name: str) -> None:
    channel = declare(consumers_before_dispatch=2)
    publish(channel, name, 1, 2, 3)
    assert channel.basic_get(name, auto_ack=True)[2] == b"1"
    first = Worker(pika_dial, name, 1)
    assert first.look() == 0
    second = Worker(pika_dial, name, 1)
    assert sorted(number for worker in (first, second) for _, _, number in worker.receive(1)) == [2, 3]


def test_delay_before_dispatch_delays_deliveries(pika_dial: Dial, declare: Declare, name: str) -> None:
    channel = declare(delay_before_dispatch=300)
    publish(channel, name, 1)
    began = time.monotonic()
    worker = Worker(pika_dial, name)
    worker.receive(1)
    assert time.monotonic() - began > 0.29


def test_a_get_waits_for_a_message(pika_dial: Dial, declare: Declare, name: str) -> None:
    declare(get_wait=60_000)
    publisher, getter = pika_dial(), pika_dial().channel()
    publisher.call_later(0.2, lambda: publisher.channel().basic_publish("", name, b"late"))
    answers: list[bytes | None] = []
    thread = threading.Thread(target=lambda: answers.append(getter.basic_get(name, auto_ack=True)[2]))
    thread.start()
    publisher.process_data_events(time_limit=1)
    thread.join(PATIENCE_S)
    assert answers == [b"late"]


def test_a_get_waits_no_longer_than_it_is_to(declare: Declare, name: str) -> None:
    channel = declare(get_wait=300)
    began = time.monotonic()
    assert channel.basic_get(name)[0] is None
    assert 0.29 < time.monotonic() - began < PATIENCE_S


def test_the_client_says_how_long_its_gets_wait(address: Address, declare: Declare, name: str) -> None:
    declare(get_wait=60_000)
    with connected(address, client_properties={"x-get-wait": 0}) as connection:
        assert connection.channel().basic_get(name)[0] is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-dispatch": "random"},
        {"x-dispatch": True},
        {"x-get-wait": -1},
        {"x-get-wait": 10, "x-single-active-consumer": True},
        {"x-consumers-before-dispatch": 0},
        {"x-delay-before-dispatch": -1},
    ],
)
def test_arguments_that_cannot_be(pika_dial: Dial, name: str, arguments: dict[str, object]) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=next(iter(arguments))) as refused:
        pika_dial().channel().queue_declare(name, arguments=arguments)
    assert refused.value.reply_code == 406
