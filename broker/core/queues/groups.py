"""Message groups: the entries of one key go to one consumer at a time, in their order.

[ActiveMQ message groups; Qpid's two kinds of them; JMSXGroupID]
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, final

from mypy_extensions import i64

from broker.core.entries.cursor import QueueContext
from broker.core.entries.entry import AVAILABLE, DEQUEUED, EntryGroup, Holder, QueueEntry
from broker.core.message import Message
from broker.core.ports import MessageStore
from broker.core.queues.consumer import BLOCKED_BY_GROUPS, REMOVED, OwnedGroups, QueueConsumer, TargetSession
from broker.core.queues.consumers import (
    clear_blocker,
    notify_if_nobody_comes,
    notify_one,
    suspend,
    wake_contexts,
    wake_for_earlier,
    wake_waiters,
)
from broker.core.queues.hooks import Discipline, able_in, first_idle
from broker.core.queues.queue import Queue
from broker.core.queues.state import owns
from broker.core.schedule import Alarm, Schedule
from broker.core.view import Views


@final
class GroupKeys:
    """Reads the group of messages in memory or on disk, out of `header`; "": as messages usually say it."""

    def __init__(self, views: Views, store: MessageStore, header: str) -> None:
        self._views = views
        self._store = store
        self._header = header
        self.closes = False

    def key(self, message: Message) -> str:
        """The key of its group: a string, or a number as such; "": it is in none. `closes` is set with it.

        To enqueue is not to judge: what does not decode, or cannot be read from the disk, is in none.
        """
        self.closes = False
        try:
            view = self._views(message, self._store)
            value = view.headers().get(self._header) if self._header else view.group_id()
            if value is None:
                return ""
            sequence = view.group_sequence()
        except Exception:
            return ""
        self.closes = isinstance(sequence, int) and sequence == -1
        if isinstance(value, (bytes, bytearray)):
            return value.decode(errors="surrogateescape")
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            return ""
        return str(value)


_STALE_MIN: Final = 8
_STALE_HEADS_MIN: Final = 64


@final
class Group(EntryGroup):
    """The entries of a queue with one key.

    `owner`: the only one who may have them, None: the group is free, for whoever takes one first.
    `entries`: how many there are, in whatever state; `inflight`: how many of them are with clients.
    `shut`: nobody gets any more of it until nothing is in flight, and then it is free.
    `parked`: of each context, the entries that its cursor has passed although they are AVAILABLE, because
    they were not for who looked; and some that are not AVAILABLE any more.
    `closers`: the entries that shut the group when they are given out; None: there are none.
    `line`: all its entries, the first one first, where only that one may be given out; else it is empty.
    `batch`: the entries in flight that leave with a transaction, and whether `line` lacks them; None: none.
    `last`: the entry that was last in the queue of all that have been in `batch` since it was empty.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.owner: QueueConsumer | None = None
        self.entries: i64 = 0
        self.inflight: i64 = 0
        self.shut: bool = False
        self.parked: dict[QueueContext, list[QueueEntry]] = {}
        self.closers: dict[QueueEntry, None] | None = None
        self.line: list[QueueEntry] = []
        self.batch: dict[QueueEntry, bool] | None = None
        self.last: QueueEntry | None = None

    def disown(self) -> None:
        """Forget its owner (EntryGroup)."""
        self.owner = None

    def first(self) -> QueueEntry | None:
        """The first of its entries that no transaction takes out, where it keeps a line."""
        line = self.line
        batch = self.batch
        while line:
            entry = line[0]
            if batch is not None and entry in batch:
                batch[entry] = True
            elif entry.state != DEQUEUED:
                return entry
            heappop(line)
        return None

    def in_order(self) -> QueueEntry | None:
        """The only entry that may be given out now, where it keeps a line; None: none may.

        Entries in flight hold up the others, except those that leave with a transaction. What has come back
        after a later entry was promised to a transaction waits for the end of that.
        """
        promised: i64 = 0 if self.batch is None else len(self.batch)
        if self.inflight != promised:
            return None
        first = self.first()
        if first is None or first.state != AVAILABLE:
            return None
        last = self.last
        return None if last is not None and first.redelivered and first.precedes(last) else first

    def promise(self, entry: QueueEntry) -> None:
        """A transaction takes `entry`, which is in flight, out of the queue with its commit."""
        if self.batch is None:
            self.batch = {}
        self.batch.setdefault(entry, False)
        if self.last is None or self.last.precedes(entry):
            self.last = entry

    def withdraw(self, entry: QueueEntry) -> bool:
        """No transaction takes `entry` out any more, or has done so; false if none was to."""
        batch = self.batch
        if batch is None or entry not in batch:
            return False
        if batch.pop(entry) and entry.state != DEQUEUED:
            heappush(self.line, entry)
        if not batch:
            self.batch = None
            self.last = None
        return True

    def park(self, context: QueueContext, entry: QueueEntry) -> bool:
        """Keep an entry that the cursor of `context` passes; true if it is the first of them."""
        heap = self.parked.get(context)
        if heap is None:
            for left in [each for each in self.parked if each.is_left]:
                del self.parked[left]  # or whoever comes with a filter of its own leaves something for good
            heap = self.parked[context] = []
        heappush(heap, entry)
        is_first = heap[0] is entry
        if len(heap) > 2 * self.entries + _STALE_MIN:
            _sweep(heap)
        return is_first

    def first_parked(self, context: QueueContext) -> QueueEntry | None:
        """The first that `context` has parked; none that are out, which are offered again if they return."""
        heap = self.parked.get(context)
        if heap is None:
            return None
        while heap:
            if heap[0].state == AVAILABLE:
                return heap[0]
            heappop(heap)
        del self.parked[context]
        return None

    def take_parked(self, context: QueueContext) -> None:
        """Let go of the first that is parked, which there is."""
        heap = self.parked[context]
        heappop(heap)
        if not heap:
            del self.parked[context]

    def forget_left(self) -> None:
        """An entry has left: let go of those that have, once they may outnumber the others."""
        if self.entries == 0:
            self.parked.clear()
            self.line.clear()
            return
        most = 2 * self.entries + _STALE_MIN
        if len(self.line) > most:
            self.line = sorted([entry for entry in self.line if entry.state != DEQUEUED])
        for heap in self.parked.values():
            if len(heap) > most:
                _sweep(heap)


