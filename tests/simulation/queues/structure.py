"""The invariants of the queue's own state, after every step: I2 to I8."""

from __future__ import annotations

from itertools import pairwise

from broker.core.entries.cursor import SWEEP
from broker.core.entries.entry import ACQUIRED, AVAILABLE, QueueEntry
from broker.core.entries.entry import HELD as WAITING
from broker.core.queues.consumer import (
    BLOCKED_BY_GATE,
    BLOCKED_BY_PURGE,
    BLOCKED_BY_RETURNS,
    BLOCKED_BY_SIZE,
    BLOCKED_BY_STANDBY,
    BLOCKED_BY_STOP,
    BLOCKED_BY_TARGET,
    INTERESTED,
    NON_ACQUIRING,
    NOT_INTERESTED,
    NOTIFIED,
    REMOVED,
    QueueConsumer,
)
from broker.core.queues.dead_letter_backlog import Lane, existing_backlog
from broker.core.queues.group import Group, holding_of
from broker.core.queues.groups import Groups
from broker.core.queues.hooks import LimitsHook
from broker.core.queues.queue import Queue
from tests.simulation.queues.clients import Client
from tests.simulation.queues.invariants import Seen, check
from tests.simulation.queues.model import HELD, OUT, READY, Shelf

NOT_SERVED = BLOCKED_BY_STANDBY | BLOCKED_BY_STOP | BLOCKED_BY_GATE | BLOCKED_BY_PURGE | BLOCKED_BY_RETURNS
STALE = 8  # entries that have left of which a group need not let go
STATES = {READY: AVAILABLE, OUT: ACQUIRED, HELD: WAITING}


def check_structure(seen: Seen, shelf: Shelf, queue: Queue, numbers: dict[QueueEntry, int], now: int) -> None:
    """`numbers`: of the messages of the queue's entries, in its order."""
    check_entries(seen, shelf, queue, numbers)
    check_consumers(seen, queue, shelf, now)
    check_cursors(seen, queue, numbers)
    check_reliance(seen, queue)
    check_groups(seen, shelf, queue)
    if shelf.spec.keeps:
        taken = (queue.unacked, queue.acked, queue.redelivered)
        check(seen, "K1", taken == (0, 0, 0), f"consumers have taken {taken}")


def check_entries(seen: Seen, shelf: Shelf, queue: Queue, numbers: dict[QueueEntry, int]) -> None:
    expected = [item.number for item in shelf.items]
    numbers_there = list(numbers.values())
    check(seen, "I1", numbers_there == expected, f"queue {shelf.name} has {numbers_there}, not {expected}")
    in_order = all(one.precedes(other) for one, other in pairwise(numbers))
    check(seen, "I2", in_order, "entries are out of order")
    for entry, waiters in queue.waiters.items():
        if entry is queue.entries.head:
            check(seen, "I3", not waiters and bool(shelf.sought), "somebody waits for the head")
            continue
        check(seen, "I3", entry.state == AVAILABLE, "somebody waits for what cannot be had")
        check(seen, "I3", all(waiter.waiting_on is entry for waiter in waiters), "who waits for it")
    ready = ready_bytes = out = out_bytes = 0
    for entry, item in zip(numbers, shelf.items, strict=True):
        state = STATES[item.state]
        check(seen, "I2", entry.state == state, f"{item.number} is {item.state}")
        check(seen, "I3", (entry.owner is None) == (item.holder is None), f"who has {item.number}")
        if item.state == READY:
            ready += 1
            ready_bytes += item.note.size
        elif item.state == OUT:
            out += 1
            out_bytes += item.note.size
            assert isinstance(entry.owner, QueueConsumer)
            client = entry.owner.target
            assert isinstance(client, Client)
            holds = [held.item for held in client.held + client.leaving if held.entry is entry]
            check(seen, "I3", holds == [item], f"{item.number} is held by who does not own it")
        check(seen, "I2", (entry.timer and entry.timer.due) == item.due, f"the time of {item.number}")
    total = sum(item.note.size for item in shelf.items)
    counts = (
        queue.ready,
        queue.ready_bytes,
        queue.unacked,
        queue.unacked_bytes,
        queue.held,
        queue.held_bytes,
    )
    recount = (
        ready,
        ready_bytes,
        out,
        out_bytes,
        len(expected) - ready - out,
        total - ready_bytes - out_bytes,
    )
    check(seen, "I2", counts == recount, f"{counts} instead of {recount}")


