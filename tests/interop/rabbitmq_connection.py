"""RabbitMQ's Python client of AMQP 1.0, 1.x, built on proton. It is had from here, if it is installed."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.support.daemon.daemon import PATIENCE_S, Address

client: Any = pytest.importorskip(
    "rabbitmq_amqp_python_client", reason="rabbitmq-amqp-python-client is not installed"
)
if not hasattr(client, "Environment"):
    pytest.skip("its 2.x is another client; test_amqp10_python.py tries it", allow_module_level=True)

proton: Any = pytest.importorskip("rabbitmq_amqp_python_client.qpid.proton.utils")
SendException, ConnectionClosed = proton.SendException, proton.ConnectionClosed
RELEASED = str(int(client.OutcomeState.RELEASED))
COMPATIBLE = {"AMQPD_COMPAT_PRODUCT": "RabbitMQ", "AMQPD_COMPAT_VERSION": "4.2.0"}
"""The setting of a broker for these clients."""

exchange_address = client.AddressHelper.exchange_address
queue_address = client.AddressHelper.queue_address


def environment_of(address: Address, recovers: bool = False) -> Any:
    """Return an environment for connections to a broker, with or without recovery."""
    recovery = client.RecoveryConfiguration(recovers, timedelta(seconds=1), 8)
    url = f"amqp://guest:guest@{address.host}:{address.port}/"
    return client.Environment(url, recovery_configuration=recovery)


class Enough(Exception):  # noqa: N818 - it is no error
    """All requested messages have arrived."""


class Taking(client.AMQPMessagingHandler):  # type: ignore[misc]
    """A handler that settles messages with given outcomes, in order; the client calls `on_...`."""

    def __init__(self, says: tuple[Callable[..., None], ...]) -> None:
        super().__init__()
        self.messages: list[Any] = []
        self._says = iter(says)
        self._left = len(says)

    def on_amqp_message(self, event: Any) -> None:
        """Settle it, unless it is more than was wanted."""
        if not self._left:
            return
        next(self._says)(self.delivery_context, event)
        self.messages.append(event.message)
        self._left -= 1
        if not self._left:
            raise Enough

    def on_timer_task(self, event: Any) -> None:
        """Fail: the messages did not come in time."""
        if self._left:
            raise AssertionError(f"{self._left} messages did not come")


settling: Any = type(client.AMQPMessagingHandler().delivery_context)
accept, discard, requeue = settling.accept, settling.discard, settling.requeue


def publish(connection: Any, address: str, *bodies: bytes) -> list[Any]:
    """Publish, and wait for each outcome."""
    publisher = connection.publisher(address)
    try:
        return [publisher.publish(client.Message(body=body)).remote_state for body in bodies]
    finally:
        publisher.close()


def take(connection: Any, address: str, *says: Callable[..., None], options: Any = None) -> list[Any]:
    """Consume as many messages as there are things to say of them."""
    handler = Taking(says)
    consumer = connection.consumer(address, message_handler=handler, consumer_options=options)
    run(connection, consumer)
    consumer.close()
    return handler.messages


def run(connection: Any, consumer: Any) -> None:
    """Run a consumer with a `Taking` until it has all its messages."""
    late = connection._conn.container.schedule(PATIENCE_S, consumer.handler)
    with pytest.raises(Enough):
        consumer.run()
    late.cancel()


def bodies(messages: list[Any]) -> list[bytes]:
    """Return the bodies."""
    return [bytes(message.body) for message in messages]
