"""The clients of the simulation: consumers that report their deliveries, and connections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from broker.core.delivery.credit import Credit
from broker.core.delivery.session import Connection, PullingTarget, Session
from broker.core.entries.entry import QueueEntry
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.lease import Lease, LeaseHolder
from broker.core.queues.state import owns
from tests.simulation.queues.book import Book
from tests.simulation.queues.calling import Calls
from tests.simulation.queues.model import Item, Shelf, Taker
from tests.simulation.queues.windows import Line, Talk, Window
from tests.support.core.hand_clock import HandClock


@dataclass(eq=False)
class Held:
    """An unsettled delivery. `ends`: the end of its lease."""

    client: Client
    consumer: QueueConsumer
    entry: QueueEntry
    item: Item
    number: int
    ends: int | None = None
    in_transaction: bool = False

    @property
    def taker(self) -> Taker:
        return self.client.takers[self.consumer]

    @property
    def shelf(self) -> Shelf:
        return self.taker.queue

    @property
    def there(self) -> bool:
        """Whether something becomes of it: it is no browser's, and its queue has not been deleted."""
        return self.consumer.acquires and not self.shelf.deleted

    def is_out(self) -> bool:
        """Whether the core has it as it was when it was delivered."""
        return self.consumer.acquires and owns(self.consumer, self.entry, self.consumer.queue)


@dataclass(eq=False)
class Channel:
    """A session, its window, and the model of both."""

    session: Session
    credit: Credit
    talk: Talk


@dataclass(eq=False)
class Wire:
    """A connection with its sessions."""

    connection: Connection
    line: Line
    channels: list[Channel] = field(default_factory=list)


class ClientWorld(Protocol):
    """The parts of a world that its clients read and report to."""

    clock: HandClock
    book: Book
    calls: Calls

    def delivered(self, client: Client, consumer: QueueConsumer, entry: QueueEntry) -> Held | None:
        """Record that `consumer` is given `entry`."""

    def woken(self, client: Client) -> None:
        """Record that `client` is notified."""

    def drained(self, client: Client, consumer: QueueConsumer) -> None:
        """Record that `consumer` looked for something and found nothing."""

    def credit_restored(self, client: Client, count: int, size: int) -> None:
        """Record that `client` has the credit of `count` deliveries with `size` bytes back."""

    def queue_deleted(self) -> None:
        """Record that clients learn of the deleted queue."""

    def on_leases_ended(self, ended: list[Held]) -> None:
        """Return the deliveries whose leases have ended."""


class Client(PullingTarget):
    """The client's end of a consumer, of a consumer of several queues, or of a basic.get."""

    waits = False  # a basic.get is not known before it begins

    def __init__(self, world: ClientWorld, channel: Channel, window: Window, shared: bool) -> None:
        credit = Credit(window.count_max, window.bytes_max)
        super().__init__(channel.session, credit, channel.credit if shared else None)
        self.world = world
        self.channel = channel
        self.window = window
        self.windows = [window, channel.talk.shared] if shared else [window]
        self.takers: dict[QueueConsumer, Taker] = {}
        self.held: list[Held] = []
        self.leaving: list[Held] = []  # settled, refused or given back, with turns to come
        self.lost: list[Held] = []  # taken back while they are in transactions, which give the credit back
        self.terms = Terms(self)
        self.lease: Lease | None = None
        self.forgets = False  # a browser that has room again for each message as soon as it has seen it

    def wants_work(self) -> bool:
        """Flow is none of the business of gets (ConsumerTarget)."""
        if self.waits:
            return not self.closed and not self.session.connection.blocked and self.credit.has()
        return super().wants_work()

    def hold(self, held: Held) -> None:
        """Keep this delivery until it is settled."""
        self.held.append(held)
        if self.lease is not None:
            held.ends = self.world.clock.now + self.lease.milliseconds
            self.terms.held[held.number] = held
            self.lease.begin(held.number)

    def charge(self, size: int) -> None:
        """The model's windows know of a delivery."""
        for window in self.windows:
            window.used += 1
            window.used_bytes += size

    def restore_credit(self, size: int) -> None:
        """A delivery is settled or returned: the model's windows learn it first (ConsumerTarget)."""
        self.world.book.settle_down()
        for window in self.windows:
            window.used -= 1
            window.used_bytes -= size
        super().restore_credit(size)

    def restore_all(self, count: int, size: int) -> None:
        """The same of `count` deliveries with `size` bytes together."""
        self.world.credit_restored(self, count, size)
        self.world.book.settle_down()
        for window in self.windows:
            window.used -= count
            window.used_bytes -= size
        super().restore_all(count, size)

    def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        with self.world.calls.out("deliver"):
            self.world.delivered(self, consumer, entry)

    def notify_work(self) -> None:
        with self.world.calls.out("notify_work"):
            self.world.woken(self)
            super().notify_work()

    def on_no_messages(self, consumer: QueueConsumer) -> None:
        with self.world.calls.out("on_no_messages"):
            self.world.drained(self, consumer)

    def on_acquisition_removed(self, entry: QueueEntry) -> None:
        with self.world.calls.out("on_acquisition_removed"):
            self.world.queue_deleted()
            self.take_back([held for held in self.held if held.entry is entry])

    def on_consumer_cancelled(self, consumer: QueueConsumer) -> None:
        with self.world.calls.out("on_consumer_cancelled"):  # entries shown to a browser
            self.world.queue_deleted()
            self.take_back([held for held in self.held if held.consumer is consumer])

    def take_back(self, helds: list[Held]) -> None:
        """Take these deliveries from the client without a request of the client."""
        for held in helds:
            self.held.remove(held)
            if held.in_transaction:
                self.lost.append(held)
            else:
                self.restore_credit(held.item.note.size)


class Terms(LeaseHolder):
    """The deliveries of a client that are on lease."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.held: dict[int, Held] = {}

    def is_unsettled(self, number: int) -> bool:
        held = self.held[number]
        return held in self.client.held and not held.in_transaction

    def on_leases_ended(self, numbers: list[int]) -> None:
        self.client.world.on_leases_ended([self.held.pop(number) for number in numbers])
