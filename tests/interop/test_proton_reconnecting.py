"""python-qpid-proton goes on by itself after kill -9 of the broker; nothing confirmed is lost. Unmodified."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.proton_connection import bodies, drain, handlers, proton, reactor, url, utils
from tests.support.amqp091.peer import Peer
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter

COUNT = 3000
ADDRESS = "/queues/orders"


class Publishing(handlers.MessagingHandler):  # type: ignore[misc]
    """Sends numbers until each is accepted; unanswered ones again after each disconnection."""

    def __init__(self, address: str, crash: Callable[[], None]) -> None:
        super().__init__()
        self.accepted: list[int] = []
        self.connections = 0
        self._address = address
        self._crash = crash
        self._waiting = list(reversed(range(COUNT)))
        self._sent: dict[str, int] = {}

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self._address)
        event.container.create_sender(connection, ADDRESS)

    def on_connection_opened(self, event: Any) -> None:
        self.connections += 1

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self._waiting:
            number = self._waiting.pop()
            self._sent[event.sender.send(proton.Message(body=number, durable=True)).tag] = number

    def on_accepted(self, event: Any) -> None:
        number = self._sent.pop(event.delivery.tag, None)
        if number is None:
            return  # the message was sent before the disconnection, and has been sent again
        self.accepted.append(number)
        if len(self.accepted) in (COUNT // 3, COUNT * 2 // 3):
            self._crash()
        if len(self.accepted) == COUNT:
            event.connection.close()

    def on_disconnected(self, event: Any) -> None:
        self._waiting += sorted(self._sent.values(), reverse=True)
        self._sent.clear()


class Consuming(handlers.MessagingHandler):  # type: ignore[misc]
    """Accepts messages until every number has arrived."""

    def __init__(self, address: str, crash: Callable[[], None]) -> None:
        super().__init__(prefetch=100)
        self.seen: Counter[int] = Counter()
        self.connections = 0
        self._address = address
        self._crash = crash

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self._address)
        event.container.create_receiver(connection, ADDRESS)

    def on_connection_opened(self, event: Any) -> None:
        self.connections += 1

    def on_message(self, event: Any) -> None:
        new = event.message.body not in self.seen
        self.seen[event.message.body] += 1
        if new and len(self.seen) in (COUNT // 3, COUNT * 2 // 3):
            self._crash()
        if new and len(self.seen) == COUNT:
            event.connection.close()


class Broker:
    """A broker that is killed and started again, at the same place with the same data."""

    def __init__(self, start_daemon: DaemonStarter) -> None:
        self._start = start_daemon
        self.daemon: Daemon = start_daemon()

    def crash(self) -> None:
        """Kill it, and start it again."""
        self.daemon.kill()
        self.daemon = self._start(port=self.daemon.address.port)


@pytest.fixture
def broker(start_daemon: DaemonStarter) -> Broker:
    """A broker with a durable queue."""
    broker = Broker(start_daemon)
    peer = Peer(broker.daemon.address).open()
    peer.channel().declare("orders", durable=True)
    peer.close()
    return broker


def run(handler: Any) -> None:
    """Let it go on until it has closed its connection."""
    container = reactor.Container(handler)
    container.timeout = 1
    late = time.monotonic() + PATIENCE_S * 2
    container.start()
    while container.process():
        assert time.monotonic() < late, "it has come to a halt"
    container.stop()
    container.process()


def left(broker: Broker) -> list[Any]:
    """Return the messages in the queue."""
    connection = utils.BlockingConnection(url(broker.daemon.address), timeout=PATIENCE_S)
    try:
        return bodies(drain(connection.create_receiver(ADDRESS), COUNT * 2))
    finally:
        connection.close()


def test_a_publisher_reconnects_and_accepted_messages_are_in_the_queue(broker: Broker) -> None:
    publisher = Publishing(url(broker.daemon.address), broker.crash)
    run(publisher)
    assert publisher.connections == 3
    assert sorted(publisher.accepted) == list(range(COUNT))
    assert sorted(set(left(broker))) == list(range(COUNT))


def test_a_consumer_reconnects_and_receives_every_message(broker: Broker) -> None:
    run(Publishing(url(broker.daemon.address), lambda: None))
    consumer = Consuming(url(broker.daemon.address), broker.crash)
    run(consumer)
    assert consumer.connections == 3
    assert sorted(consumer.seen) == list(range(COUNT))
    assert left(broker) == []


class Knocking(handlers.MessagingHandler):  # type: ignore[misc]
    """Wants to work in a virtual host, and would try again for as long as that could make sense."""

    def __init__(self, address: str, virtual_host: str) -> None:
        super().__init__()
        self.condition = ""
        self.attempts = 0
        self._address = address
        self._virtual_host = virtual_host

    def on_start(self, event: Any) -> None:
        event.container.connect(self._address, virtual_host=self._virtual_host)

    def on_connection_bound(self, event: Any) -> None:
        self.attempts += 1

    def on_connection_error(self, event: Any) -> None:
        self.condition = event.connection.remote_condition.name


def test_a_client_stops_trying_a_virtual_host_that_is_not_there(daemon: Daemon) -> None:
    knocking = Knocking(url(daemon.address), "vhost:nowhere")
    run(knocking)
    assert (knocking.condition, knocking.attempts) == ("amqp:unauthorized-access", 1)
