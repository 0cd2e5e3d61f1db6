"""The clients of the world: what each client holds, what it may have, and the checks of what it gets.

The invariants at a delivery: D1 strict order, D2 the filter, D3 consumer priority, D4 where one consumer is
served at a time it is the active one, D5 nothing is out that the queue's rule holds back, D6 a browser sees
an entry once, D7 windows, D8 the most urgent entry first, D9 redelivered and delivery count, I3 ownership, T1
nothing late is delivered. A lease ends to the millisecond, L1. The invariants at rest: Q1 no lost wake-up, Q2
nobody notified, Q3 browsers have seen all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from broker.core.delivery.credit import Credit
from broker.core.delivery.session import Connection, PullingTarget, Scheduler, Session
from broker.core.entries.entry import ACQUIRED, AVAILABLE, QueueEntry
from broker.core.queues.consumer import BLOCKED_BY_SIZE, NOTIFIED, QueueConsumer
from broker.core.queues.lease import Lease, LeaseHolder
from broker.core.queues.queue import Queue, queue_of
from broker.core.queues.returns import release_entries
from tests.property.queue_model import Model, attached, precedence, sees
from tests.property.queue_rules import READY, Item
from tests.support.core.hand_clock import HandClock
from tests.support.core.queue_bench import number_of

Held = tuple[QueueConsumer, QueueEntry]  # another delivery of the same entry is another object


class ProbedWorld(Protocol):
    """The parts of a world that its clients read and report to."""

    clock: HandClock

    def delivered(self, probe: Probe, consumer: QueueConsumer, entry: QueueEntry) -> None:
        """Record that `consumer` has just been given `entry`."""

    def items_back(self, entries: list[QueueEntry]) -> None:
        """Record that these entries return to their queues."""

    def model_of(self, queue: Queue) -> Model:
        """The model of `queue`."""
        ...


class Probe(PullingTarget):
    """A client's end that reports to the world."""

    def __init__(
        self, world: ProbedWorld, session: Session, credit: Credit, session_credit: Credit | None
    ) -> None:
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
        check_nothing_available(self.world.model_of(queue_of(consumer)), self, consumer)

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


# ---- deliveries that the model allows


def has_credit(probe: Probe) -> bool:
    """Return whether the target has credit by definition, not by its own record."""
    windows = [probe.credit] + ([probe.session_credit] if probe.session_credit else [])
    return all(
        (not window.count_max or window.used < window.count_max)
        and (not window.bytes_max or window.used_bytes < window.bytes_max)
        for window in windows
    )


def has_room(probe: Probe, size: int) -> bool:
    windows = [probe.credit] + ([probe.session_credit] if probe.session_credit else [])
    return has_credit(probe) and all(
        not window.bytes_max or not window.used_bytes or window.used_bytes + size <= window.bytes_max
        for window in windows
    )


def wants_work(probe: Probe) -> bool:
    session = probe.session
    return not probe.closed and session.flow and not session.connection.blocked and has_credit(probe)


def probe_of(consumer: QueueConsumer) -> Probe:
    assert isinstance(consumer.target, Probe)
    return consumer.target


def outranking(model: Model, consumer: QueueConsumer, item: Item) -> bool:
    """Whether a higher-priority consumer wants `item` and does not wait for room for an earlier one."""
    if model.rule.is_batching(item):
        return False  # the entry goes to any consumer of the transaction's session
    return any(
        precedence(other) > precedence(consumer)
        and other.acquires
        and not other.blockers
        and wants_work(probe_of(other))
        and model.may_have(other, item)
        and has_room(probe_of(other), item.size)
        and has_room(probe_of(other), (model.first_for(other) or item).size)
        for other in attached(queue_of(consumer))
    )


def immediate_taker_exists(model: Model, item: Item) -> bool:
    """Whether a consumer could take `item` at this moment, before its publication."""
    able = [c for c in attached(model.queue) if c.acquires and not c.blockers & ~BLOCKED_BY_SIZE]
    able = [c for c in able if wants_work(probe_of(c)) and not lacks_room_before(model, c, item)]
    able = [consumer for consumer in able if model.may_have(consumer, item)]
    top = max(map(precedence, able), default=None)
    for consumer in able:
        first = model.first_for(consumer)
        is_next = first is None or item < first
        if is_next and precedence(consumer) == top and has_room(probe_of(consumer), item.size):
            return True
    return False


