"""The oracle: brute force over everything, after every operation, at every delivery, and when all is at rest.

The invariants: I1 conservation, I2 order and counts, I3 ownership, I4 nothing takeable hidden behind a
cursor, I5 states and lists, I6 who is relied upon has a turn coming; D1 strict order, D3 consumer priority,
D4 where one consumer is served at a time it is the active one, and nobody else has anything, D6 a browser
sees an entry once, D5 nothing is out that the queue's rule holds back, D7 windows, D8 the most urgent entry
first, D9 redelivered and delivery count; L1 leases end in time, L2 an alarm is set for the first; R1 what
waits to be tried again has its time set; T1 nothing late is delivered, T2 time is as it was; Q1 no lost
wake-up, Q2 nobody notified at rest, Q3 browsers have seen all.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from broker.core.entries.entry import ACQUIRED, AVAILABLE, HELD, QueueEntry
from broker.core.queues.consumer import (
    BLOCKED_BY_SIZE,
    BLOCKED_BY_STANDBY,
    BLOCKED_BY_TARGET,
    INTERESTED,
    NON_ACQUIRING,
    NOT_INTERESTED,
    NOTIFIED,
    QueueConsumer,
)
from broker.core.queues.election import is_served
from broker.core.queues.queue import Queue, queue_of
from tests.property.queue_cursors import check_cursors, filtered
from tests.property.queue_group_checks import check_groups
from tests.property.queue_items import KEPT, OUT, READY, Item
from tests.property.queue_model import Model, attached, precedence, sees
from tests.support.core.queue_bench import number_of

if TYPE_CHECKING:
    from tests.property.queue_probe import Probe
    from tests.property.queue_world import World


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
    return consumer.target  # type: ignore[return-value]


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


def check_delivery(
    world: World, model: Model, probe: Probe, consumer: QueueConsumer, item: Item, entry: QueueEntry
) -> None:
    """Called before the model knows of it, after the queue has done its part."""
    assert item.state == READY, "it is not with anybody"
    assert not item.is_late(world.clock.now), "T1: its time is over"
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


def check_nothing_available(world: World, probe: Probe, consumer: QueueConsumer) -> None:
    """Check that the end of the messages was reported to a consumer that can still take one."""
    model = world.model_of(queue_of(consumer))
    first = model.first_for(consumer)
    if consumer.acquires:
        assert first is None or outranking_at_all(consumer), "told that there is nothing"
    else:
        for item in [item for item in model.items if sees(consumer, item)]:
            assert item.state != READY or item.was_out or (consumer, item.number) in probe.seen, "unseen"


def outranking_at_all(consumer: QueueConsumer) -> bool:
    others = attached(queue_of(consumer))
    return any(precedence(o) > precedence(consumer) and o.acquires and not o.blockers for o in others)


def check_structure(world: World) -> None:
    """Check the structure after every operation."""
    held: dict[QueueEntry, QueueConsumer] = {}
    for probe in [*world.probes, *(operator.probe for operator in world.operators)]:
        for consumer, entry in probe.held:
            if consumer.acquires:
                assert entry not in held, "I3: held twice"
                held[entry] = consumer
    for model in world.models:
        check_entries(model, held)
        check_consumers(model)
        check_cursors(model.queue)
        check_groups(model.queue)
        check_reliance(model.queue)
    check_windows(world)
    check_leases(world)
    for wire in world.wires:
        connection = wire.connection
        assert connection.scheduled == (connection in world.scheduler.ready)
        if connection.first_pending is not None and not connection.blocked:
            assert connection.scheduled, "I6: pending but not scheduled"


def check_entries(model: Model, held: dict[QueueEntry, QueueConsumer]) -> None:
    queue = model.queue
    entries = list(queue.entries)
    assert [number_of(entry) for entry in entries] == [item.number for item in model.items], "I1, I2"
    assert all(one.precedes(other) for one, other in pairwise(entries)), "I2"
    for entry, item in zip(entries, model.items, strict=True):
        assert entry.state == {READY: AVAILABLE, OUT: ACQUIRED, KEPT: HELD}[item.state], "I1"
        assert entry.owner is item.owner, "I3"
        assert held.get(entry) is item.owner, "I3: who holds it owns it"
        assert entry.state == ACQUIRED or item.owner is None, "I3"
        assert (entry.timer and entry.timer.due) == item.due, "T2"
        if entry.timer is not None:
            assert (entry.timer.entry is entry) == (item.state != OUT), "T2: it runs while nobody has it"
        if item.state == KEPT:
            assert queue.retry is not None
            assert 0 < queue.retry.due <= item.until, "R1: its time will not be told"
    for entry, waiters in queue.waiters.items():
        assert entry.state == AVAILABLE, "nobody waits on what cannot be had"
        assert waiters
        assert all(waiter.waiting_on is entry for waiter in waiters)
    ready, out, kept = (
        [item.size for item in model.items if item.state == state] for state in (READY, OUT, KEPT)
    )
    assert (queue.ready, queue.ready_bytes) == (len(ready), sum(ready)), "I2"
    assert (queue.unacked, queue.unacked_bytes) == (len(out), sum(out)), "I2"
    assert (queue.held, queue.held_bytes) == (len(kept), sum(kept)), "I2"


def check_consumers(model: Model) -> None:
    queue = model.queue
    manager = queue.manager
    model.serving.look()
    listed: list[QueueConsumer] = []
    for state, members in ((NOT_INTERESTED, manager.not_interested), (NON_ACQUIRING, manager.non_acquiring)):
        for consumer in members:
            assert consumer.state == state, "I5"
            listed.append(consumer)
    assert set(manager.posting_levels) <= set(queue.index.served if queue.index else ()), (
        "I5: a posting list left behind"
    )
    homes = [manager.levels, *manager.posting_levels.values()]
    for home in homes:
        order = [level.rank for level in home]
        assert order == sorted(order, reverse=True), "I5"
    levels = [level for home in homes for level in home]
    wanting = {(c.rank, c.context) for c in attached(queue) if c.acquires and not c.blockers}
    assert wanting == {(level.rank, level.context) for level in levels if level.wants_work}, "I5"
    assert all(level.wants_work for home in homes if len(home) > 1 for level in home), "I5"
    assert len(levels) == len({(level.rank, level.context) for level in levels}), "I5"
    for level in levels:
        for state, members in ((INTERESTED, level.interested), (NOTIFIED, level.notified)):
            for consumer in members:
                assert (consumer.state, consumer.level) == (state, level), "I5"
                listed.append(consumer)
    assert len(listed) == len(set(listed)) == len(attached(queue)), "I5: everybody is in one list"
    assert manager.interested == sum(consumer.state == INTERESTED for consumer in listed)
    assert manager.notified == sum(consumer.state == NOTIFIED for consumer in listed)
    for consumer in attached(queue):
        probe = probe_of(consumer)
        assert bool(consumer.blockers) == (consumer.state == NOT_INTERESTED), "I5"
        assert probe.desired == wants_work(probe), "the target remembers what is so"
        assert bool(consumer.blockers & BLOCKED_BY_TARGET) == (not probe.desired)
        assert bool(consumer.blockers & BLOCKED_BY_SIZE) == (consumer in queue.waiting)
        assert bool(consumer.blockers & BLOCKED_BY_STANDBY) == (not model.may_be_served(consumer)), "D4"
        assert is_served(consumer) == model.may_be_served(consumer), "D4"
        assert (consumer in queue.waiting or consumer in queue.gated) == (consumer.waiting_on is not None)
        if consumer.acquires:
            assert consumer.context in ([queue.context] if consumer.filter is None else filtered(queue))
        assert consumer.inflight == sum(entry.owner is consumer for entry in queue.entries), "I2"
        if consumer.state == NOTIFIED:
            assert probe.pending, "I6: relied upon, but no turn is coming"


def check_reliance(queue: Queue) -> None:
    """Check that while there is work, a highest consumer that wants it has a turn pending."""
    if queue.ready == 0 or not queue.alike:
        return
    able = [consumer for consumer in attached(queue) if consumer.acquires and not consumer.blockers]
    top = max(map(precedence, able), default=None)
    states = [consumer.state for consumer in able if precedence(consumer) == top]
    assert not able or NOTIFIED in states, "work is waiting and nobody is relied upon"


def check_windows(world: World) -> None:
    shared: dict[int, int] = {}
    for probe in world.probes:
        if any(consumer.no_ack for consumer in probe.consumers) or not (probe.held or probe.consumers):
            continue
        assert probe.credit.used == len(probe.held), "D7: a window counts what is out"
        assert probe.credit.used_bytes == sum(entry.message.size for _, entry in probe.held), "D7"
    for probe in world.probes:
        if probe.session_credit is not None:
            shared[id(probe.session_credit)] = shared.get(id(probe.session_credit), 0) + len(probe.held)
    for credit in [credit for wire in world.wires for _, credit in wire.sessions]:
        assert credit.used == shared.get(id(credit), 0), "D7"


def check_leases(world: World) -> None:
    for probe in world.probes:
        if probe.lease is not None:
            ends = probe.terms.outstanding()
            assert all(end > world.clock.now for end in ends), "L1: its time has come"
            assert not ends or 0 < probe.lease.due <= min(ends), "L2: its time will not be told"
            assert len(ends) == len(probe.held), "L2"


def check_rest(world: World) -> None:
    """Check the state in which no connection waits for a turn."""
    for model in world.models:
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
