"""The oracle of the queues' structure: brute force over everything, after every operation.

The invariants: I1 conservation, I2 order and counts, I3 ownership, I4 no available entry is hidden behind a
cursor and no cursor is dead, I5 states and lists, I6 who is relied upon has a turn coming; D4 one consumer at
a time, D7 windows; L1 leases end in time, L2 an alarm is set for the first; R1 what waits to be tried again
has its time set; T2 time is as it was; X1 the index. Of message groups: G1 counts, G2 who owns what knows it,
G3 what is parked is found by the owner, or by everybody if the group is free, G4 nothing is kept that is not
needed, G5 what is done in turns to come goes on. `queue_clients` has the checks at a delivery and at rest.
"""

from __future__ import annotations

from itertools import pairwise

from broker.core.entries.cursor import SWEEP, Cursor
from broker.core.entries.entry import ACQUIRED, AVAILABLE, HELD, QueueEntry
from broker.core.entries.index import Index
from broker.core.queues.consumer import (
    BLOCKED_BY_SIZE,
    BLOCKED_BY_STANDBY,
    BLOCKED_BY_TARGET,
    INTERESTED,
    NON_ACQUIRING,
    NOT_INTERESTED,
    NOTIFIED,
    REMOVED,
    QueueConsumer,
)
from broker.core.queues.election import is_served
from broker.core.queues.group import Group, group_of, holding_of
from broker.core.queues.groups import Groups
from broker.core.queues.queue import Queue
from tests.property.queue_clients import probe_of, wants_work
from tests.property.queue_model import Model, attached, precedence
from tests.property.queue_rules import KEPT, OUT, READY, DivisorView, key_of
from tests.property.queue_world import World
from tests.support.core.queue_bench import number_of


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


# ---- cursors


def check_cursors(queue: Queue) -> None:
    live = set(queue.entries)
    if queue.index is not None:
        check_index(queue, queue.index)
    browsing = check_browsers(queue)
    for context in (queue.context, *filtered(queue), *browsing):
        assert context.last in live or context.last is context.entries.head, "a dead cursor"
        spare = SWEEP + len(browsing) if context in browsing else 0
        if context.late is not None:
            assert live.issuperset(context.late.entries(context.last)), "late arrivals that are gone"
        assert len(context.behind) <= max(64, 2 * len(live)) + spare, "dead entries are kept"
    for context in (queue.context, *filtered(queue)):
        behind = set(context.all_behind())
        for entry in live:
            passed = not context.last.precedes(entry)
            if entry.state == AVAILABLE and passed and context.sees(entry):
                group = group_of(entry)
                parked = group is not None and entry in group.parked.get(context, ())
                assert entry in behind or parked, "I4: hidden behind the cursor"


def filtered(queue: Queue) -> list[Cursor]:
    """The cursors of consumers that do not see everything."""
    served = queue.index.served if queue.index is not None else {}
    assert all(postings.contexts for postings in served)
    return queue.filtered + [context for postings in served for context in postings.contexts]


def check_index(queue: Queue, index: Index) -> None:
    """X1: an entry is in the posting list of each of its values, in order. A list exists while needed."""
    looking = [*filtered(queue), *(queue.browsers.cursors if queue.browsers is not None else ())]
    for header, name in enumerate(index.names):
        lists = index.posting_lists[header]
        entries_by_value: dict[object, list[QueueEntry]] = {value: [] for value in lists}
        for entry in queue.entries:
            value = DivisorView(entry.message).lookup(name)
            if value is not None:
                entries_by_value[value].append(entry)
        for value, postings in lists.items():
            entries = []
            posting = postings.first
            while posting is not None:
                entries.append(posting.entry)
                assert index.posting(posting.entry, postings) is posting
                posting = posting.after
            assert entries == entries_by_value[value], "X1"
            assert postings.users == sum(context.postings is postings for context in looking), "X1"
            assert postings.users or entries, "X1: nobody needs it"


def check_browsers(queue: Queue) -> list[Cursor]:
    """Check that the positions of all browsers' cursors are known."""
    wanted = {consumer.context for consumer in queue.manager.all if not consumer.acquires}
    stood_on = {entry for entry in (queue.entries.head, *queue.entries) if entry.stood_on}
    if queue.browsers is None:
        assert not wanted
        assert not stood_on
        return []
    cursors = list(queue.browsers.cursors)
    assert wanted <= set(cursors)
    assert len(cursors) <= len(wanted) + bool(queue.manager.purges), "only a purge has one besides"
    standing = [(entry, cursor) for entry, there in queue.browsers.standing.items() for cursor in there]
    assert {cursor: entry for entry, cursor in standing} == {cursor: cursor.last for cursor in cursors}
    assert len(standing) == len(cursors)
    assert all(queue.browsers.standing.values()), "nobody stands there any more"
    assert all(entry.stood_on for entry, _ in standing)
    assert stood_on <= {entry for entry, _ in standing}
    return cursors


