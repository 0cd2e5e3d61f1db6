"""An unmodified RabbitMQ Python client of AMQP 1.0, 1.x, recovers when the broker closes its connection.

The client recovers within the call that hears of the close. The call fails and must be repeated.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interop.rabbitmq_connection import (
    COMPATIBLE,
    ConnectionClosed,
    Enough,
    accept,
    client,
    environment_of,
    publish,
    queue_address,
)
from tests.support.admin.api import Api
from tests.support.amqp091.peer import Peer
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter

COUNT = 60
ADDRESS = queue_address("orders")


class Broker:
    """A broker with accidents that a client must recover from."""

    def __init__(self, start_daemon: DaemonStarter) -> None:
        self._start = start_daemon
        self.daemon: Daemon = start_daemon(environment=COMPATIBLE)

    def close_connections(self) -> None:
        """Close all connections, as an operator does."""
        api = Api(self.daemon.admin)
        for connection in api.get("connections"):
            api.delete("connections", connection["name"])
        api.close()

    def restart(self) -> None:
        """Stop, which closes all connections, and start again at the same place with the same data."""
        self.daemon.stop()
        self.daemon = self._start(environment=COMPATIBLE, port=self.daemon.address.port)


by_both_ways = pytest.mark.parametrize(
    "interrupt",
    [
        pytest.param(Broker.close_connections, id="the connection is closed"),
        pytest.param(Broker.restart, id="the broker is restarted", marks=pytest.mark.nightly),
    ],
)


@pytest.fixture
def broker(start_daemon: DaemonStarter) -> Broker:
    """A broker with a durable queue."""
    broker = Broker(start_daemon)
    peer = Peer(broker.daemon.address).open()
    peer.channel().declare("orders", durable=True)
    peer.close()
    return broker


@pytest.fixture
def connection(broker: Broker) -> Iterator[Any]:
    """A connection that recovers."""
    environment = environment_of(broker.daemon.address, recovers=True)
    connection = environment.connection()
    connection.dial()
    yield connection
    environment.close()


class Consuming(client.AMQPMessagingHandler):  # type: ignore[misc]
    """Accepts messages until every number has arrived; at some numbers an accident happens first."""

    def __init__(self, interrupt: Callable[[], None], at: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.seen: Counter[int] = Counter()
        self.stolen: list[str] = []
        self._interrupt = interrupt
        self._at = at

    def on_amqp_message(self, event: Any) -> None:
        """Accept it."""
        number = int(bytes(event.message.body))
        new = number not in self.seen
        self.seen[number] += 1
        if new and len(self.seen) in self._at:
            self._interrupt()
        accept(self.delivery_context, event)
        if new and len(self.seen) == COUNT:
            raise Enough

    def on_link_error(self, event: Any) -> None:
        """During recovery the client attaches a consumer twice, and the later link steals the name.

        Without this method the handler closes the connection. If both links were let live the client would
        close it too, because of the name.
        """
        self.stolen.append(event.link.remote_condition.name)

    def on_timer_task(self, event: Any) -> None:
        """Fail: the messages did not come in time."""
        raise AssertionError(f"{COUNT - len(self.seen)} messages did not come")


def consume(connection: Any, handler: Consuming) -> int:
    """Consume until every number was seen; returns how often the connection was closed meanwhile."""
    consumer = connection.consumer(ADDRESS, message_handler=handler)
    closed = 0
    while True:
        late = connection._conn.container.schedule(PATIENCE_S, handler)
        try:
            consumer.run()
        except ConnectionClosed:
            closed += 1
        except Enough:
            return closed
        finally:
            late.cancel()


def left(broker: Broker) -> int:
    """Return the number of messages in the queue."""
    peer = Peer(broker.daemon.address).open()
    count, _ = peer.channel().counts("orders")
    peer.close()
    return count


@by_both_ways
def test_a_publisher_reconnects_and_accepted_messages_are_in_the_queue(
    broker: Broker, connection: Any, interrupt: Callable[[Broker], None]
) -> None:
    management = connection.management()
    publisher = connection.publisher(ADDRESS)
    closed = accepted = 0
    while accepted < COUNT:
        if closed < accepted // 20:
            interrupt(broker)
        try:
            delivery = publisher.publish(client.Message(body=b"%d" % accepted))
        except ConnectionClosed:
            closed += 1
            continue
        assert delivery.remote_state == client.OutcomeState.ACCEPTED
        accepted += 1
    assert closed == 2
    assert management.queue_info("orders").message_count == left(broker) == COUNT
    handler = Consuming(lambda: None)
    assert consume(connection, handler) == 0
    assert handler.seen == Counter(range(COUNT))


@by_both_ways
def test_a_consumer_reconnects_and_receives_every_message(
    broker: Broker, connection: Any, interrupt: Callable[[Broker], None]
) -> None:
    publish(connection, ADDRESS, *(b"%d" % number for number in range(COUNT)))
    handler = Consuming(lambda: interrupt(broker), at=(COUNT // 3, COUNT * 2 // 3))
    assert consume(connection, handler) == 2
    assert sorted(handler.seen) == list(range(COUNT))
    assert handler.stolen == ["amqp:link:stolen"] * 2
    connection.close()  # closing says that the last message is accepted
    assert left(broker) == 0
