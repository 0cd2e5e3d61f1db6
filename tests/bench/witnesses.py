"""Well-behaved clients beside a flood, each in a thread: a publisher, a consumer, log-ins, a clock."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pamqp.commands import Basic, Confirm, Connection, Queue

from tests.support.amqp091.frames import decode_method, publish_bytes
from tests.support.amqp091.peer import Peer
from tests.support.amqp10.peer import Peer10
from tests.support.auth.scram_client import ScramClient
from tests.support.daemon.daemon import Address

EACH_S: Final = 1.0
PATIENCE_S: Final = 30.0
QUEUE: Final = "witness"


class Witness(threading.Thread):
    """A client that does an action each second, and records its seconds.

    `failures` are the errors, each of which begins a new connection.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.seconds: list[float] = []
        self.failures: list[str] = []
        self._ending = threading.Event()

    def run(self) -> None:
        """Act each second until the end."""
        due = time.monotonic()
        while not self._ending.wait(max(0.0, due - time.monotonic())):
            began = time.monotonic()
            try:
                self.act()
            except (OSError, AssertionError) as error:
                self.failures.append(f"{self.name}: {error!r}")
                self.forget()
            else:
                self.seconds.append(time.monotonic() - began)
            due = max(due + EACH_S, time.monotonic())

    def end(self) -> None:
        """Stop after the current action."""
        self._ending.set()
        self.join(2 * PATIENCE_S)

    def act(self) -> None:
        """Do it once. Raises OSError or AssertionError: the broker did not do its part."""
        raise NotImplementedError

    def forget(self) -> None:
        """Begin anew after a failure."""

    @property
    def worst(self) -> float:
        """The longest that it took; infinite if a turn failed or none was taken."""
        return max(self.seconds, default=float("inf")) if not self.failures else float("inf")

    def quantile(self, share: float) -> float:
        """The seconds that this share of the turns took at most."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("inf")


class Publisher(Witness):
    """Publishes a persistent message each second, and waits for its confirm."""

    def __init__(self, address: Address) -> None:
        super().__init__("confirms")
        self.confirmed: list[bytes] = []
        self._address = address
        self._peer: Peer | None = None
        self._count = 0

    def act(self) -> None:
        """Publish."""
        if self._peer is None:
            self._peer = Peer(self._address, PATIENCE_S).open()
            channel = self._peer.channel()
            channel.call(Queue.Declare(queue=QUEUE, durable=True), Queue.DeclareOk)
            channel.call(Confirm.Select(), Confirm.SelectOk)
        self._count += 1
        body = b"%d" % self._count
        self._peer.send(publish_bytes(QUEUE, body, persistent=True))
        self._peer.expect(Basic.Ack, 1)
        self.confirmed.append(body)

    def forget(self) -> None:
        """Connect again."""
        self._peer = None


class Consumer(threading.Thread):
    """Takes and acknowledges everything in the queue of the publisher."""

    def __init__(self, address: Address) -> None:
        super().__init__(name="consumer", daemon=True)
        self.received: list[bytes] = []
        self.failure = ""
        self._ending = False
        self._peer = Peer(address, PATIENCE_S).open()
        channel = self._peer.channel()
        channel.call(Queue.Declare(queue=QUEUE, durable=True), Queue.DeclareOk)
        channel.call(Basic.Consume(queue=QUEUE), Basic.ConsumeOk)

    def run(self) -> None:
        """Consume until the end."""
        try:
            while True:
                method = decode_method(self._peer.next_frame(1))
                assert isinstance(method, Basic.Deliver), method
                message = self._peer.expect_content(method, 1)
                self.received.append(message.body)
                self._peer.write(Basic.Ack(message.tag), 1)
        except (OSError, AssertionError) as error:
            if not self._ending:
                self.failure = f"{self.name}: {error!r}"

    def end(self, count: int) -> None:
        """Wait for so many messages, and hang up."""
        patient_until = time.monotonic() + PATIENCE_S
        while len(self.received) < count and self.is_alive() and time.monotonic() < patient_until:
            time.sleep(0.1)
        self._ending = True
        self._peer.socket.shutdown(socket.SHUT_RDWR)
        self.join()


class LogIns(Witness):
    """Logs in each second, by another mechanism or protocol each time, and hangs up."""

    def __init__(self, address: Address) -> None:
        super().__init__("log-ins")
        self._address = address
        self._ways: tuple[Callable[[], None], ...] = (self._plain, self._plain10, self._scram)

    def act(self) -> None:
        """Log in."""
        self._ways[len(self.seconds) % len(self._ways)]()

    def _plain(self) -> None:
        _hang_up(Peer(self._address, PATIENCE_S).open())

    def _plain10(self) -> None:
        peer = Peer10(self._address, PATIENCE_S)
        peer.open()
        _hang_up(peer)

    def _scram(self) -> None:
        peer = Peer(self._address, PATIENCE_S)
        peer.start()
        client = ScramClient("guest", "guest")
        peer.write(Connection.StartOk({}, "SCRAM-SHA-256", client.first().decode()))
        challenge = peer.expect(Connection.Secure).challenge
        peer.write(Connection.SecureOk(client.final(str(challenge).encode()).decode()))
        peer.expect(Connection.Secure)
        peer.write(Connection.SecureOk(""))
        peer.tune()
        peer.write(Connection.Open("/"))
        peer.expect(Connection.OpenOk)
        _hang_up(peer)


def _hang_up(peer: Peer | Peer10) -> None:
    with suppress(OSError):
        peer.socket.close()


class Clock(threading.Thread):
    """A clock that measures how late the machine runs a thread, to subtract it from delays."""

    def __init__(self) -> None:
        super().__init__(name="clock", daemon=True)
        self.latest = 0.0
        self._ending = threading.Event()

    def run(self) -> None:
        """Look ten times a second."""
        while not self._ending.is_set():
            began = time.monotonic()
            time.sleep(0.1)
            self.latest = max(self.latest, time.monotonic() - began - 0.1)

    def end(self) -> None:
        """Stop."""
        self._ending.set()
        self.join()
