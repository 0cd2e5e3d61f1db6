"""Messages of python-qpid-proton with bodies near the limit of whole storage, read by both protocols."""

from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from protocol.amqp091.incoming import WHOLE_BYTES_MAX
from tests.interop.proton_connection import (
    ACCEPTED,
    ProtonDial,
    Sender,
    bodies,
    dialling,
    proton,
    take,
)
from tests.support.daemon.daemon import PATIENCE_S, Address

PROPERTY = "y" * 8000
SIZES = {
    "all of it whole": WHOLE_BYTES_MAX - 9000,
    "whole but for the sections in front of it": WHOLE_BYTES_MAX - 2000,
    "of the length at which bodies are cut": WHOLE_BYTES_MAX,
    "longer": WHOLE_BYTES_MAX + 1,
}


@pytest.fixture
def dial(address: Address) -> Iterator[ProtonDial]:
    """Open connections."""
    yield from dialling(address)


@pytest.fixture
def queue(channel: BlockingChannel, name: str) -> Iterator[str]:
    """A durable queue."""
    channel.queue_declare(name, durable=True)
    yield name
    channel.queue_delete(name)


def message(body: bytes, durable: bool) -> Any:
    return proton.Message(body=body, inferred=True, durable=durable, properties={"k": PROPERTY})


def consumed(channel: BlockingChannel, queue: str) -> tuple[pika.BasicProperties, bytes]:
    """The next message that a consumer of AMQP 0-9-1 is sent."""
    for _, properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=PATIENCE_S):
        channel.cancel()
        assert properties is not None, "nothing came"
        return properties, body
    raise AssertionError("the consumer was cancelled")


@pytest.mark.parametrize("durable", [False, True], ids=["transient", "durable"])
@pytest.mark.parametrize("size", SIZES.values(), ids=list(SIZES))
def test_consumers_of_both_protocols_get_the_whole_body(
    dial: ProtonDial, channel: BlockingChannel, queue: str, size: int, durable: bool
) -> None:
    """A consumer and a getter of AMQP 0-9-1, and a receiver of AMQP 1.0."""
    body = bytes(range(251)) * (size // 251) + b"x" * (size % 251)
    assert Sender(dial(), f"/queues/{queue}").send(*[message(body, durable)] * 3) == [ACCEPTED] * 3
    (received,) = bodies(take(dial().create_receiver(f"/queues/{queue}", credit=0), 1))
    _, _, got = channel.basic_get(queue, auto_ack=True)
    properties, pushed = consumed(channel, queue)
    assert properties.headers == {"k": PROPERTY}
    assert [len(pushed), len(got), len(received)] == [size] * 3
    assert pushed == got == received == body


def test_a_returned_large_message_is_readable(dial: ProtonDial, channel: BlockingChannel, queue: str) -> None:
    """The message is redelivered, and so has a header of its own."""
    body = b"x" * SIZES["whole but for the sections in front of it"]
    assert Sender(dial(), f"/queues/{queue}").send(message(body, True)) == [ACCEPTED]
    first, _, got = channel.basic_get(queue)
    channel.basic_nack(first.delivery_tag)
    _, pushed = consumed(channel, queue)
    assert got == pushed == body
