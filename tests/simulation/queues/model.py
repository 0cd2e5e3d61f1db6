"""The required behaviour of queues, with lists and dictionaries: it shares no code with the broker.

A rule is a small function here: in which order items stand, whether a taker could take an item, which
items leave and when, which items return. `Service` says whether a queue serves a taker at all: elections,
gates, and stopped queues. `Groups` are the message groups of a queue: their owners, and the consumers that
may have their items. Time is in milliseconds, sizes are in bytes.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from tests.simulation.queues.delays import Delays
from tests.simulation.queues.invariants import Seen
from tests.simulation.queues.journal import Journal
from tests.simulation.queues.notes import Note
from tests.simulation.queues.recall import Knows, Recall
from tests.simulation.queues.windows import Talk, Window

READY, OUT, HELD = "ready", "out", "held"
EXPIRED, MAXLEN, LIMIT, REJECTED = "expired", "maxlen", "delivery_limit", "rejected"
DROP_HEAD, REJECT, REJECT_DLX = "drop-head", "reject-publish", "reject-publish-dlx"
PREEMPTS_EQUALS = 127
DRAIN = 9  # milliseconds that an exclusive consumer waits for what one has that was cancelled
REMEMBERED = 1024  # groups without messages


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


@dataclass(frozen=True)
class Spec:
    """The declaration of a queue. None: no limit, or no exchange."""

    durable: bool = False
    levels: int = 1
    ttl: int | None = None
    max_length: int | None = None
    max_bytes: int | None = None
    overflow: str = DROP_HEAD
    dead_letter: str | None = None
    sure: bool = False  # dead messages wait until their dead letter arrives
    limit: int | None = None
    single_active: bool = False
    all_exclusive: bool = False
    takeover: str = ""  # drain or immediate
    strict_dispatch: bool = False
    strict_order: bool = False
    sort: bool = False
    last_value: bool = False
    volatile: bool = False
    keeps: bool = False  # nothing is consumed: everybody sees everything once
    gate: tuple[int, int | None] | None = None  # so many takers, or so long after the first
    groups: Grouping | None = None
    knows: Knows | None = None
    retry: tuple[int, int] | None = None  # the first wait, doubled each time up to the second number

    @property
    def logged(self) -> bool:
        """Whether persistent messages are written."""
        return self.durable and not self.volatile

    @property
    def counts(self) -> bool:
        """Whether the log records delivery counts."""
        return self.limit is not None or self.retry is not None


@dataclass(eq=False)
class Item:
    """A note in a queue. `count`: how often it was given out; `since`: when it became ready, by ticks."""

    note: Note
    place: tuple[int, int]
    due: int | None
    since: int
    state: str = READY
    holder: Taker | None = None
    count: int = 0
    redelivered: bool = False
    was_out: bool = False
    restored: bool = False
    again: int = 0  # when it is ready again, if it is held

    @property
    def number(self) -> int:
        return self.note.number

    def __lt__(self, other: Item) -> bool:
        return self.place < other.place


@dataclass(eq=False)
class Taker:
    """A consumer. `below`: it sees only messages of a kind below this number. `shown`: to a browser.

    `alone`: it refuses all others. `candidate`: the others wait while it is served. `gets`: a basic.get.
    """

    queue: Shelf
    talk: Talk
    windows: list[Window]
    priority: int = 0
    browses: bool = False
    no_ack: bool = False
    alone: bool = False
    below: int | None = None
    candidate: bool = False
    gets: bool = False
    waits: bool = False  # a basic.get that has found nothing: it is no consumer, and served like one
    operates: bool = False  # an operator, who takes out of turn
    attached: int = 0  # tick; 0: not, or not any more
    shown: set[int] = field(default_factory=set)

    def sees(self, item: Item) -> bool:
        return self.below is None or item.note.kind < self.below

    def suspended(self) -> bool:
        """Whether nothing may be sent to it now, whatever there is."""
        return (
            not self.attached
            or not (self.talk.flow or self.waits)
            or self.talk.line.blocked
            or not all(window.has() for window in self.windows)
        )

    def fits(self, size: int) -> bool:
        return all(window.fits(size) for window in self.windows)


class Shelf:
    """A queue: its items in order, and its takers in the order in which they came."""

    def __init__(self, name: str, spec: Spec, journal: Journal, seen: Seen) -> None:
        self.name = name
        self.spec = spec
        self.items: list[Item] = []
        self.takers: list[Taker] = []
        self.deleted = False  # clients may not know yet
        self.reserved: list[int] = []  # sizes of what transactions are about to put here
        self.fresh: Item | None = None  # a new item that need not wait: its time is over only afterwards
        self.service = Service(self)
        self.groups = Groups(self, seen)
        self.delays = Delays(journal)
        self.recall = Recall(spec.knows, journal)
        self.dead: dict[int, str] = {}  # waiting dead letters, and their reasons, in the order of dying
        self.dead_sizes: dict[int, int] = {}  # also of what is dying: it has its room until it goes
        self.seized: set[int] = set()  # the dead that operators are about to take away
        self.seeks = False  # the dead wait for room, not for the first try after a restart
        self.sought: set[str] = set()  # names of queues whose dead letters wait for room here
        self.current: dict[int, Item] = {}  # by kind, the latest where only that is kept

    # ---- takers

    def is_late(self, item: Item, now: int) -> bool:
        return item.due is not None and item.due <= now and item is not self.fresh

    def could_take(self, taker: Taker, item: Item, now: int) -> bool:
        """Whether `taker` could have `item` now, as far as it is not up to windows and priorities."""
        return (
            item.state == READY
            and taker.sees(item)
            and not self.is_late(item, now)
            and (taker.browses or self.groups.allow(taker, item, now))
            and self.service.is_served(taker, now)
        )

    def first_for(self, taker: Taker, now: int) -> Item | None:
        """Return the next item for an acquiring taker."""
        return next((item for item in self.items if self.could_take(taker, item, now)), None)

    def in_order(self, now: int) -> Item | None:
        """Return the first item in strict order, if none is unacknowledged."""
        if any(item.state == OUT for item in self.items):
            return None
        return next((item for item in self.items if not self.is_late(item, now)), None)

    def urgency(self, taker: Taker) -> tuple[int, int]:
        return (taker.priority, -taker.attached if self.spec.strict_dispatch else 0)

    def rivals(self, taker: Taker, item: Item, now: int) -> list[Taker]:
        """Return takers of a higher priority that want `item`, or an earlier item, and have room for it."""
        rivals = []
        for other in self.takers:
            above = self.urgency(other) > self.urgency(taker)
            if above and not other.browses and not other.suspended():
                first = self.first_for(other, now) if self.could_take(other, item, now) else None
                if first is not None and other.fits(first.note.size):
                    rivals.append(other)
        return rivals

    def able(self, now: int) -> list[tuple[Taker, Item]]:
        """Return the takers that should get an item now, with their items."""
        pairs = []
        for taker in self.takers:
            if not taker.browses and not taker.suspended():
                item = self.first_for(taker, now)
                if item is not None and taker.fits(item.note.size) and not self.rivals(taker, item, now):
                    pairs.append((taker, item))
        return pairs

    def may_be_shown(self, taker: Taker) -> list[Item]:
        """Return the items that a browser may still see, also items that returned since its attach."""
        seen = [item for item in self.items if item.state == READY and taker.sees(item)]
        return [item for item in seen if item.number not in taker.shown]

    def unshown(self, taker: Taker) -> list[Item]:
        """Return the items that a browser must still see: items that were always ready since its attach."""
        items = self.may_be_shown(taker)
        return [item for item in items if not item.was_out or item.since < taker.attached]

    def turns_away(self, taker: Taker) -> bool:
        """Whether `taker` may not attach: it is exclusive and not alone, or another taker is exclusive."""
        others = [other for other in self.takers if not other.waits]
        alone = any(other.alone for other in others) and not taker.waits
        return alone or (taker.alone and (bool(others) or self.spec.single_active or self.spec.all_exclusive))

    # ---- limits

    def sizes(self) -> list[int]:
        return [item.note.size for item in self.items if item.state == READY]

    def is_seized(self) -> bool:
        """Whether an operator is about to take away the next dead letter."""
        return bool(self.dead) and next(iter(self.dead)) in self.seized

    def is_over(self) -> bool:
        spec, sizes = self.spec, self.sizes()
        return (spec.max_length is not None and len(sizes) > spec.max_length) or (
            spec.max_bytes is not None and sum(sizes) > spec.max_bytes
        )

    def refuses(self, size: int) -> bool:
        """Whether a further item is refused; dead letters that wait for room come first."""
        return self.lacks(size) or (self.spec.overflow != DROP_HEAD and bool(self.sought))

    def lacks(self, size: int) -> bool:
        """Whether there is no room for a further item."""
        dead = [taken for number, taken in self.dead_sizes.items() if number not in self.seized]
        spec, sizes = self.spec, self.sizes() + self.reserved + dead
        if spec.overflow == DROP_HEAD:
            return False
        return (spec.max_length is not None and len(sizes) >= spec.max_length) or (
            spec.max_bytes is not None and sum(sizes) + size > spec.max_bytes
        )

    def victim(self) -> Item:
        """Return the oldest ready item of the lowest priority; the first of sorted items."""
        ready = [item for item in self.items if item.state == READY]
        if self.spec.sort:
            return ready[0]
        lowest = max(item.place[0] for item in ready)
        return next(item for item in ready if item.place[0] == lowest)

    # ---- arrivals

    def displaced(self, note: Note) -> Item | None:
        """Return the item that a new note replaces at once, unless the item is acquired."""
        old = self.current.get(note.kind) if self.spec.last_value else None
        return None if old is None or old.state == OUT else old

    def is_outdated(self, item: Item) -> bool:
        """Whether a later item of the same kind has arrived, so that this one does not return."""
        return self.spec.last_value and self.current.get(item.note.kind) is not item

    def put(self, note: Note, arrival: int, now: int, place: tuple[int, int] | None = None) -> Item:
        """Put a new item at its place, or at the place of a replaced item."""
        waits = [wait for wait in (self.spec.ttl, note.expiration) if wait is not None]
        rank = (
            note.kind if self.spec.sort else self.spec.levels - 1 - min(note.priority, self.spec.levels - 1)
        )
        item = Item(note, place or (rank, arrival), now + min(waits) if waits else None, arrival)
        insort(self.items, item)
        self.groups.put(item)
        self.current[note.kind] = item
        self.fresh = item if waits and min(waits) == 0 else None
        return item

    def is_exhausted(self, item: Item) -> bool:
        """Whether it has been given out so often that it may not come back."""
        return self.spec.limit is not None and item.count > self.spec.limit


class Service:
    """The rule for the served consumer. `stopped`: the disabled parts, `enqueue` or `dequeue`."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.spec = shelf.spec
        self.active: Taker | None = None
        self.draining = False  # nobody is served, for what others have
        self.leavers: list[Taker] = []  # were served when they were cancelled, and are waited for
        self.drained_at: int | None = None  # nobody waits any longer than that
        self.is_open = shelf.spec.gate is None
        self.first_came = 0
        self.stopped: list[str] = []
        self.purges = 0  # purges that go on: nobody gets an entry that is to be purged
        self.returning = False  # nobody is to get what is behind it

    def takers(self) -> list[Taker]:
        return [taker for taker in self.shelf.takers if not taker.browses and not taker.waits]

    # ---- coming and going

    def attached(self, taker: Taker, now: int) -> None:
        if taker.browses or taker.waits:
            return
        gate = self.spec.gate
        count = len(self.takers())
        if count == 1:
            self.first_came = now
        if gate is not None and not self.opened(now):
            self.is_open = 0 < gate[0] <= count
        self.look(now)
        if self.is_candidate(taker) and (self.active is None or self.takes_over(taker, self.active)):
            self.active = taker
            self.draining = self.others_hold()

    def detached(self, taker: Taker, now: int) -> None:
        if self.spec.gate is not None and not self.takers():
            self.is_open = False
        if taker is self.active:
            candidates = [other for other in self.takers() if self.is_candidate(other)]
            self.active = max(candidates, key=lambda other: other.priority, default=None)
            if not self.spec.takeover:
                self.leavers.append(taker)
            self.draining = self.others_hold()
            if self.draining and not self.spec.single_active:
                self.drained_at = now + DRAIN
            self.look(now)

    def is_candidate(self, taker: Taker) -> bool:
        return self.spec.single_active or self.spec.all_exclusive or taker.candidate

    def takes_over(self, newcomer: Taker, active: Taker) -> bool:
        if newcomer.priority == active.priority == PREEMPTS_EQUALS:
            return not self.spec.single_active
        return newcomer.priority > active.priority

    # ---- consequences

    def opened(self, now: int) -> bool:
        """Whether enough takers are attached, or the first one has waited long enough."""
        gate = self.spec.gate
        if gate is not None and not self.is_open and gate[1] is not None and self.takers():
            self.is_open = now >= self.first_came + gate[1]
        return self.is_open

    def others_hold(self) -> bool:
        """Whether takers that are waited for have something."""
        holders = [item.holder for item in self.shelf.items if item.holder is not None]
        if self.spec.single_active or self.spec.takeover == "drain":
            return any(holder is not self.active for holder in holders)
        return any(holder in self.leavers for holder in holders)

    def look(self, now: int) -> None:
        """End the drain if its time is over, or if nobody has anything any more."""
        if not self.others_hold() or (self.drained_at is not None and now >= self.drained_at):
            self.draining = False
        if not self.draining:
            self.leavers.clear()
            self.drained_at = None

    def has_begun(self, now: int) -> bool:
        """Whether all takers but the active one stand by."""
        self.look(now)
        return self.active is not None or self.draining

    def is_served(self, taker: Taker, now: int) -> bool:
        """Whether `taker`, attached, would be given something; a basic.get asks for itself."""
        if taker.browses or taker.gets:
            return True
        if (
            self.purges
            or self.returning
            or "dequeue" in self.stopped
            or not (taker.waits or self.opened(now))
        ):
            return False
        if not self.has_begun(now):
            return True
        return taker is self.active and not self.draining

    def get_refused(self, now: int) -> str:
        """Why a basic.get is refused: "stopped", "locked", or "" if it is not."""
        if "dequeue" in self.stopped:
            return "stopped"
        return "locked" if self.spec.single_active or self.has_begun(now) else ""


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