def _sweep(heap: list[QueueEntry]) -> None:
    """Let go of what is not AVAILABLE any more, or twice in `heap`."""
    heap[:] = dict.fromkeys([entry for entry in heap if entry.state == AVAILABLE])
    heapify(heap)


@final
class Head:
    """The first entry of `group` that was parked when its owner was told of it."""

    def __init__(self, entry: QueueEntry, group: Group) -> None:
        self.entry = entry
        self.group = group

    def __lt__(self, other: Head) -> bool:
        return self.entry.precedes(other.entry)


@final
class Holding(OwnedGroups):
    """The groups that one consumer owns, and a heap of what is parked of them in its context.

    For every group of it that is not shut and has something parked there is a head that is not after that;
    there may be others, which mean nothing. Of its groups that are shut it need not know.

    `moves`: that of `Groups`; a holding that has another one is to let go of all its groups. They are not
    shut yet, as there may be very many, but its consumer gets nothing until they are.
    """

    def __init__(self, context: QueueContext, moves: i64) -> None:
        self.context = context
        self.moves = moves
        self.groups: dict[Group, None] = {}
        self.heads: list[Head] = []

    def owns_some(self) -> bool:
        """Whether the consumer owns a group (OwnedGroups)."""
        return len(self.groups) > 0

    def is_empty(self) -> bool:
        """Whether there is nothing to be let go of."""
        return not self.groups and not self.heads

    def let_go(self, most: i64) -> list[Group]:
        """Shut so many of its groups, the last ones, and forget them; the others are to follow."""
        shut: list[Group] = []
        while self.groups and len(shut) < most:
            group, _ = self.groups.popitem()
            group.shut = True
            shut.append(group)
        del self.heads[-2 * most - _STALE_HEADS_MIN :]  # what is left is a heap, and means nothing
        return shut

    def shut_all(self, moves: i64) -> None:
        """Shut its groups, of all of which something is in flight: they are not many."""
        self.moves = moves
        for group in self.groups:
            group.shut = True

    def take_first(self) -> None:
        """Let go of the entry that the first of `heads` is about; it was found to be what is parked first."""
        group = heappop(self.heads).group
        group.take_parked(self.context)
        self.add_head(group)

    def add_head(self, group: Group) -> None:
        """What is parked of `group` has a new first one, or may be given out again."""
        entry = group.first_parked(self.context)
        if entry is None:
            return
        heappush(self.heads, Head(entry, group))
        if len(self.heads) > 2 * len(self.groups) + _STALE_HEADS_MIN:
            self.heads.clear()
            for each in self.groups:
                entry = each.first_parked(self.context)
                if entry is not None:
                    self.heads.append(Head(entry, each))
            heapify(self.heads)


