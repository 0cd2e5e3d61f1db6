"""pika's SelectConnection and AsyncioConnection, unmodified: the same conversation on both."""

import asyncio
from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.asyncio_connection import AsyncioConnection

from tests.support.daemon.daemon import PATIENCE_S, Address

Step = Callable[..., None]


class Conversation:
    """Runs a pika connection on its own loop until the test says that it is done, or something goes wrong."""

    def __init__(self, address: Address, adapter: str, on_channel: Callable[["Conversation"], None]) -> None:
        self.channel: Any = None
        self.failure: str | None = None
        self._done = False
        self._on_channel = on_channel
        parameters = pika.ConnectionParameters(address.host, address.port)
        callbacks = {
            "on_open_callback": self._on_open,
            "on_open_error_callback": lambda connection, error: self.finish(f"not opened: {error!r}"),
            "on_close_callback": self._on_close,
        }
        if adapter == "select":
            self.connection: Any = pika.SelectConnection(parameters, **callbacks)
            self._loop: Any = self.connection.ioloop
        else:
            self._loop = asyncio.new_event_loop()
            self.connection = AsyncioConnection(parameters, **callbacks, custom_ioloop=self._loop)
        self.connection._adapter_call_later(PATIENCE_S, lambda: self.finish("out of patience"))

    def run(self) -> None:
        """Run until the end; fails with the first error."""
        start = getattr(self._loop, "start", None) or self._loop.run_forever
        start()
        self._loop.close()
        assert self.failure is None, self.failure

    def finish(self, failure: str | None = None) -> None:
        """Close the connection, as the end of the test."""
        if failure is not None and self.failure is None:
            self.failure = failure
        if self._done:
            return
        self._done = True
        if self.connection.is_open:
            self.connection.close()
        else:
            self._loop.stop()

    def _on_open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._on_channel_open)

    def _on_channel_open(self, channel: Any) -> None:
        self.channel = channel
        channel.add_on_close_callback(self._on_channel_close)
        self._on_channel(self)

    def _on_channel_close(self, channel: Any, reason: Exception) -> None:
        if not self._done:
            self.finish(f"channel closed: {reason!r}")

    def _on_close(self, connection: Any, reason: Exception) -> None:
        if not self._done:
            self.failure = f"connection closed: {reason!r}"
        self._loop.stop()


@pytest.fixture(params=["select", "asyncio"])
def converse(request: pytest.FixtureRequest, address: Address) -> Callable[[Step], None]:
    """Run a conversation that begins with an open channel."""
    return lambda on_channel: Conversation(address, request.param, on_channel).run()


def test_declare_bind_publish_consume_ack_cancel(converse: Callable[[Step], None], name: str) -> None:
    received: list[tuple[bytes, Any]] = []

    def begin(conversation: Conversation) -> None:
        channel = conversation.channel
        channel.exchange_declare(name, "topic", auto_delete=True, callback=lambda _: declare())

        def declare() -> None:
            channel.queue_declare("", exclusive=True, callback=lambda frame: bind(frame.method.queue))

        def bind(queue: str) -> None:
            channel.queue_bind(queue, name, "a.#", callback=lambda _: consume(queue))

        def consume(queue: str) -> None:
            channel.basic_qos(prefetch_count=10, callback=lambda _: None)
            channel.basic_consume(queue, on_message, callback=lambda _: publish())

        def publish() -> None:
            for number in range(200):
                headers = {"number": number}
                channel.basic_publish(name, "a.b", bytes(number * 100), pika.BasicProperties(headers=headers))

        def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            received.append((body, properties.headers))
            channel.basic_ack(method.delivery_tag)
            if len(received) == 200:
                channel.basic_cancel(method.consumer_tag, callback=lambda _: conversation.finish())

    converse(begin)
    assert received == [(bytes(number * 100), {"number": number}) for number in range(200)]


def test_confirms_and_returns(converse: Callable[[Step], None], name: str) -> None:
    confirmed: set[int] = set()
    returned: list[bytes] = []

    def begin(conversation: Conversation) -> None:
        channel = conversation.channel
        channel.add_on_return_callback(lambda channel, method, properties, body: returned.append(body))
        channel.queue_declare(name, durable=True, callback=lambda _: select())

        def select() -> None:
            channel.confirm_delivery(on_confirm, callback=lambda _: publish())

        def publish() -> None:
            for number in range(1, 101):
                key = name if number % 10 else name + ".nowhere"
                persistent = pika.BasicProperties(delivery_mode=2)
                channel.basic_publish("", key, b"%d" % number, persistent, mandatory=True)

        def on_confirm(frame: Any) -> None:
            assert isinstance(frame.method, pika.spec.Basic.Ack)
            last = frame.method.delivery_tag
            first = min(set(range(1, 101)) - confirmed) if frame.method.multiple else last
            confirmed.update(range(first, last + 1))
            if len(confirmed) == 100:
                channel.queue_delete(name, callback=lambda _: conversation.finish())

    converse(begin)
    assert returned == [b"%d" % number for number in range(10, 101, 10)]


def test_several_channels_and_get(converse: Callable[[Step], None]) -> None:
    bodies: list[bytes] = []

    def begin(conversation: Conversation) -> None:
        first = conversation.channel
        first.queue_declare("", exclusive=True, callback=lambda frame: open_others(frame.method.queue))

        def open_others(queue: str) -> None:
            for number in range(20):
                conversation.connection.channel(
                    on_open_callback=lambda channel, number=number: use(channel, queue, number)
                )

        def use(channel: Any, queue: str, number: int) -> None:
            channel.basic_publish("", queue, b"%d" % number)
            channel.basic_get(queue, on_message, auto_ack=True)

        def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            bodies.append(body)
            if len(bodies) == 20:
                conversation.finish()

    converse(begin)
    assert sorted(bodies, key=int) == [b"%d" % number for number in range(20)]


def test_a_channel_error_has_its_reply_code(converse: Callable[[Step], None], name: str) -> None:
    reasons: list[Any] = []

    def begin(conversation: Conversation) -> None:
        def open_bad(channel: Any) -> None:
            channel.add_on_close_callback(closed)
            channel.queue_declare(name, passive=True)

        def closed(channel: Any, reason: Any) -> None:
            reasons.append(reason)
            conversation.channel.queue_declare("", exclusive=True, callback=lambda _: conversation.finish())

        conversation.connection.channel(on_open_callback=open_bad)

    converse(begin)
    assert isinstance(reasons[0], pika.exceptions.ChannelClosedByBroker)
    assert reasons[0].reply_code == 404
    assert reasons[0].reply_text == f"NOT_FOUND - no queue '{name}' in vhost '/'"
