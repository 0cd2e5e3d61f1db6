"""A delayed exchange as a pika user, and the plugin's documentation, use it."""

import time

import pika
import pytest

from tests.interop.pika_connection import connected
from tests.support.daemon.daemon import PATIENCE_S, Address


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout"])
def test_the_later_published_comes_first_with_the_shorter_delay(
    address: Address, name: str, kind: str
) -> None:
    connection = connected(address)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare(name, "x-delayed-message", durable=True, arguments={"x-delayed-type": kind})
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, name, "some.key")
    began = time.monotonic()
    for body, delay in ((b"delayed payload", 400), (b"more delayed payload", 150)):
        properties = pika.BasicProperties(headers={"x-delay": delay}, delivery_mode=2)
        channel.basic_publish(name, "some.key", body, properties, mandatory=True)
    found = []
    for method, properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=PATIENCE_S):
        assert method is not None, "nothing more came"
        found.append((body, properties.headers))
        if len(found) == 2:
            break
    assert found == [(b"more delayed payload", {"x-delay": -150}), (b"delayed payload", {"x-delay": -400})]
    assert time.monotonic() - began >= 0.4
    channel.cancel()
    channel.exchange_delete(name)
    connection.close()
