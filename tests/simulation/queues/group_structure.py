"""The groups of a queue equal the model's after every step: I7, and the group part of I8."""

from __future__ import annotations

from broker.core.queues.consumer import REMOVED
from broker.core.queues.group import Group, holding_of
from broker.core.queues.groups import Groups
from broker.core.queues.queue import Queue
from tests.simulation.queues.checks import check
from tests.simulation.queues.clients import Client
from tests.simulation.queues.model import Seen, Shelf

STALE = 8  # entries that have left of which a group need not let go


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
