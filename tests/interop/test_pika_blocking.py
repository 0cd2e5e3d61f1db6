"""pika's BlockingConnection, unmodified."""

import threading
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exchange_type import ExchangeType

from tests.interop.pika_connection import connected
from tests.support.daemon.daemon import PATIENCE_S, Address, DaemonStarter

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    """A channel."""
    return connection.channel()


def exclusive(channel: BlockingChannel) -> str:
    """A new queue."""
    return str(channel.queue_declare("", exclusive=True).method.queue)


def take(channel: BlockingChannel, queue: str, count: int) -> list[tuple[Any, Any, bytes]]:
    """Consume `count` messages without acknowledging them."""
    messages = []
    for message in channel.consume(queue, inactivity_timeout=PATIENCE_S):
        assert message[0] is not None, "nothing more came"
        messages.append(message)
        if len(messages) == count:
            return messages
    raise AssertionError("the consumer was cancelled")


@pytest.mark.parametrize(
    ("kind", "key", "routed", "lost"),
    [
        (ExchangeType.direct, "key", ["key"], ["other"]),
        (ExchangeType.fanout, "", ["", "any"], []),
        (ExchangeType.topic, "a.*.#", ["a.b", "a.b.c"], ["a", "b.a"]),
    ],
)
def test_exchanges(
    channel: BlockingChannel, name: str, kind: Any, key: str, routed: list[str], lost: list[str]
) -> None:
    queue = exclusive(channel)
    channel.exchange_declare(name, kind)
    channel.exchange_declare(name, passive=True)
    channel.queue_bind(queue, name, key)
    for routing_key in lost + routed:
        channel.basic_publish(name, routing_key, routing_key.encode())
    for routing_key in routed:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        assert (method.exchange, method.routing_key, body) == (name, routing_key, routing_key.encode())
    assert channel.basic_get(queue) == (None, None, None)
    channel.queue_unbind(queue, name, key)
    channel.basic_publish(name, routed[0], b"unbound")
    assert channel.basic_get(queue) == (None, None, None)
    channel.exchange_delete(name)


def test_properties_and_headers_come_back(channel: BlockingChannel) -> None:
    queue = exclusive(channel)
    properties = pika.BasicProperties(
        content_type="application/json",
        content_encoding="identity",
        headers={
            "text": "é",
            "number": 2**40,
            "yes": True,
            "none": None,
            "list": [1, {"x": "y"}],
        },
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to=queue,
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="a",
    )
    channel.basic_publish("", queue, "körper".encode(), properties)
    _, received, body = channel.basic_get(queue, auto_ack=True)
    assert body.decode() == "körper"
    assert received == properties


@pytest.mark.parametrize("size", [0, 1, 131064, 131065, 3_000_000])
def test_bodies(channel: BlockingChannel, size: int) -> None:
    queue = exclusive(channel)
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    channel.basic_publish("", queue, body)
    assert take(channel, queue, 1)[0][2] == body


