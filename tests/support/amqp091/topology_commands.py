"""The commonest changes of a broker's topology, through the test client."""

from pamqp.commands import Exchange, Queue
from pamqp.common import FieldTable

from tests.support.amqp091.peer import PeerChannel


def declare_exchange(
    channel: PeerChannel,
    exchange: str,
    kind: str = "direct",
    auto_delete: bool = False,
    internal: bool = False,
    arguments: FieldTable | None = None,
) -> None:
    """Declare an exchange."""
    command = Exchange.Declare(
        exchange=exchange, exchange_type=kind, auto_delete=auto_delete, internal=internal, arguments=arguments
    )
    channel.call(command, Exchange.DeclareOk)


def delete_exchange(channel: PeerChannel, exchange: str) -> None:
    """Delete an exchange."""
    channel.call(Exchange.Delete(exchange=exchange), Exchange.DeleteOk)


def bind_queue(
    channel: PeerChannel, queue: str, exchange: str, key: str = "", arguments: FieldTable | None = None
) -> None:
    """Bind a queue to an exchange."""
    command = Queue.Bind(queue=queue, exchange=exchange, routing_key=key, arguments=arguments)
    channel.call(command, Queue.BindOk)


def bind_exchange(channel: PeerChannel, source: str, destination: str, key: str = "") -> None:
    """Bind an exchange to an exchange."""
    command = Exchange.Bind(destination=destination, source=source, routing_key=key)
    channel.call(command, Exchange.BindOk)


def drain(channel: PeerChannel, queue: str) -> list[str]:
    """Return the bodies of all messages in a queue."""
    bodies = []
    while (message := channel.get(queue)) is not None:
        bodies.append(message.body.decode())
    return bodies
