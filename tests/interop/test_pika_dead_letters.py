"""Dead letters, expiration and limits with pika's BlockingConnection, unmodified."""

import datetime
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.daemon.daemon import PATIENCE_S


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    """A channel without confirms."""
    return connection.channel()


def declare(channel: BlockingChannel, **arguments: Any) -> str:
    """A new queue; `message_ttl=5` is its x-message-ttl, and so on."""
    held = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    return str(channel.queue_declare("", exclusive=True, arguments=held).method.queue)


def arrived(channel: BlockingChannel, queue: str) -> tuple[Any, bytes]:
    """Properties and body of the next message of a queue."""
    for method, properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=PATIENCE_S):
        assert method is not None, "nothing came"
        channel.cancel()
        return properties, body
    raise AssertionError("the consumer was cancelled")


@pytest.mark.parametrize("reason", ["rejected", "expired", "maxlen"])
def test_a_dead_letter_tells_why(channel: BlockingChannel, reason: str) -> None:
    dead = declare(channel)
    limits = {"expired": {"message_ttl": 10}, "maxlen": {"max_length": 0}}.get(reason, {})
    queue = declare(channel, dead_letter_exchange="", dead_letter_routing_key=dead, **limits)
    channel.basic_publish("", queue, b"body", pika.BasicProperties(headers={"mine": [1, "two"]}))
    if reason == "rejected":
        method, _, _ = channel.basic_get(queue)
        channel.basic_reject(method.delivery_tag, requeue=False)
    properties, body = arrived(channel, dead)
    assert body == b"body"
    assert properties.headers["mine"] == [1, "two"]
    (death,) = properties.headers["x-death"]
    assert isinstance(death.pop("time"), datetime.datetime)
    assert death == {
        "count": 1,
        "reason": reason,
        "queue": queue,
        "exchange": "",
        "routing-keys": [queue],
    }


def test_a_retry_queue(channel: BlockingChannel) -> None:
    work, wait = f"work.{declare(channel)}", f"wait.{declare(channel)}"
    for queue, other, arguments in ((work, wait, {}), (wait, work, {"x-message-ttl": 10})):
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": other}
        channel.queue_declare(queue, exclusive=True, arguments={**dead, **arguments})
    channel.basic_publish("", work, b"job")
    counts = []
    for method, properties, _ in channel.consume(work, inactivity_timeout=PATIENCE_S):
        assert method is not None, "it did not come back"
        deaths = (properties.headers or {}).get("x-death", [])
        counts.append({death["reason"]: death["count"] for death in deaths})
        if len(counts) == 4:
            break
        channel.basic_nack(method.delivery_tag, requeue=False)
    assert counts == [{}, *({"expired": n, "rejected": n} for n in (1, 2, 3))]


def test_a_full_queue_nacks(channel: BlockingChannel) -> None:
    queue = declare(channel, max_length=1, overflow="reject-publish")
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"kept")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", queue, b"refused")
    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert (body, method.message_count) == (b"kept", 0)
    channel.basic_publish("", queue, b"accepted again")


def test_a_bad_expiration_ends_the_channel(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="invalid expiration 'soon'") as caught:
        channel.basic_publish("", "nowhere", b"", pika.BasicProperties(expiration="soon"))
    assert caught.value.reply_code == 406