SLICE: Final[i64] = 2000  # groups that are looked at in one turn: a millisecond or two


def group_of(entry: QueueEntry) -> Group | None:
    """Return the group of an entry; None: the entry is in no group."""
    group = entry.group
    assert group is None or isinstance(group, Group), "groups are made here"
    return group


def holding_of(consumer: QueueConsumer) -> Holding | None:
    """Return the groups that `consumer` has owned and what is parked of them; None: no group."""
    holding = consumer.holding
    assert holding is None or isinstance(holding, Holding), "holdings are made here"
    return holding


def lets_go(groups: Groups, owner: QueueConsumer) -> bool:
    """Whether whatever `owner` has is to be free as soon as nothing of it is in flight."""
    if owner.state == REMOVED or owner.getting:
        return True
    holding = holding_of(owner)
    return holding is not None and holding.moves != groups.moves


def let_go(groups: Groups, holdings: list[Holding | None]) -> None:
    """Shut all groups of `holdings`, and free each as soon as nothing of it is in flight.

    If they are many, they have turns to come.
    """
    count: i64 = 0
    for holding in holdings:
        if holding is not None:
            count += len(holding.groups)
    if count > groups.most or groups.later is not None:
        _later(groups).add_holdings(holdings)
        return
    shut: list[Group] = []
    for holding in holdings:
        if holding is not None:
            holding.moves = groups.moves
            shut += holding.let_go(groups.most)
    groups.rest(shut)


def takes_time(groups: Groups, calm: list[Group]) -> bool:
    """Have `calm`, which may be free now, have turns to come if they are many; False: they are few."""
    if len(calm) <= groups.most and groups.later is None:
        return False
    _later(groups).add(calm)
    return True


def _later(groups: Groups) -> FreedLater:
    """What has turns to come.

    As long as it takes no attached consumer is served, so to them all are free at once and order is as ever.
    A basic.get may come between, and finds what is free by then.
    """
    later = groups.later
    if later is None:
        later = groups.later = FreedLater(groups)
        groups.pauses = True
        queue = groups.queue
        for consumer in queue.manager.takers():
            suspend(queue, consumer, BLOCKED_BY_GROUPS)  # nobody takes over
    return later


