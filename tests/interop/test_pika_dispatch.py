"""When and in which order consumers are served, as a pika user sees it."""

from collections.abc import Callable, Iterator

import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.pika_worker import Dial, Worker

pytestmark = pytest.mark.amqpd_only("amqpd's own arguments")
Declare = Callable[..., BlockingChannel]


@pytest.fixture
def declare(dial: Dial, name: str) -> Iterator[Declare]:
    """Declare the queue `name` with arguments; gives a channel with confirms."""
    channel = dial().channel()
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


def test_strict_dispatch(dial: Dial, declare: Declare, name: str) -> None:
    channel = declare(dispatch="strict")
    first, second = Worker(dial, name, 2), Worker(dial, name)
    publish(channel, name, 1, 2, 3, 4)
    held = first.receive(2)
    assert [number for _, _, number in held] == [1, 2]
    assert [number for _, _, number in second.receive(2)] == [3, 4]
    first.channel.basic_ack(held[0][0])
    first.look()
    publish(channel, name, 5, 6)
    assert [number for _, _, number in first.receive(1)] == [5]
    assert [number for _, _, number in second.receive(1)] == [6]


@pytest.mark.parametrize("arguments", [{"x-dispatch": "random"}, {"x-dispatch": True}])
def test_arguments_that_cannot_be(dial: Dial, name: str, arguments: dict[str, object]) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=next(iter(arguments))) as refused:
        dial().channel().queue_declare(name, arguments=arguments)
    assert refused.value.reply_code == 406