# ---- message groups


def check_groups(queue: Queue) -> None:
    groups = queue.discipline
    if not isinstance(groups, Groups):
        assert not any(entry.group for entry in queue.entries)
        return
    members: dict[str, list[QueueEntry]] = {}
    for entry in queue.entries:
        key = key_of(number_of(entry))
        assert (entry.group is not None) == bool(key)
        if entry.group is not None:
            assert groups.by_key[key] is entry.group, "G1"
            members.setdefault(key, []).append(entry)
    assert len(groups.idle) <= groups.idle_max
    for key, group in groups.by_key.items():
        entries = members.get(key, [])
        assert group.entries == len(entries), "G1"
        assert group.inflight == sum(entry.owner is not None for entry in entries), "G1"
        assert (group in groups.idle) == (group.entries == 0), "G4"
        assert group.entries or group.owner, "G4"
        assert waits(groups, group) or not (group.shut and group.inflight == 0), "G4: nothing is waited for"
        owners: set[QueueConsumer] = set()
        for entry in entries:
            if entry.owner and not entry.owner.no_ack:
                assert isinstance(entry.owner, QueueConsumer)
                owners.add(entry.owner)
        assert owners <= {group.owner} or are_requests(owners, group.owner), (
            "D5: one has all, but for operators"
        )
        batch = set(group.batch or ())
        assert batch <= set(entries), "G1"
        assert all(entry.owner is not None for entry in batch), "G1: what is promised is out"
        assert group.batch is None or batch, "G4"
        assert len(set(group.line)) == len(group.line), "G4: an entry is in its line once"
        check_owner(groups, group)
        check_parked(groups, group)
    later = groups.release
    assert groups.pauses == (later is not None), "G5"
    assert later is None or later.due > 0, "G5: those that wait have turns to come"
    assert not groups._freed, "G4: everybody has been told"
    assert not groups._opened, "G4: everybody has been told"
    assert not groups._closed, "G4: everybody has been told"
    assert all(holding.groups for holding in groups._gets.values()), "G4"


def are_requests(owners: set[QueueConsumer], owner: QueueConsumer | None) -> bool:
    """Whether all owners are basic.gets of the same session."""
    everybody = owners | ({owner} if owner else set())
    sessions = {consumer.target.peers for consumer in everybody}
    return len(sessions) == 1 and all(each.getting or each.state == REMOVED for each in everybody)


def waits(groups: Groups, group: Group) -> bool:
    return groups.release is not None and groups.release.contains(group)


def check_owner(groups: Groups, group: Group) -> None:
    owner = group.owner
    if owner is None:
        return
    holding = holding_of(owner)
    assert holding is not None, "G2"
    assert group.shut or group in holding.groups, "G2"
    assert holding.context is owner.context, "G2"
    if groups.strict and owner.getting:
        assert holding is groups._gets[owner.target.peers], "G2"
    if group.inflight == 0 and not waits(groups, group):
        assert groups.sticky, "G4"
        assert owner.state != REMOVED, "G4"


def check_parked(groups: Groups, group: Group) -> None:
    for context, heap in group.parked.items():
        assert len(heap) <= 2 * group.entries + 8, "G4"
        parked = [entry for entry in heap if entry.state == AVAILABLE]
        if not parked or context.is_left:
            continue
        first = min(parked)
        if not groups.is_open(first):
            continue
        owner = group.owner
        if owner is None:
            behind = ready_behind(context, group)
            assert behind, "G3: a free group is parked where nobody finds it"
        elif owner.context is context and not waits(groups, group):
            holding = holding_of(owner)
            assert holding is not None
            heads = [head.entry for head in holding.heads if head.group is group]
            behind = ready_behind(context, group)
            assert any(not first.precedes(head) for head in heads + behind), "G3: the owner is not told"


def ready_behind(context: Cursor, group: Group) -> list[QueueEntry]:
    """The ready entries of `group` that lie behind the cursor of `context`."""
    return [entry for entry in context.all_behind() if entry.group is group and entry.state == AVAILABLE]
