"""The search for the next entry for a consumer of a queue with message groups."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from mypy_extensions import i64

from broker.core.consumer import REMOVED, QueueConsumer
from broker.core.context import QueueContext
from broker.core.entry import AVAILABLE, QueueEntry
from broker.core.group import Head

if TYPE_CHECKING:
    from broker.core.groups import Groups


def next_for(groups: Groups, consumer: QueueConsumer) -> QueueEntry | None:
    """The first that `consumer` sees of what is free, its own, or in no group; None as `next_entry` has it.

    What is not for it is passed by once: it is parked with its group.
    """
    context = consumer.context
    context.more = False
    own = _first_own(groups, consumer)
    limit = context.effort + context.scan_budget
    entry = context.first_behind()
    while entry is not None:
        if own is not None and own.precedes(entry):
            break
        if entry.state == AVAILABLE and (context.filter is None or context.passes(entry)):
            if _may_have(groups, consumer, entry):
                return entry
            context.skip_first(entry)
            _park(groups, context, entry)
        else:
            context.skip_first(entry)
        context.effort += 1
        if context.effort >= limit:
            context.more = True
            return None
        entry = context.first_behind()
    if own is None:
        return _scan(groups, consumer, context, limit)
    holding = groups.holding_of(consumer)
    assert holding is not None, "who has something parked owns a group"
    holding.take_first()
    heappush(context.behind, own)  # it is the first there, where `acquire` looks for it
    return own


def _may_have(groups: Groups, consumer: QueueConsumer, entry: QueueEntry) -> bool:
    group = entry.group
    if group is None:
        return True
    owner = group.owner
    if owner is not None and owner is not consumer and not groups.owns(consumer, group):
        return False
    return groups.is_open(entry)


def _scan(groups: Groups, consumer: QueueConsumer, context: QueueContext, limit: i64) -> QueueEntry | None:
    """Walk on from where the cursor stands; None at the end, or with `more` where the effort ends."""
    entries = context.entries
    entry = entries.next(context.last)
    while entry is not None:
        if entry.state == AVAILABLE and (context.filter is None or context.passes(entry)):
            if _may_have(groups, consumer, entry):
                return entry
            context.last = entry
            _park(groups, context, entry)
        else:
            context.last = entry
        context.effort += 1
        entry = entries.next(entry)
        if context.effort >= limit and entry is not None:
            context.more = True
            return None
    return None


def _park(groups: Groups, context: QueueContext, entry: QueueEntry) -> None:
    """`context` passes an entry that is not for who looks."""
    group = entry.group
    assert group is not None, "what is in no group is for everybody"
    owner = group.owner
    is_first = group.park(context, entry)
    if owner is not None:
        holding = owner.holding
        assert holding is not None, "it knows its groups"
        is_first = is_first or (groups.strict and group.first_parked(context) is entry)
        if is_first and holding.context is context and groups.is_open(entry):
            holding.add_head(group)
    rules = groups.queue.rules
    if rules is not None and rules.victims is not None and context is groups.queue.context:
        rules.victims.offer(entry)


def _first_own(groups: Groups, consumer: QueueConsumer) -> QueueEntry | None:
    """The first that is parked of the groups that `consumer` owns."""
    holding = groups.holding_of(consumer)
    if holding is None or holding.context is not consumer.context:
        return None
    if holding.moves != groups.moves and consumer.state == REMOVED:
        holding.shut_all(groups.moves)  # a get that takes several: who is attached gets nothing meanwhile
    heads = holding.heads
    while heads:
        head = heads[0]
        group = head.group
        entry: QueueEntry | None = None
        if not group.shut and groups.owns(consumer, group):
            entry = group.first_parked(holding.context)
        if entry is None or not groups.is_open(entry):
            heappop(heads)
        elif entry is head.entry:
            return entry
        else:
            heapreplace(heads, Head(entry, group))
    return None