@final
class FreedLater(Alarm):
    """Groups that may be free, and have turns to come: until then each is its owner's, who gets nothing.

    Nothing is done to each of them before its turn, and what had its turn is let go of at once: to count or
    mark all, or to let go of all, takes long too.
    """

    def __init__(self, groups: Groups) -> None:
        super().__init__()
        self._groups = groups
        self._holdings: dict[Holding, None] = {}  # all groups of which are to be shut
        self._calm: list[list[Group]] = []  # the last one first, and so in each of them

    def add(self, calm: list[Group]) -> None:
        """Have these, of which nothing is in flight, have their turns; the list is taken over."""
        if calm:
            calm.reverse()
            self._calm.insert(0, calm)
            self._set()

    def add_holdings(self, holdings: list[Holding | None]) -> None:
        """Have the groups of these have their turns."""
        for holding in holdings:
            if holding is not None:
                holding.moves = -1
                self._holdings[holding] = None
        self._set()

    def waits(self, group: Group) -> bool:
        """Whether `group` has a turn to come; looks at each that has."""
        if any(group in holding.groups for holding in self._holdings):
            return True
        return any(group in calm for calm in self._calm)

    def ring(self) -> None:
        """Look at another slice (Alarm)."""
        groups = self._groups
        queue = groups.queue
        found = self._shut(groups.most) if self._holdings else self._next(groups.most)
        if not queue.deleted:
            groups.rest(found)
        if self._holdings or self._calm:
            self._set()
            return
        groups.later = None
        groups.pauses = False
        clear_blocker(queue, queue.manager.takers(), BLOCKED_BY_GROUPS)

    def _shut(self, most: i64) -> list[Group]:
        """Shut so many."""
        shut: list[Group] = []
        while self._holdings and len(shut) < most:
            holding, _ = self._holdings.popitem()
            shut += holding.let_go(most - len(shut))
            if not holding.is_empty():
                self._holdings[holding] = None
                break
            holding.moves = self._groups.moves
        return shut

    def _next(self, most: i64) -> list[Group]:
        """So many of those of which nothing was in flight."""
        calm = self._calm[-1]
        found = calm[-most:]
        found.reverse()
        del calm[-most:]
        if not calm:
            self._calm.pop()
        return found

    def _set(self) -> None:
        schedule = self._groups.schedule
        schedule.set(self, schedule.now())


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
    group = group_of(entry)
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
    group = group_of(entry)
    assert group is not None, "what is in no group is for everybody"
    owner = group.owner
    is_first = group.park(context, entry)
    if owner is not None:
        holding = holding_of(owner)
        assert holding is not None, "it knows its groups"
        is_first = is_first or (groups.strict and group.first_parked(context) is entry)
        if is_first and holding.context is context and groups.is_open(entry):
            holding.add_head(group)
    rules = groups.queue.rules
    if rules is not None and context is groups.queue.context:
        rules.parked(entry)


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


IDLE_MAX: Final = 1024  # groups without entries whose owners are remembered, unless a queue says otherwise