def test_consume_ack_nack_reject_and_cancel(channel: BlockingChannel) -> None:
    queue = exclusive(channel)
    for number in range(6):
        channel.basic_publish("", queue, b"%d" % number)
    channel.basic_qos(prefetch_count=6)
    received: list[tuple[int, bytes, bool]] = []

    def on_message(channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        received.append((method.delivery_tag, body, method.redelivered))
        if len(received) == 6:
            channel.stop_consuming()

    channel.basic_consume(queue, on_message)
    channel.start_consuming()
    assert [(body, redelivered) for _, body, redelivered in received] == [
        (b"%d" % n, False) for n in range(6)
    ]
    channel.basic_ack(received[1][0], multiple=True)
    channel.basic_nack(received[3][0], multiple=True, requeue=True)
    channel.basic_reject(received[4][0], requeue=False)
    channel.basic_reject(received[5][0], requeue=True)
    again = [channel.basic_get(queue) for _ in range(3)]
    assert [(body, method.redelivered) for method, _, body in again] == [
        (b"2", True),
        (b"3", True),
        (b"5", True),
    ]
    channel.basic_recover(requeue=True)
    assert channel.queue_declare(queue, passive=True).method.message_count == 3
    assert channel.queue_purge(queue).method.message_count == 3


def test_prefetch(channel: BlockingChannel) -> None:
    queue = exclusive(channel)
    for number in range(5):
        channel.basic_publish("", queue, b"%d" % number)
    channel.basic_qos(prefetch_count=2)
    messages = take(channel, queue, 2)
    assert channel.queue_declare(queue, passive=True).method.message_count == 3
    channel.basic_ack(messages[1][0].delivery_tag, multiple=True)
    assert [body for _, _, body in take(channel, queue, 2)] == [b"2", b"3"]
    channel.cancel()


def test_confirms_and_mandatory(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    for number in range(50):
        channel.basic_publish("", name, b"%d" % number, PERSISTENT, mandatory=True)
    with pytest.raises(pika.exceptions.UnroutableError) as refusal:
        channel.basic_publish("", name + ".nowhere", b"lost", PERSISTENT, mandatory=True)
    (returned,) = refusal.value.messages
    assert (returned.method.reply_code, returned.method.reply_text, returned.body) == (
        312,
        "NO_ROUTE",
        b"lost",
    )
    channel.basic_publish("", name + ".nowhere", b"lost", PERSISTENT)
    assert channel.queue_delete(name).method.message_count == 50


def test_returns_without_confirms(
    connection: pika.BlockingConnection, channel: BlockingChannel, name: str
) -> None:
    returned: list[bytes] = []
    channel.add_on_return_callback(lambda channel, method, properties, body: returned.append(body))
    channel.basic_publish("", name, b"back", mandatory=True)
    while not returned:
        connection.process_data_events(time_limit=1)
    assert returned == [b"back"]


def test_channel_errors_by_code(connection: pika.BlockingConnection, name: str) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as missing:
        connection.channel().queue_declare(name, passive=True)
    assert missing.value.reply_code == 404
    connection.channel().queue_declare(name, auto_delete=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as different:
        connection.channel().queue_declare(name, auto_delete=False)
    assert different.value.reply_code == 406
    connection.channel().queue_delete(name)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as reserved:
        connection.channel().queue_declare("amq.mine")
    assert reserved.value.reply_code == 403
    channel = connection.channel()
    channel.basic_publish(name, "key", b"")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as absent:
        channel.queue_declare("")
    assert absent.value.reply_code == 404


def test_an_exclusive_queue_is_locked(address: Address, channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    other = connected(address)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as locked:
        other.channel().queue_declare(name, exclusive=True)
    assert locked.value.reply_code == 405
    other.close()


def test_many_channels(connection: pika.BlockingConnection) -> None:
    channels = [connection.channel() for _ in range(100)]
    assert len({channel.channel_number for channel in channels}) == 100
    queue = exclusive(channels[0])
    for number, channel in enumerate(channels):
        channel.basic_publish("", queue, b"%d" % number)
        channel.queue_declare(queue, passive=True)
    for number, channel in enumerate(reversed(channels)):
        assert channel.basic_get(queue, auto_ack=True)[2] == b"%d" % number
        channel.close()
    for _ in range(100):
        connection.channel().close()


def test_cancel_by_the_broker(
    connection: pika.BlockingConnection, channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name)
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume(name, lambda *message: None)
    connection.channel().queue_delete(name)
    while not cancelled:
        connection.process_data_events(time_limit=1)
    assert cancelled == [tag]


def test_wrong_password_and_virtual_host(address: Address) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match="403"):
        connected(address, credentials=pika.PlainCredentials("guest", "wrong"))
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="530"):
        connected(address, virtual_host="nope")


def test_heartbeats_hold_a_connection_that_waits(address: Address) -> None:
    connection = connected(address, heartbeat=1)
    channel = connection.channel()
    queue = exclusive(channel)
    for message in channel.consume(queue, inactivity_timeout=4):  # longer than the broker would bear silence
        assert message == (None, None, None)
        break
    channel.cancel()
    channel.basic_publish("", queue, b"alive")
    assert channel.basic_get(queue, auto_ack=True)[2] == b"alive"
    connection.close()


def test_publishing_from_another_thread(
    connection: pika.BlockingConnection, channel: BlockingChannel
) -> None:
    queue = exclusive(channel)
    publish = threading.Thread(
        target=connection.add_callback_threadsafe, args=(lambda: channel.basic_publish("", queue, b"thread"),)
    )
    publish.start()
    assert take(channel, queue, 1)[0][2] == b"thread"
    publish.join()


def test_reconnecting_after_a_crash(start_daemon: DaemonStarter, name: str) -> None:
    daemon = start_daemon()
    connection = connected(daemon.address)
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", name, b"kept", PERSISTENT)
    daemon.kill()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        channel.basic_publish("", name, b"nobody is there", PERSISTENT)
    start_daemon(port=daemon.address.port)
    connection = connected(daemon.address)
    channel = connection.channel()
    method, _, body = channel.basic_get(name)
    assert (body, method.redelivered) == (b"kept", True)
    channel.basic_ack(method.delivery_tag)
    connection.close()
