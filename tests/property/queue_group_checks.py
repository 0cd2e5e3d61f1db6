"""Invariants of message groups after every operation, besides the model's checks of deliveries.

G1 counts, G2 who owns what knows it, G3 what is parked is found by the owner, or by everybody if the group is
free, G4 nothing is kept that is not needed, G5 what is done in turns to come goes on.
"""

from broker.core.entries.cursor import Cursor
from broker.core.entries.entry import AVAILABLE, QueueEntry
from broker.core.queues.consumer import REMOVED, QueueConsumer
from broker.core.queues.group import Group, holding_of
from broker.core.queues.groups import Groups
from broker.core.queues.queue import Queue
from tests.property.queue_rules import key_of
from tests.support.core.queue_bench import number_of


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