def check_dead(seen: Seen, shelf: Shelf, queue: Queue, waiting: list[tuple[int, str]]) -> None:
    """`waiting`: the messages that wait to be dead-lettered, and why they died."""
    check(seen, "I1", waiting == list(shelf.dead.items()), f"{waiting} wait, not {shelf.dead}")
    counts = (queue.dead, queue.dead_bytes, queue.messages)
    recount = (len(waiting), sum(shelf.dead_sizes.values()), len(shelf.items) + len(waiting))
    check(seen, "Z2", counts == recount, f"{counts} instead of {recount}")
    limits = queue.limits
    sought = set() if limits is None else room_waiters(limits)
    check(seen, "Z3", sought == shelf.sought, f"{sought} wait for room, not {shelf.sought}")
    backlog = existing_backlog(queue)
    if backlog is not None:
        deaths = backlog.deaths()
        looked_up = [backlog.find(death.message.sequence, death.arrival) for death in deaths]
        check(seen, "Z2", looked_up == deaths == backlog.after(0, len(deaths) + 1), "who is found")


def room_waiters(limits: LimitsHook) -> set[str]:
    """The names of the queues whose dead letters wait for room in the queue that has these limits."""
    names: set[str] = set()
    for lane in limits.room_waiters:
        assert isinstance(lane, Lane)
        names.add(lane.backlog.queue.name)
    return names


def check_consumers(seen: Seen, queue: Queue, shelf: Shelf, now: int) -> None:
    manager = queue.manager
    everybody = [*manager.all, *manager.gets]
    listed: list[QueueConsumer] = []
    for state, members in ((NOT_INTERESTED, manager.not_interested), (NON_ACQUIRING, manager.non_acquiring)):
        for consumer in members:
            check(seen, "I5", consumer.state == state, "a consumer is in the wrong list")
            listed.append(consumer)
    for level in manager.levels:
        for state, members in ((INTERESTED, level.interested), (NOTIFIED, level.notified)):
            for consumer in members:
                check(seen, "I5", consumer.state == state and consumer.level is level, "a wrong list")
                listed.append(consumer)
    check(seen, "I5", len(listed) == len(set(listed)) == len(everybody), "everybody is in one list")
    counted = (manager.interested, manager.notified)
    recount = tuple(sum(other.state == state for other in listed) for state in (INTERESTED, NOTIFIED))
    check(seen, "I5", counted == recount, f"{counted} instead of {recount}")
    order = [level.rank for level in manager.levels]
    check(seen, "I5", order == sorted(order, reverse=True), "levels are out of order")
    for consumer in everybody:
        check(seen, "I5", bool(consumer.blockers) == (consumer.state == NOT_INTERESTED), "blockers")
        client = consumer.target
        assert isinstance(client, Client)
        taker = client.takers[consumer]
        suspended = bool(consumer.blockers & BLOCKED_BY_TARGET)
        check(seen, "I5", suspended == taker.suspended(), f"suspended: {suspended}")
        standing_by = bool(consumer.blockers & NOT_SERVED)
        check(seen, "D4", standing_by != shelf.service.is_served(taker, now), f"stands by: {standing_by}")
        waiting = bool(consumer.blockers & BLOCKED_BY_SIZE)
        check(seen, "I5", waiting == (consumer in queue.waiting), "who waits for room")
        awaits = consumer in queue.waiting or consumer in queue.gated
        check(seen, "I5", awaits == (consumer.waiting_on is not None), "who waits for an entry")
        if consumer.waiting_on is not None:
            waiters = queue.waiters.get(consumer.waiting_on, [])
            check(seen, "I3", consumer in waiters, "a waiter is forgotten")
        held = sum(item.holder is taker for item in shelf.items)
        check(seen, "I2", consumer.inflight == held, f"{consumer.inflight} in flight instead of {held}")
        if consumer.state == NOTIFIED:
            check(seen, "I6", client.pending, "no turn is coming")
            connection = client.session.connection
            check(seen, "I6", connection.scheduled or connection.blocked, "no turn of the connection")


