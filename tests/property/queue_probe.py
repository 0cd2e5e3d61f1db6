"""The clients of the world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.core.delivery.credit import Credit
from broker.core.delivery.session import Connection, PullingTarget, Scheduler, Session
from broker.core.entries.entry import QueueEntry
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.lease import Lease, LeaseHolder
from broker.core.queues.queue import queue_of
from broker.core.queues.returns import release_entries
from tests.property import queue_checks as checks

if TYPE_CHECKING:
    from tests.property.queue_world import World


Held = tuple[QueueConsumer, QueueEntry]  # another delivery of the same entry is another object


class Probe(PullingTarget):
    """A client's end that reports to the world."""

    def __init__(self, world: World, session: Session, credit: Credit, session_credit: Credit | None) -> None:
        super().__init__(session, credit, session_credit)
        self.world = world
        self.held: list[Held] = []
        self.seen: set[tuple[QueueConsumer, int]] = set()
        self.terms = Terms(self)
        self.lease: Lease | None = None

    def limit(self, milliseconds: int) -> None:
        """Limit the time of deliveries; 0: no limit, also for earlier deliveries."""
        if self.lease is not None:
            self.lease.stop()
            self.lease = None
        if milliseconds:
            self.lease = Lease(self.world.clock.schedule, self.terms, milliseconds)

    def hold(self, consumer: QueueConsumer, entry: QueueEntry, number: int) -> None:
        """Keep this delivery until it is settled."""
        held = (consumer, entry)
        self.held.append(held)
        if self.lease is not None:
            self.terms.ends[number] = (held, self.world.clock.now + self.lease.milliseconds)
            self.lease.begin(number)

    def pick(self, first: int, count: int) -> list[Held]:
        """Take up to `count` deliveries from the client, from the `first` on."""
        start = first % len(self.held)
        picked = self.held[start : start + max(1, count)]
        del self.held[start : start + max(1, count)]
        return picked

    def give_back(self, consumer: QueueConsumer) -> list[QueueEntry]:
        """Take all deliveries of `consumer` from the client."""
        entries = [entry for owner, entry in self.held if owner is consumer]
        self.held = [held for held in self.held if held[0] is not consumer]
        for entry in entries:
            self.restore_credit(entry.message.size)
        return entries

    def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        self.world.delivered(self, consumer, entry)

    def on_no_messages(self, consumer: QueueConsumer) -> None:
        checks.check_nothing_available(self.world, self, consumer)

    def on_acquisition_removed(self, entry: QueueEntry) -> None:
        self.restore_credit(entry.message.size)
        self.held = [held for held in self.held if held[1] is not entry]

    def on_consumer_cancelled(self, consumer: QueueConsumer) -> None:
        shown = [
            entry for owner, entry in self.held if owner is consumer
        ]  # to a browser: the rest was taken back
        self.held = [held for held in self.held if held[0] is not consumer]
        for entry in shown:
            self.restore_credit(entry.message.size)


class Terms(LeaseHolder):
    """The latest settlement time of each delivery of a probe with a lease, by number."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.ends: dict[int, tuple[Held, int]] = {}

    def is_unsettled(self, number: int) -> bool:
        held = self.ends[number][0]
        return any(other is held for other in self.probe.held)

    def on_leases_ended(self, numbers: list[int]) -> None:
        probe = self.probe
        for number in numbers:
            assert self.is_unsettled(number)
            (consumer, entry), end = self.ends.pop(number)
            assert end == probe.world.clock.now, "L1: to the millisecond"
            probe.held = [held for held in probe.held if held[1] is not entry]
            probe.world.items_back([entry])
            release_entries(queue_of(consumer), [entry], consumer)
            probe.restore_credit(entry.message.size)

    def outstanding(self) -> list[int]:
        """Return the ends of the current leases."""
        return [end for number, (_, end) in self.ends.items() if self.is_unsettled(number)]


@dataclass
class Wire:
    """A connection with its two sessions and their shared windows."""

    connection: Connection
    sessions: list[tuple[Session, Credit]]


def new_wire(scheduler: Scheduler) -> Wire:
    """A connection that has just been opened."""
    connection = Connection(scheduler)
    return Wire(connection, [(Session(connection), Credit()) for _ in range(2)])


def pick(
    probes: list[Probe], which: int, first: int, count: int
) -> list[tuple[Probe, QueueConsumer, QueueEntry]]:
    """Take up to `count` deliveries of a client, from the `first` on."""
    holders = [probe for probe in probes if probe.held]
    if not holders:
        return []
    probe = holders[which % len(holders)]
    return [(probe, consumer, entry) for consumer, entry in probe.pick(first, count)]
