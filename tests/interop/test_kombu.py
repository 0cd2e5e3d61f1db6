"""Kombu over an unmodified py-amqp, the base of Celery."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.daemon.daemon import PATIENCE_S, Address, DaemonStarter

kombu: Any = importlib.import_module("kombu")  # kombu ships types for a few of its modules only
SimpleQueue: Any = importlib.import_module("kombu.simple").SimpleQueue
amqp_errors: Any = importlib.import_module("amqp.exceptions")


@pytest.fixture(params=["PLAIN", "AMQPLAIN"])
def connection(request: pytest.FixtureRequest, address: Address) -> Iterator[Any]:
    """A connection, once with each login method."""
    with kombu.Connection(address.url(), login_method=request.param) as connection:
        connection.connect()
        yield connection


@pytest.mark.parametrize(
    ("kind", "key", "routed", "lost"),
    [
        ("direct", "key", ["key"], ["other"]),
        ("fanout", "", ["", "any"], []),
        ("topic", "a.*.#", ["a.b", "a.b.c"], ["a", "b.a"]),
    ],
)
def test_producer_and_consumer(
    connection: Any, name: str, kind: str, key: str, routed: list[str], lost: list[str]
) -> None:
    exchange = kombu.Exchange(name, kind, durable=False, auto_delete=True)
    queue = kombu.Queue(name, exchange, routing_key=key, exclusive=True)
    received: list[tuple[Any, Any]] = []

    def on_message(body: Any, message: Any) -> None:
        received.append((body, message.delivery_info["routing_key"]))
        message.ack()

    with connection.channel() as channel, kombu.Consumer(channel, queue, callbacks=[on_message]):
        producer = kombu.Producer(channel, exchange)
        for routing_key in lost + routed:
            producer.publish({"key": routing_key}, routing_key=routing_key, headers={"x": 1})
        while len(received) < len(routed):
            connection.drain_events(timeout=PATIENCE_S)
    assert received == [({"key": routing_key}, routing_key) for routing_key in routed]


def test_the_default_exchange_get_and_properties(connection: Any) -> None:
    with connection.channel() as channel:
        queue = kombu.Queue("", exclusive=True, channel=channel)
        queue.declare()
        producer = kombu.Producer(channel)
        producer.publish(
            "körper",
            routing_key=queue.name,
            headers={"text": "é", "number": 2**40, "list": [1, {"x": None}], "real": 0.5},
            priority=3,
            correlation_id="c",
            reply_to="r",
            expiration=60,
            message_id="m",
            delivery_mode=2,
            type="t",
        )
        message = queue.get()
        assert message.payload == "körper"
        assert message.headers == {"text": "é", "number": 2**40, "list": [1, {"x": None}], "real": 0.5}
        wanted = {"priority": 3, "correlation_id": "c", "reply_to": "r", "message_id": "m", "type": "t"}
        assert wanted.items() <= message.properties.items()
        message.ack()
        assert queue.get() is None


@pytest.mark.parametrize("size", [0, 1, 131064, 131065, 3_000_000])
def test_bodies(connection: Any, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    with connection.channel() as channel:
        queue = kombu.Queue("", exclusive=True, channel=channel)
        queue.declare()
        kombu.Producer(channel).publish(body, routing_key=queue.name)
        assert (queue.get(no_ack=True).body or b"") == body


def test_ack_reject_requeue_and_recover(connection: Any) -> None:
    with connection.channel() as channel:
        queue = kombu.Queue("", exclusive=True, channel=channel)
        queue.declare()
        producer = kombu.Producer(channel)
        for number in range(5):
            producer.publish(number, routing_key=queue.name)
        messages = [queue.get() for _ in range(5)]
        messages[0].ack()
        messages[1].reject()
        messages[2].requeue()
        again = queue.get()
        assert (again.payload, again.delivery_info["redelivered"]) == (2, True)
        channel.basic_recover(requeue=True)
        assert [queue.get(no_ack=True).payload for _ in range(3)] == [2, 3, 4]
        assert queue.purge() == 0


def test_qos_and_cancel(connection: Any, name: str) -> None:
    received: list[Any] = []
    with connection.channel() as channel:
        queue = kombu.Queue(name, durable=False, channel=channel)
        queue.declare()
        producer = kombu.Producer(channel)
        for number in range(5):
            producer.publish(number, routing_key=queue.name)
        consumer = kombu.Consumer(channel, queue, on_message=received.append, prefetch_count=2)
        consumer.consume()
        while len(received) < 2:
            connection.drain_events(timeout=PATIENCE_S)
        assert queue.queue_declare(passive=True).message_count == 3
        consumer.qos(prefetch_count=3)
        received[0].ack()
        while len(received) < 3:
            connection.drain_events(timeout=PATIENCE_S)
        consumer.cancel()
        assert queue.queue_declare(passive=True).consumer_count == 0
        queue.delete()


def test_confirms_and_returns(address: Address, name: str) -> None:
    returned: list[int] = []

    def on_return(error: Any, exchange: str, routing_key: str, message: Any) -> None:
        returned.append(error.reply_code)

    with kombu.Connection(address.url(), transport_options={"confirm_publish": True}) as connection:
        channel = connection.channel()
        queue = kombu.Queue(name, durable=True, channel=channel)
        queue.declare()
        producer = kombu.Producer(channel, on_return=on_return)
        for number in range(50):
            producer.publish(number, routing_key=name, delivery_mode=2, mandatory=True)
        producer.publish("lost", routing_key=name + ".nowhere", mandatory=True)
        assert returned == [312]
        assert queue.purge() == 50
        queue.delete()


def test_simple_queue(connection: Any, name: str) -> None:
    with SimpleQueue(connection, name) as queue:
        for number in range(10):
            queue.put({"number": number})
        for number in range(10):
            message = queue.get(timeout=PATIENCE_S)
            assert message.payload == {"number": number}
            message.ack()
        assert len(queue) == 0
        with pytest.raises(queue.Empty):
            queue.get_nowait()
    with connection.channel() as channel:
        channel.queue_delete(name)
        channel.exchange_delete(name)


def test_many_channels(connection: Any) -> None:
    channels = [connection.channel() for _ in range(100)]
    queue = kombu.Queue("", exclusive=True, channel=channels[0])
    queue.declare()
    for number, channel in enumerate(channels):
        kombu.Producer(channel).publish(number, routing_key=queue.name)
        channel.queue_declare(queue.name, passive=True)
    assert sorted(queue.get(no_ack=True).payload for _ in channels) == list(range(100))
    for channel in channels:
        channel.close()


def test_heartbeats(address: Address) -> None:
    with kombu.Connection(address.url(), heartbeat=2) as connection:
        connection.connect()
        for _ in range(25):
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.2)
            connection.heartbeat_check(rate=4)
        with connection.channel() as channel:
            kombu.Queue("", exclusive=True, channel=channel).declare()


def test_errors_by_class(connection: Any, address: Address, name: str) -> None:
    with pytest.raises(amqp_errors.NotFound):
        connection.channel().queue_declare(name, passive=True)
    connection.channel().queue_declare(name, auto_delete=False)
    with pytest.raises(amqp_errors.PreconditionFailed):
        connection.channel().queue_declare(name, durable=True, auto_delete=False)
    connection.channel().queue_delete(name)
    with (
        kombu.Connection(address.url(password="wrong")) as stranger,
        pytest.raises(amqp_errors.AccessRefused),
    ):
        stranger.connect()


def test_reconnecting_after_a_crash(start_daemon: DaemonStarter, name: str) -> None:
    daemon = start_daemon()
    with kombu.Connection(daemon.address.url(), transport_options={"confirm_publish": True}) as connection:
        queue = kombu.Queue(name, kombu.Exchange(name, "direct"), routing_key="key")
        producer = connection.Producer()
        publish = connection.ensure(producer, producer.publish, interval_start=0.2, interval_step=0.2)
        publish("before", exchange=queue.exchange, routing_key="key", declare=[queue])
        daemon.kill()
        start_daemon(port=daemon.address.port)
        publish("after", exchange=queue.exchange, routing_key="key", declare=[queue])
        bound = queue(connection.default_channel)
        first, second = bound.get(no_ack=True), bound.get(no_ack=True)
        assert [first.payload, second.payload] == ["before", "after"]


@pytest.mark.parametrize(("product", "held"), [("off", 1), ("RabbitMQ", 4)])
def test_celery_changes_the_prefetch_of_a_running_consumer(
    start_daemon: DaemonStarter, name: str, product: str, held: int
) -> None:
    """Celery requests a window of the channel from RabbitMQ, and a window of each consumer from others."""
    daemon = start_daemon(environment={"AMQPD_COMPAT_PRODUCT": product})
    received: list[Any] = []
    with kombu.Connection(daemon.address.url()) as connection, connection.channel() as channel:
        connection.connect()
        of_all = not connection.qos_semantics_matches_spec
        assert of_all is (product == "RabbitMQ")
        queue = kombu.Queue(name, exclusive=True, channel=channel)
        queue.declare()
        for number in range(5):
            kombu.Producer(channel).publish(number, routing_key=queue.name)
        channel.basic_qos(0, 1, of_all)
        with kombu.Consumer(channel, queue, on_message=received.append) as consumer:
            while not received:
                connection.drain_events(timeout=PATIENCE_S)
            consumer.qos(prefetch_count=4, apply_global=of_all)
            while len(received) < held:
                connection.drain_events(timeout=PATIENCE_S)
            assert queue.queue_declare(passive=True).message_count == 5 - held
        assert [message.payload for message in received] == list(range(held))
