"""Quorum queues and delivery limits as a pika user sees them."""

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.daemon.daemon import PATIENCE_S

QUORUM = {"x-queue-type": "quorum", "x-delivery-limit": 3}
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def test_a_consumer_that_always_fails_sees_a_message_four_times(
    connection: pika.BlockingConnection, name: str
) -> None:
    channel = connection.channel()
    channel.queue_declare(name, durable=True, arguments=QUORUM)
    channel.confirm_delivery()
    for body in (b"poison", b"good"):
        channel.basic_publish("", name, body, PERSISTENT)
    attempts: list[tuple[bool, object]] = []
    for method, properties, body in channel.consume(name, inactivity_timeout=PATIENCE_S):
        assert method is not None, "nothing more came"
        if body == b"good":
            channel.basic_ack(method.delivery_tag)
            if len(attempts) == 4:
                break
        else:
            attempts.append((method.redelivered, (properties.headers or {}).get("x-delivery-count")))
            channel.basic_nack(method.delivery_tag, requeue=True)
            if len(attempts) == 4:
                channel.basic_publish("", name, b"good", PERSISTENT)
    assert attempts == [(False, None), (True, 1), (True, 2), (True, 3)]
    channel.cancel()
    assert channel.queue_declare(name, passive=True).method.message_count == 0
    channel.queue_delete(name)


@pytest.mark.parametrize(
    ("flags", "wrong"),
    [
        ({}, "non-durable"),
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({"durable": True, "auto_delete": True}, "auto-delete"),
    ],
)
def test_refusals(connection: pika.BlockingConnection, name: str, flags: dict[str, bool], wrong: str) -> None:
    channel: BlockingChannel = connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=f"invalid property '{wrong}'") as refusal:
        channel.queue_declare(name, arguments=QUORUM, **flags)
    assert refusal.value.reply_code == 406