def lacks_room_before(model: Model, consumer: QueueConsumer, item: Item) -> bool:
    """Whether `consumer` waits for room, for something that comes before `item`, or has none for `item`."""
    first = model.first_for(consumer)
    if not consumer.blockers & BLOCKED_BY_SIZE or first is None:
        return False
    return first < item or not has_room(probe_of(consumer), item.size)


# ---- checks


def check_delivery(
    now: int, model: Model, probe: Probe, consumer: QueueConsumer, item: Item, entry: QueueEntry
) -> None:
    """Check a delivery at the time `now`, after the queue's part of it and before the model's."""
    assert item.state == READY, "it is not with anybody"
    assert not item.is_late(now), "T1: its time is over"
    getting = consumer not in attached(model.queue)
    if not getting:
        assert not probe.closed
        assert probe.session.flow
        assert not probe.session.connection.blocked
    assert sees(consumer, item), "D2: it does not pass the filter"
    assert model.may_have(consumer, item), "D5: the queue's rule holds it back"
    earlier = [o for o in model.items if o < item and o.state == READY and model.may_have(consumer, o)]
    if consumer.acquires:
        assert not earlier, f"D1, D8: {item.number} delivered while {earlier[0].number} is before it"
        assert (entry.state, entry.owner) == (ACQUIRED, consumer), "I3"
        assert entry.redelivered == (item.sends > 0), "D9"
        assert entry.delivery_count == item.sends + 1, "D9"
        assert getting or not outranking(model, consumer, item), "D3"
        assert getting or model.may_be_served(consumer), "D4"
        assert getting or model.serving.lets_in(consumer), "D5: the gate is shut"
    else:
        assert entry.state == AVAILABLE
        assert (consumer, item.number) not in probe.seen, "D6: a browser saw it twice"
        missed = [
            other for other in earlier if not other.was_out and (consumer, other.number) not in probe.seen
        ]
        assert not missed, f"D1: a browser was shown {item.number} before {missed[0].number}"
    for window in [probe.credit] + ([probe.session_credit] if probe.session_credit else []):
        assert not window.count_max or window.used <= window.count_max, "D7"
        assert (
            not window.bytes_max or window.used_bytes <= window.bytes_max or window.used_bytes == item.size
        ), "D7"


def check_nothing_available(model: Model, probe: Probe, consumer: QueueConsumer) -> None:
    """Check that the end of the messages was reported to a consumer that can still take one."""
    first = model.first_for(consumer)
    if consumer.acquires:
        assert first is None or outranking_at_all(consumer), "told that there is nothing"
    else:
        for item in [item for item in model.items if sees(consumer, item)]:
            assert item.state != READY or item.was_out or (consumer, item.number) in probe.seen, "unseen"


def outranking_at_all(consumer: QueueConsumer) -> bool:
    others = attached(queue_of(consumer))
    return any(precedence(o) > precedence(consumer) and o.acquires and not o.blockers for o in others)


def check_rest(models: list[Model]) -> None:
    """Check the state in which no connection waits for a turn."""
    for model in models:
        for consumer in attached(model.queue):
            first = model.first_for(consumer)
            probe = probe_of(consumer)
            assert consumer.state != NOTIFIED, "Q2"
            if not wants_work(probe):
                continue
            if consumer.acquires:
                able = (
                    first is not None
                    and model.may_be_served(consumer)
                    and model.serving.lets_in(consumer)
                    and has_room(probe, first.size)
                    and not outranking(model, consumer, first)
                )
                assert not able, f"Q1: lost wake-up, {first and first.number} is deliverable"
                continue
            awaited = consumer.waiting_on
            if awaited is not None:
                assert not has_room(probe, awaited.message.size), "Q3: a browser waits for room that it has"
            for item in model.items:
                if awaited is not None and item.number == number_of(awaited):
                    break
                shown = item.state != READY or item.was_out or (consumer, item.number) in probe.seen
                if not shown and sees(consumer, item):
                    waits = awaited is not None and not has_room(probe, item.size)
                    assert waits, f"Q3: a browser has missed {item.number}"
                    break