@final
class Groups(Discipline):
    """The message groups of a queue. Entries without a key are in none, and for everybody.

    A free group is taken with one of its entries, by whoever gets that as anything else. From then on it has
    an owner, and its entries go to nobody else, whatever the priorities. A group that is not `sticky` is free
    again when nothing of it is in flight; a sticky one when its owner has gone too, or has been closed by one
    of its messages, or is to move. Where consumers have filters a group may be held up by entries that its
    owner does not see.

    What is in flight when a group is to be free is waited for, and until then the group is shut: so at no
    time two consumers have entries of it, and none is delivered before one that precedes it has been settled
    or is back.

    `strict`: of each group only the first entry is given out, and only while nothing of it is in flight but
    what leaves with a transaction of its owner. To a transaction all basic.gets of one session are one owner,
    so that it may get several entries of a group.
    `rebalances`: sticky groups move when a consumer comes. `idle_max`: how many sticky groups are remembered
    without having entries; the one goes that has had none for longest. `most`: how many may be free in one
    turn; `later`: those of which some have to wait, if there are more. `moves`: how often all had to move.

    A cursor passes what is not for who looks, once: it is parked with its group. When the group is free, the
    first that is parked goes to `behind`, where everybody finds it; when it has an owner, the owner is told.
    """

    def __init__(
        self,
        queue: Queue,
        keys: GroupKeys,
        schedule: Schedule,
        sticky: bool,
        strict: bool = False,
        rebalances: bool = False,
        idle_max: i64 = IDLE_MAX,
    ) -> None:
        super().__init__(True)
        self.queue = queue
        self.sticky = sticky
        self.strict = strict
        self.rebalances = rebalances
        self.idle_max = idle_max
        self.by_key: dict[str, Group] = {}
        self.idle: OrderedDict[Group, None] = OrderedDict()
        self.schedule = schedule
        self.later: FreedLater | None = None
        self.most: i64 = SLICE
        self.moves: i64 = 0
        self._keys = keys
        # the groups of the basic.gets of a session, if `strict`
        self._gets: dict[TargetSession, Holding] = {}
        # what consumers are to be told by `wake`
        self._freed: bool = False
        self._opened: list[QueueEntry] = []
        self._closed: list[Group] = []

    # ---- what is asked

    def next_entry(self, consumer: QueueConsumer) -> QueueEntry | None:
        """The first that it sees of what is free, its own, or in no group (Discipline)."""
        return next_for(self, consumer)

    def is_open(self, entry: QueueEntry) -> bool:
        """Whether its group is not shut, and it is its turn if that is strict (Discipline)."""
        group = group_of(entry)
        if group is None:
            return True
        if group.shut:
            return False
        return not self.strict or group.in_order() is entry

    def owner(self, entry: QueueEntry) -> QueueConsumer | None:
        """The owner of its group (Discipline)."""
        group = group_of(entry)
        if group is None or group.owner is None:
            return None
        return first_idle(self._gets_for(entry, group)) or group.owner

    def contenders(self, entry: QueueEntry) -> list[QueueConsumer]:
        """The owner of its group, or basic.gets that wait for more of its transaction (Discipline)."""
        group = group_of(entry)
        if group is None or group.owner is None:
            return []
        return self._gets_for(entry, group) or [group.owner]

    def _gets_for(self, entry: QueueEntry, group: Group) -> list[QueueConsumer]:
        """The basic.gets that wait, and may have `entry` as the owner of `group` takes more of it."""
        owner = group.owner
        if owner is None or group.batch is None or not _is_getting(owner):
            return []
        return [each for each in able_in(owner.target.peers, self.queue, entry) if each.getting]

    def owns(self, consumer: QueueConsumer, group: Group) -> bool:
        """Whether `consumer` is the owner of `group`, or gets more of it for the transaction of the owner."""
        owner = group.owner
        if owner is consumer:
            return True
        if owner is None or group.batch is None or not _is_getting(owner):
            return False
        return holding_of(owner) is not None and holding_of(owner) is self.holding_of(consumer)

    def holding_of(self, consumer: QueueConsumer) -> Holding | None:
        """Return the groups that `consumer` owns, those of its session if it is a basic.get and `strict`."""
        if self.strict and _is_getting(consumer):
            return self._gets.get(consumer.target.peers)
        return holding_of(consumer)

    def parked_in(self, context: QueueContext) -> list[QueueEntry]:
        """The entries that the cursor of `context` has passed (Discipline)."""
        return [entry for group in self.by_key.values() for entry in group.parked.get(context, ())]

    # ---- what is told

    def linked(self, entry: QueueEntry) -> None:
        """Find its group, or make it (Discipline)."""
        key = self._keys.key(entry.message)
        if not key:
            return
        group = self.by_key.get(key)
        if group is None:
            group = self.by_key[key] = Group(key)
        elif group.entries == 0:
            self.idle.pop(group, None)
        group.entries += 1
        if self._keys.closes:
            if group.closers is None:
                group.closers = {}
            group.closers[entry] = None
        if self.strict:
            heappush(group.line, entry)
        entry.group = group

    def acquired(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """Make its group the consumer's, and shut the group if this entry closes it (Discipline)."""
        group = group_of(entry)
        if group is None:
            return
        hidden = self.strict
        if group.owner is None:
            self._take(group, consumer)
            hidden = True
        group.inflight += 1
        if group.closers is not None and entry in group.closers:
            group.shut = True
            if group.owner is not consumer:  # an operator's; else who alone might wait is being served
                hidden = True
        if hidden:
            self._look_again([group])

    def left(self, entry: QueueEntry, owner: Holder | None) -> None:
        """Free its group, or give out what follows, if `entry` held that up (Discipline)."""
        group = group_of(entry)
        if group is None:
            return
        entry.group = None
        group.entries -= 1
        group.forget_left()
        if group.closers is not None:
            group.closers.pop(entry, None)
        if owner is not None:
            group.inflight -= 1
        promised = group.batch is not None and group.withdraw(entry)
        if group.inflight == 0:
            self._rest(group)
            self.wake()
        elif group.batch is not None and not promised:
            self._go_on(group)
            self.wake()

    def returned(self, entries: list[QueueEntry]) -> None:
        """Free their groups of which nothing is in flight any more, if they are to be free (Discipline)."""
        calm: list[Group] = []
        batching: dict[Group, None] = {}
        for entry in entries:
            group = group_of(entry)
            if group is not None:
                group.inflight -= 1
                if group.batch is not None:
                    group.withdraw(entry)
                    batching[group] = None
                if group.inflight == 0:
                    calm.append(group)
        for group in batching:
            if group.inflight != 0:
                self._go_on(group)
        if not takes_time(self, calm):
            for group in calm:
                self._rest(group)

    def wake(self) -> None:
        """Have somebody of each context look, if a group is free now (Discipline)."""
        queue = self.queue
        opened = self._opened
        if self._closed:
            closed = self._closed
            self._closed = []
            self._look_again(closed)
        if not opened and not self._freed:
            return
        freed = self._freed
        self._freed = False
        self._opened = []
        if queue.waiting:
            for entry in opened:
                if entry.state == AVAILABLE:
                    wake_for_earlier(queue, entry)
        if freed and queue.ready != 0:
            wake_contexts(queue)
        for entry in opened:
            if entry.state != AVAILABLE:
                continue
            if self.owner(entry) is not None:
                notify_one(queue, entry)
            elif self.strict:  # what it waited for may have left without having been given out
                notify_if_nobody_comes(queue, entry)

    def promised(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """The owner may have the next one of a strict group (Discipline)."""
        group = group_of(entry)
        if group is not None and self.strict and owns(consumer, entry, self.queue):
            group.promise(entry)
            self._go_on(group)
            self.wake()

    def withdrawn(self, entries: list[QueueEntry]) -> None:
        """Give out no more of their groups before these are settled or back (Discipline)."""
        closed: dict[Group, None] = {}
        for entry in entries:
            group = group_of(entry)
            if group is not None and group.withdraw(entry):
                closed[group] = None
        if closed:
            self._look_again(list(closed))

    def attached(self, consumer: QueueConsumer) -> None:
        """Have sticky groups move, if they are to; not to a basic.get that waits (Discipline)."""
        if consumer.getting:
            consumer.holding = self._gets.get(consumer.target.peers)
        if self.rebalances and not consumer.getting:
            self.moves += 1
            let_go(self, [holding_of(taker) for taker in self.queue.manager.takers()])

    def detached(self, consumer: QueueConsumer) -> None:
        """Free its groups, but for those of which it has something in flight (Discipline)."""
        if holding_of(consumer) is not None and consumer.state == REMOVED:
            if self.strict and consumer.getting:
                return  # its session may get more; each group is free when nothing of it is in flight
            let_go(self, [holding_of(consumer)])

    def context_changed(self, consumer: QueueConsumer) -> None:
        """Have its groups stay its own: the new cursor finds what is parked with the old one (Discipline)."""
        holding = holding_of(consumer)
        if holding is not None:
            holding.context = consumer.context
            holding.heads.clear()

    def sent_away(self, consumer: QueueConsumer, entries: list[QueueEntry]) -> None:
        """Shut the groups of `entries`: another consumer has to own each to get its entry (Discipline)."""
        shut: list[Group] = []
        for entry in entries:
            group = group_of(entry)
            if group is None or group.owner is not consumer or group.shut:
                continue
            group.shut = True
            holding = holding_of(consumer)
            if holding is not None:
                holding.groups.pop(group, None)
            shut.append(group)
        if shut:
            self._look_again(shut)

    def served_alone(self, consumer: QueueConsumer) -> None:
        """Have the groups of all others be free as soon as nothing of them is in flight (Discipline)."""
        let_go(self, [holding_of(other) for other in self.queue.manager.takers() if other is not consumer])

    # ---- ownership

    def _take(self, group: Group, consumer: QueueConsumer) -> None:
        group.owner = consumer
        holding = holding_of(consumer)
        if self.strict and _is_getting(consumer):
            holding = self._holding_of_gets(consumer.target.peers)
            consumer.holding = holding
        elif holding is None:
            holding = Holding(consumer.context, self.moves)
            consumer.holding = holding
        holding.groups[group] = None
        holding.add_head(group)

    def _holding_of_gets(self, session: TargetSession) -> Holding:
        holding = self._gets.get(session)
        if holding is None:
            holding = self._gets[session] = Holding(self.queue.context, self.moves)
        elif holding.moves != self.moves:
            holding.shut_all(self.moves)  # not what is taken from now on
        return holding

    def rest(self, groups: list[Group]) -> None:
        """Free those of `groups` that are to be and of which nothing is in flight."""
        for group in groups:
            if group.inflight == 0 and group.owner is not None:  # nor has it been freed meanwhile
                self._rest(group)
        self._look_again(groups)
        self.wake()

    def _look_again(self, groups: list[Group]) -> None:
        """Wake consumers that wait for an entry of these: it may not be for them any more."""
        awaited = self.queue.awaited
        if awaited:
            changed = set(groups)
            for entry in [entry for entry in awaited if group_of(entry) in changed]:
                wake_waiters(self.queue, entry)

    def _rest(self, group: Group) -> None:
        """Go on with `group`, of which nothing is in flight any more, or an entry has left."""
        owner = group.owner
        if owner is None:
            self._open(group)
        elif not self.sticky or group.shut or lets_go(self, owner):
            self._free(group)
        elif group.entries == 0:
            self.idle[group] = None
            if len(self.idle) > self.idle_max:
                self._free(next(iter(self.idle)))
        elif self.strict:
            self._open_to(group, owner)

    def _free(self, group: Group) -> None:
        """Take `group`, of which nothing is in flight, from its owner."""
        owner = group.owner
        assert owner is not None, "only a group with an owner is freed"
        holding = holding_of(owner)
        assert holding is not None, "it knows its groups"
        if group.shut:
            holding.groups.pop(group, None)  # it may know it no more
            group.shut = False
        else:
            del holding.groups[group]
        if self._gets and not holding.groups:
            session = owner.target.peers
            if self._gets.get(session) is holding:
                del self._gets[session]
        group.owner = None
        self._freed = True
        self._open(group)

    def _open(self, group: Group) -> None:
        """Have everybody find what is next of a free group; let go of a group without entries."""
        if group.entries == 0:
            self.by_key.pop(group.key, None)
            self.idle.pop(group, None)
            return
        for context in list(group.parked):
            entry = group.first_parked(context)
            if entry is None:
                continue
            if context.is_left:
                del group.parked[context]
            elif not self.strict or entry is group.in_order():
                group.take_parked(context)
                heappush(context.behind, entry)
                if not self.strict:
                    self._opened.append(entry)
        if self.strict:
            self._open_first(group)

    def _open_to(self, group: Group, owner: QueueConsumer) -> None:
        """Have the owner find what is next of a group that is strict."""
        holding = holding_of(owner)
        if holding is not None:
            holding.add_head(group)
        self._open_first(group)

    def _open_first(self, group: Group) -> None:
        """The first of a strict group may be given out, parked or not: nobody was told of it before."""
        entry = group.in_order()
        if entry is not None:
            self._opened.append(entry)

    def _go_on(self, group: Group) -> None:
        """A transaction may take all of a strict group's messages in flight along now, or no longer."""
        owner = group.owner
        if owner is None or group.shut:
            return
        if group.in_order() is None:
            self._closed.append(group)
        else:
            self._open_to(group, owner)


def _is_getting(consumer: QueueConsumer) -> bool:
    """Whether `consumer` is a basic.get, which owns what it has taken until that is settled or back."""
    return consumer.getting or consumer.state == REMOVED