def check_cursors(seen: Seen, queue: Queue, live: dict[QueueEntry, int]) -> None:
    browsing = list(queue.browsers.cursors) if queue.browsers is not None else []
    for context in (queue.context, *queue.filtered, *browsing):
        standing = context.last in live or context.last is queue.entries.head
        check(seen, "I8", standing, "a cursor stands on an entry that is gone")
        late = [] if context.late is None else context.late.entries(context.last)
        check(seen, "I8", all(entry in live for entry in late), "late arrivals are gone")
        bound = max(64, 2 * len(live)) + (SWEEP + len(browsing) if context in browsing else 0)
        check(seen, "I8", len(context.behind) <= bound, "a cursor keeps entries that are gone")
    for context in (queue.context, *queue.filtered):
        behind = set(context.all_behind())
        if queue.discipline is not None:
            behind.update(queue.discipline.parked_in(context))
        for entry, number in live.items():
            hidden = entry.state == AVAILABLE and entry not in behind and not context.last.precedes(entry)
            if hidden:
                check(seen, "I4", not context.sees(entry), f"{number} is hidden")
        seen["check: I4"] += 1


def check_reliance(seen: Seen, queue: Queue) -> None:
    """Check that while there is work, a highest consumer that wants it has a turn pending."""
    if queue.ready == 0 or not queue.alike:
        return
    able = [consumer for consumer in queue.manager.acquiring_consumers() if not consumer.blockers]
    top = max((consumer.rank for consumer in able), default=0)
    relied = [consumer.state == NOTIFIED for consumer in able if consumer.rank == top]
    check(seen, "I6", not relied or any(relied), "work is waiting and nobody is relied upon")


# ---- message groups


def check_groups(seen: Seen, shelf: Shelf, queue: Queue) -> None:
    """Check the members, the owner and the bounds of each group."""
    groups, model = queue.discipline, shelf.groups
    if model.rule is None:
        check(seen, "I7", not isinstance(groups, Groups), f"queue {shelf.name} has groups")
        return
    assert isinstance(groups, Groups)
    expected = {model.key(item) for item in shelf.items} | set(model.holders)
    expected.discard("")
    check(seen, "I7", set(groups.by_key) == expected, f"{list(groups.by_key)} instead of {expected}")
    for group in groups.by_key.values():
        check_group(seen, shelf, group)
    idle = [group.key for group in groups.idle]
    check(seen, "I7", idle == model.idle, f"{idle} are idle, not {model.idle}")
    check(
        seen,
        "I7",
        len(idle) <= groups.idle_max,
        f"{idle} are idle, and no more than {groups.idle_max} may be",
    )


def check_group(seen: Seen, shelf: Shelf, group: Group) -> None:
    model, key = shelf.groups, group.key
    members, out = model.members(key), model.out(key)
    counts = (group.entries, group.inflight)
    check(seen, "I2", counts == (len(members), len(out)), f"{counts} of group {key}")
    closing = len(group.closers or ())
    check(seen, "I2", closing == sum(map(model.closes, members)), f"{closing} close group {key}")
    holder, owner, taker = model.holders.get(key), group.owner, None
    if owner is not None:
        assert isinstance(owner.target, Client)
        taker = owner.target.takers[owner]
        holding = holding_of(owner)
        assert holding is not None
        knows = group.shut or group in holding.groups
        check(seen, "I7", knows, f"its owner does not know group {key}")
    check(seen, "I7", taker is (holder and holder.owner), f"group {key} is another one's")
    if owner is None or owner.state != REMOVED:  # a removed owner gets nothing of the group anyway
        check(seen, "I7", group.shut == bool(holder and holder.shut), f"group {key} is shut: {group.shut}")
    check(seen, "I7", bool(out) or not group.shut, f"group {key} is shut and waits for nothing")
    for parked in [*group.parked.values(), group.line]:
        check(seen, "I8", len(parked) <= 2 * len(members) + STALE, f"group {key} keeps what is gone")
