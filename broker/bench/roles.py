"""The roles of a run's connections, for every protocol."""

from typing import Protocol

from broker.bench.connection import BenchError
from broker.bench.messages import Receipts
from broker.bench.plan import Address


class Peer(Protocol):
    """A connection. `failure`: the reason of its end."""

    failure: BenchError | None

    async def open(self, address: Address) -> None:
        """Connect and log in. Raises BenchError."""

    async def close(self) -> None:
        """Close the connection. The broker has read everything written before. Raises BenchError."""


class Consumer(Peer, Protocol):
    """Consumes from its queues, settles, and counts what it receives in the run's flow."""

    receipts: Receipts

    async def start(self) -> None:
        """Consume from every queue. Raises BenchError."""

    def finish(self) -> None:
        """Settle the deliveries of an incomplete group of `ack_every`."""


class PublisherPort(Protocol):
    """The publisher of a sender: publishes at the right time, and counts confirms."""

    def confirm(self, first: int, last: int, nack: bool) -> None:
        """Handle the broker's ack or nack of messages `first` to `last` of the connection, counted from 1.

        `first` 0: all messages up to `last`; both 0: all messages.
        """

    def resume(self) -> None:
        """Resume publishing."""


class Sender(Peer, Protocol):
    """Sends messages to its lanes, which have the indexes 0, 1, ...

    `paused`: nothing may be sent. `blocked`: the broker has blocked publishers. `publisher`: gets confirms
    and resumes.
    """

    paused: bool
    blocked: bool
    publisher: PublisherPort | None

    async def prepare(self) -> None:
        """Prepare to send. Raises BenchError."""

    def message_bytes(self, turn: int) -> int:
        """Return the size of a lane's messages in frames."""

    def room(self, turn: int) -> int:
        """Return how many messages the broker accepts now.

        If none, the publisher is resumed when it accepts more.
        """

    def send(self, turn: int, count: int, sequence: int, now: int) -> None:
        """Send `count` messages from `sequence` on, published at `now` (nanoseconds)."""
