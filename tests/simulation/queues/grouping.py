"""The message groups of a queue: their owners, and the consumers that may have their items.

It shares no code with the broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.queues.model import Item, Seen, Shelf, Taker

REMEMBERED = 1024


@dataclass(frozen=True)
class Grouping:
    """The declaration of groups. `header`: of the key; "": as messages usually have it. `kind` "": sticky."""

    kind: str = ""
    header: str = ""
    rebalances: bool = False
    limit: int | None = None

    def arguments(self) -> dict[str, object]:
        """Return the arguments of the declaration."""
        return {
            "x-group-kind": self.kind or None,
            "x-group-key": self.header or None,
            "x-group-rebalance": self.rebalances or None,
            "x-group-limit": self.limit,
        }

    def key(self, headers: dict[str, object]) -> str:
        """The group of a message with these headers; "": none."""
        names = (self.header,) if self.header else ("x-group-id", "JMSXGroupID")
        value = next((headers[name] for name in names if name in headers), "")
        return "" if isinstance(value, bool) or not isinstance(value, str | int) else str(value)

    def closes(self, headers: dict[str, object]) -> bool:
        """Whether it is the last message of its group."""
        names = ("x-group-seq", "JMSXGroupSeq")
        return next((headers[name] for name in names if name in headers), None) == -1


@dataclass
class Holder:
    """The owner of a group. `shut`: no delivery of the group before all earlier ones have ended."""

    owner: Taker
    shut: bool = False


class Groups:
    """`rule`: None without groups. `idle`: groups without messages whose owners are remembered."""

    def __init__(self, shelf: Shelf, seen: Seen) -> None:
        self.shelf = shelf
        self.rule = shelf.spec.groups
        self.seen = seen
        self.holders: dict[str, Holder] = {}
        self.idle: list[str] = []

    # ---- queries

    def key(self, item: Item) -> str:
        return "" if self.rule is None else self.rule.key(item.note.headers)

    def closes(self, item: Item) -> bool:
        return self.rule is not None and bool(self.key(item)) and self.rule.closes(item.note.headers)

    def members(self, key: str) -> list[Item]:
        return [item for item in self.shelf.items if self.key(item) == key]

    def out(self, key: str) -> list[Item]:
        return [item for item in self.members(key) if item.holder is not None]

    def withholds(self, item: Item, taker: Taker) -> bool:
        """Whether the item's group has another owner, or is shut."""
        holder = self.holders.get(self.key(item))
        return holder is not None and (holder.shut or holder.owner is not taker)

    def allow(self, taker: Taker, item: Item, now: int) -> bool:
        """Whether neither its group nor strict order keeps `item` from `taker`, which acquires."""
        strict = self.shelf.spec.strict_order
        if self.rule is None:
            return not strict or self.shelf.in_order(now) is item
        key = self.key(item)
        if not key:
            return True
        return not self.withholds(item, taker) and (not strict or self.in_order(key, now) is item)

    def in_order(self, key: str, now: int) -> Item | None:
        """Return the first item of a group without unacknowledged items."""
        if self.out(key):
            return None
        return next((item for item in self.members(key) if not self.shelf.is_late(item, now)), None)

    # ---- events

    def put(self, item: Item) -> None:
        """Add an item that has arrived."""
        key = self.key(item)
        if key in self.idle:
            self.idle.remove(key)

    def taken(self, item: Item, taker: Taker) -> None:
        """`taker` is being given `item`, which is not out yet."""
        if self.rule is None:
            return
        if any(
            other < item and taker.sees(other) and self.withholds(other, taker) for other in self.shelf.items
        ):
            self.seen("group: parked")
        key = self.key(item)
        if not key:
            return
        if key not in self.holders:
            self.seen("group: assigned")
            self.holders[key] = Holder(taker)
        if self.closes(item):
            self.seen("group: closed")
            self.holders[key].shut = True

    def lessened(self, items: list[Item]) -> None:
        """Update the groups of items that have left or returned."""
        if self.rule is None:
            return
        for key in dict.fromkeys(self.key(item) for item in items):
            holder = self.holders.get(key)
            if holder is None or self.out(key):
                continue
            if self.rule.kind == "shared" or holder.shut or holder.owner.waits or not holder.owner.attached:
                self.free(key)
            elif not self.members(key):
                self.idle.append(key)
        limit = REMEMBERED if self.rule.limit is None else self.rule.limit
        while len(self.idle) > limit:
            self.seen("group: forgotten")
            self.free(self.idle[0])

    def attached(self, taker: Taker) -> None:
        """Add a taker, which may be the only served one from now on."""
        if self.rule is not None and self.rule.rebalances and not taker.browses and not taker.waits:
            for key in list(self.holders):
                self.seen("group: rebalanced")
                self.shut(key)
        self.serve_one()

    def detached(self, taker: Taker) -> None:
        """Remove a taker, so that another taker may be the only served one."""
        for key in [key for key, holder in self.holders.items() if holder.owner is taker]:
            self.shut(key)
        self.serve_one()

    # ---- consequences

    def serve_one(self) -> None:
        active = self.shelf.service.active
        if active is not None:
            for key, holder in list(self.holders.items()):
                if holder.owner.attached and holder.owner is not active:
                    self.shut(key)

    def shut(self, key: str) -> None:
        """Free the group as soon as it has no unacknowledged item."""
        if self.out(key):
            self.seen("group: shut while in flight")
            self.holders[key].shut = True
        else:
            self.free(key)

    def free(self, key: str) -> None:
        """Free the group for the next consumer."""
        self.seen("group: freed")
        del self.holders[key]
        if key in self.idle:
            self.idle.remove(key)
        waiting = [taker for taker in self.shelf.takers if not taker.browses and not taker.suspended()]
        if any(taker.sees(item) for taker in waiting for item in self.members(key)):
            self.seen("group: woken")
