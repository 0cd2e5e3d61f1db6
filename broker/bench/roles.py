"""The roles of a run's connections, whatever protocol they speak."""

from typing import Protocol

from broker.bench.connection import BenchError
from broker.bench.messages import Receipts
from broker.bench.plan import Address


class Peer(Protocol):
    """A connection. `failure`: why it has ended."""

    failure: BenchError | None

    async def open(self, address: Address) -> None:
        """Connect and log in. Raises BenchError."""

    async def close(self) -> None:
        """Close the connection; the broker has then seen everything written to it. Raises BenchError."""


class Consumer(Peer, Protocol):
    """Consumes from its queues, settles, and counts what it receives in the run's flow."""

    receipts: Receipts

    async def start(self) -> None:
        """Consume from every queue. Raises BenchError."""

    def finish(self) -> None:
        """Settle what waits for its group of `ack_every` to fill."""


class PublisherPort(Protocol):
    """The publisher's end of a sender: decides when to publish, and learns of confirms."""

    def confirm(self, first: int, last: int, nack: bool) -> None:
        """The broker has taken, or refused, messages `first` to `last` of the connection, counted from 1.

        `first` 0: all before `last` too, and `last` 0 then: all.
        """

    def resume(self) -> None:
        """More may be published now."""


class Sender(Peer, Protocol):
    """Sends messages to its lanes, which are numbered by their turns 0, 1, ...

    `paused`: nothing may be sent. `blocked`: the broker has asked for that. `publisher`: who is told.
    """

    paused: bool
    blocked: bool
    publisher: PublisherPort | None

    async def prepare(self) -> None:
        """Make ready to send. Raises BenchError."""

    def message_bytes(self, turn: int) -> int:
        """How long a message of a lane is, in frames."""

    def room(self, turn: int) -> int:
        """How many messages the broker takes now; where none, the publisher is told when it takes more."""

    def send(self, turn: int, count: int, sequence: int, now: int) -> None:
        """Send `count` messages from `sequence` on, published at `now` (nanoseconds)."""
