"""Message groups: the entries of one key go to one consumer at a time, in their order.

[ActiveMQ message groups; Qpid's two kinds of them; JMSXGroupID]
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush, heapreplace
from typing import Final, final

from mypy_extensions import i64

from broker.core.entries.cursor import Cursor
from broker.core.entries.entry import AVAILABLE, Holder, QueueEntry
from broker.core.queues.consumer import BLOCKED_BY_GROUPS, REMOVED, QueueConsumer, TargetSession
from broker.core.queues.consumers import (
    clear_blocker,
    notify_if_unnotified,
    notify_one,
    suspend,
    wake_contexts,
    wake_for_earlier,
    wake_waiters,
)
from broker.core.queues.group import Group, GroupKeys, Head, Holding, group_of, holding_of
from broker.core.queues.hooks import Discipline, able_consumers, first_idle
from broker.core.queues.queue import Queue
from broker.core.queues.state import owns
from broker.core.schedule import Chore, Schedule

SLICE: Final[i64] = 2000  # groups freed in one turn: a millisecond or two


def must_free(groups: Groups, owner: QueueConsumer) -> bool:
    """Whether each group of `owner` is freed as soon as none of its entries is in flight."""
    if owner.state == REMOVED or owner.getting:
        return True
    holding = holding_of(owner)
    return holding is not None and holding.moves != groups.moves


def free_groups(groups: Groups, holdings: list[Holding | None]) -> None:
    """Shut all groups of `holdings`, and free each as soon as none of its entries is in flight.

    A large number of groups is done in later turns.
    """
    count: i64 = 0
    for holding in holdings:
        if holding is not None:
            count += len(holding.groups)
    if count > groups.most or groups.release is not None:
        _begin_release(groups).add_holdings(holdings)
        return
    shut: list[Group] = []
    for holding in holdings:
        if holding is not None:
            holding.moves = groups.moves
            shut += holding.shut_some(groups.most)
    groups.free_calm(shut)


def frees_in_slices(groups: Groups, calm: list[Group]) -> bool:
    """Free the groups of `calm` in later turns if they are many. False: the caller frees the few groups."""
    if len(calm) <= groups.most and groups.release is None:
        return False
    _begin_release(groups).add(calm)
    return True


def _begin_release(groups: Groups) -> GroupRelease:
    """Return the chore that frees groups in later turns.

    No attached consumer is served until the chore is done. So consumers see all the groups freed at once, in
    the same order. A basic.get in between finds the groups that are free by then.
    """
    release = groups.release
    if release is None:
        release = groups.release = GroupRelease(groups)
        groups.pauses = True
        queue = groups.queue
        for consumer in queue.manager.acquiring_consumers():
            suspend(queue, consumer, BLOCKED_BY_GROUPS)  # no consumer takes over
    return release


@final
class GroupRelease(Chore):
    """The groups that are freed in later turns. Until then each group keeps its owner, which gets nothing.

    A step changes the groups of its slice only, and drops them from the lists. Counting, marking or dropping
    all groups at once would take too long.
    """

    def __init__(self, groups: Groups) -> None:
        super().__init__(groups.schedule, groups.most)
        self._groups = groups
        self._holdings: dict[Holding, None] = {}  # with groups to shut
        self._calm: list[list[Group]] = []  # in reverse order, and so is each list

    def add(self, calm: list[Group]) -> None:
        """Add groups of which nothing is in flight; the list is taken over."""
        if calm:
            calm.reverse()
            self._calm.insert(0, calm)
            self.continue_soon()

    def add_holdings(self, holdings: list[Holding | None]) -> None:
        """Add the groups of `holdings`."""
        for holding in holdings:
            if holding is not None:
                holding.moves = -1
                self._holdings[holding] = None
        self.continue_soon()

    def contains(self, group: Group) -> bool:
        """Whether `group` is still to be freed; the cost grows with the number of groups."""
        if any(group in holding.groups for holding in self._holdings):
            return True
        return any(group in calm for calm in self._calm)

    def step(self, budget: i64) -> bool:
        """Free up to `budget` groups."""
        groups = self._groups
        queue = groups.queue
        freed = self._shut(budget) if self._holdings else self._next(budget)
        if not queue.deleted:
            groups.free_calm(freed)
        if self._holdings or self._calm:
            return True
        groups.release = None
        groups.pauses = False
        clear_blocker(queue, queue.manager.acquiring_consumers(), BLOCKED_BY_GROUPS)
        return False

    def _shut(self, most: i64) -> list[Group]:
        """Shut up to `most` groups of the holdings."""
        shut: list[Group] = []
        while self._holdings and len(shut) < most:
            holding, _ = self._holdings.popitem()
            shut += holding.shut_some(most - len(shut))
            if not holding.is_empty():
                self._holdings[holding] = None
                break
            holding.moves = self._groups.moves
        return shut

    def _next(self, most: i64) -> list[Group]:
        """Return up to `most` of the groups of which nothing was in flight."""
        if not self._calm:
            return []
        calm = self._calm[-1]
        freed = calm[-most:]
        freed.reverse()
        del calm[-most:]
        if not calm:
            self._calm.pop()
        return freed


def next_for(groups: Groups, consumer: QueueConsumer) -> QueueEntry | None:
    """Return the first entry that `consumer` sees and may get: free, its own, or in no group.

    None as for `next_entry`. Each entry that another consumer owns is passed once: it is parked with its
    group.
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
    assert holding is not None, "a consumer with a parked entry owns a group"
    holding.take_first()
    heappush(context.behind, own)  # the entry is the first there, and `acquire` finds it
    return own


def _may_have(groups: Groups, consumer: QueueConsumer, entry: QueueEntry) -> bool:
    group = group_of(entry)
    if group is None:
        return True
    owner = group.owner
    if owner is not None and owner is not consumer and not groups.owns(consumer, group):
        return False
    return groups.is_open(entry)


def _scan(groups: Groups, consumer: QueueConsumer, context: Cursor, limit: i64) -> QueueEntry | None:
    """Walk on from the cursor; None at the end, or with `more` when the budget is used up."""
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


def _park(groups: Groups, context: Cursor, entry: QueueEntry) -> None:
    """Park an entry that `context` passes because another consumer owns its group."""
    group = group_of(entry)
    assert group is not None, "a parked entry is in a group"
    owner = group.owner
    is_first = group.park(context, entry)
    if owner is not None:
        holding = holding_of(owner)
        assert holding is not None, "the owner of a group has a holding"
        is_first = is_first or (groups.strict and group.first_parked(context) is entry)
        if is_first and holding.context is context and groups.is_open(entry):
            holding.add_head(group)
    limits = groups.queue.limits
    if limits is not None and context is groups.queue.context:
        limits.note_parked(entry)


def _first_own(groups: Groups, consumer: QueueConsumer) -> QueueEntry | None:
    """Return the first parked entry of the groups that `consumer` owns."""
    holding = groups.holding_of(consumer)
    if holding is None or holding.context is not consumer.context:
        return None
    if holding.moves != groups.moves and consumer.state == REMOVED:
        holding.shut_all(groups.moves)  # a get of several messages; attached consumers get nothing until then
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


IDLE_MAX: Final = 1024  # groups without entries that keep their owners, unless a queue says otherwise


@final
class Groups(Discipline):
    """The message groups of a queue. Entries without a key are in no group, and any consumer may get them.

    The first consumer that acquires an entry of a free group owns the group. From then on its entries go to
    no other consumer, whatever the priorities. A group that is not `sticky` is free again when none of its
    entries is in flight. A sticky group is free only when, in addition, its owner was detached, one of its
    messages closed it, or it has to move. Where consumers have filters, a group may be held up by entries
    that its owner does not see.

    A group that is to be freed is shut until none of its entries is in flight. So two consumers never have
    entries of it at the same time. No entry is delivered before its predecessors have been settled or
    requeued.

    `strict`: only the first entry of each group is delivered, and only while none is in flight, except
    entries that a transaction of the owner removes. To a transaction all basic.gets of one session are one
    owner, so that it may get several entries of a group.
    `rebalances`: sticky groups move when a consumer is attached. `idle_max`: how many sticky groups without
    entries are remembered; the one idle for longest is freed first. `most`: how many groups are freed in one
    turn; `release`: the chore that frees more. `moves`: how often all groups had to move.

    A cursor passes each entry that another consumer owns once: the entry is parked with its group. When the
    group is freed, its first parked entry goes to `behind`, where every consumer finds it. When the group has
    an owner, the owner is informed.
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
        self.release: GroupRelease | None = None
        self.most: i64 = SLICE
        self.moves: i64 = 0
        self._keys = keys
        # the groups of the basic.gets of a session, if `strict`
        self._gets: dict[TargetSession, Holding] = {}
        # changes of which `wake` informs consumers
        self._freed: bool = False
        self._opened: list[QueueEntry] = []
        self._closed: list[Group] = []

    # ---- questions

    def next_entry(self, consumer: QueueConsumer) -> QueueEntry | None:
        """Return the first entry that the consumer sees and may get."""
        return next_for(self, consumer)

    def is_open(self, entry: QueueEntry) -> bool:
        """Whether the entry's group is not shut and, if strict, the entry is the next one."""
        group = group_of(entry)
        if group is None:
            return True
        if group.shut:
            return False
        return not self.strict or group.in_order() is entry

    def owner(self, entry: QueueEntry) -> QueueConsumer | None:
        """Return the owner of the entry's group."""
        group = group_of(entry)
        if group is None or group.owner is None:
            return None
        return first_idle(self._gets_for(entry, group)) or group.owner

    def contenders(self, entry: QueueEntry) -> list[QueueConsumer]:
        """Return the owner of the entry's group, or waiting basic.gets of its transaction."""
        group = group_of(entry)
        if group is None or group.owner is None:
            return []
        return self._gets_for(entry, group) or [group.owner]

    def _gets_for(self, entry: QueueEntry, group: Group) -> list[QueueConsumer]:
        """Return the waiting basic.gets that may have `entry` for the transaction of the owner of `group`."""
        owner = group.owner
        if owner is None or group.batch is None or not _is_getting(owner):
            return []
        return [each for each in able_consumers(owner.target.peers, self.queue, entry) if each.getting]

    def owns(self, consumer: QueueConsumer, group: Group) -> bool:
        """Whether `consumer` owns `group`, or gets more of it for the transaction of the owner."""
        owner = group.owner
        if owner is consumer:
            return True
        if owner is None or group.batch is None or not _is_getting(owner):
            return False
        return holding_of(owner) is not None and holding_of(owner) is self.holding_of(consumer)

    def holding_of(self, consumer: QueueConsumer) -> Holding | None:
        """Return the groups that `consumer` owns; if `strict`, those of its session for a basic.get."""
        if self.strict and _is_getting(consumer):
            return self._gets.get(consumer.target.peers)
        return holding_of(consumer)

    def parked_in(self, context: Cursor) -> list[QueueEntry]:
        """The entries that the cursor of `context` has passed."""
        return [entry for group in self.by_key.values() for entry in group.parked.get(context, ())]

    # ---- changes

    def note_arrival(self, entry: QueueEntry) -> None:
        """Add the entry to its group, which is made for its first entry."""
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

    def note_acquisition(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """Make the consumer the owner of a free group.

        Shut the group if this entry closes it.
        """
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
            if group.owner is not consumer:  # an operator; a consumer would be the only waiter
                hidden = True
        if hidden:
            self._wake_waiters_of([group])

    def note_departure(self, entry: QueueEntry, owner: Holder | None) -> None:
        """Free the entry's group, or deliver the next entry, if `entry` was in the way."""
        group = group_of(entry)
        if group is None:
            return
        entry.group = None
        group.entries -= 1
        group.drop_left_entries()
        if group.closers is not None:
            group.closers.pop(entry, None)
        if owner is not None:
            group.inflight -= 1
        promised = group.batch is not None and group.withdraw(entry)
        if group.inflight == 0:
            self._continue_group(group)
            self.wake()
        elif group.batch is not None and not promised:
            self._update_strict(group)
            self.wake()

    def note_return(self, entries: list[QueueEntry]) -> None:
        """Free the entries' groups that must be freed and have nothing in flight any more."""
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
                self._update_strict(group)
        if not frees_in_slices(self, calm):
            for group in calm:
                self._continue_group(group)

    def wake(self) -> None:
        """Let a consumer of each context look, if a group has been freed."""
        queue = self.queue
        opened = self._opened
        if self._closed:
            closed = self._closed
            self._closed = []
            self._wake_waiters_of(closed)
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
            elif self.strict:  # the entry before it may have left without a delivery
                notify_if_unnotified(queue, entry)

    def note_promise(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """Let the owner get the next entry of a strict group."""
        group = group_of(entry)
        if group is not None and self.strict and owns(consumer, entry, self.queue):
            group.promise(entry)
            self._update_strict(group)
            self.wake()

    def note_withdrawal(self, entries: list[QueueEntry]) -> None:
        """Hold up the groups of `entries` until `entries` are settled or requeued."""
        closed: dict[Group, None] = {}
        for entry in entries:
            group = group_of(entry)
            if group is not None and group.withdraw(entry):
                closed[group] = None
        if closed:
            self._wake_waiters_of(list(closed))

    def note_attached(self, consumer: QueueConsumer) -> None:
        """Move the sticky groups, if they are rebalanced; not for a waiting basic.get."""
        if consumer.getting:
            consumer.holding = self._gets.get(consumer.target.peers)
        if self.rebalances and not consumer.getting:
            self.moves += 1
            free_groups(self, [holding_of(consumer) for consumer in self.queue.manager.acquiring_consumers()])

    def note_detached(self, consumer: QueueConsumer) -> None:
        """Free the consumer's groups.

        A group with entries in flight stays until the entries are settled.
        """
        if holding_of(consumer) is not None and consumer.state == REMOVED:
            if self.strict and consumer.getting:
                return  # the session may get more; each group is freed when nothing of it is in flight
            free_groups(self, [holding_of(consumer)])

    def note_context(self, consumer: QueueConsumer) -> None:
        """Keep the consumer's groups: the new cursor finds entries that the old cursor parked."""
        holding = holding_of(consumer)
        if holding is not None:
            holding.context = consumer.context
            holding.heads.clear()

    def note_exclusion(self, consumer: QueueConsumer, entries: list[QueueEntry]) -> None:
        """Shut the groups of `entries`, because only another owner can get these entries."""
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
            self._wake_waiters_of(shut)

    def free_other_groups(self, consumer: QueueConsumer) -> None:
        """Free the groups of other consumers as soon as no entry of theirs is in flight."""
        free_groups(
            self,
            [
                holding_of(other)
                for other in self.queue.manager.acquiring_consumers()
                if other is not consumer
            ],
        )

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
            holding.shut_all(self.moves)  # but not the groups taken from now on
        return holding

    def free_calm(self, groups: list[Group]) -> None:
        """Free the `groups` that must be freed and have nothing in flight."""
        for group in groups:
            if group.inflight == 0 and group.owner is not None:  # else the group was freed before
                self._continue_group(group)
        self._wake_waiters_of(groups)
        self.wake()

    def _wake_waiters_of(self, groups: list[Group]) -> None:
        """Wake the consumers that wait for entries of `groups`, whose owners may have changed."""
        waiters = self.queue.waiters
        if waiters:
            changed = set(groups)
            for entry in [entry for entry in waiters if group_of(entry) in changed]:
                wake_waiters(self.queue, entry)

    def _continue_group(self, group: Group) -> None:
        """Continue with `group`, of which nothing is in flight any more, or an entry has left."""
        owner = group.owner
        if owner is None:
            self._open(group)
        elif not self.sticky or group.shut or must_free(self, owner):
            self._free(group)
        elif group.entries == 0:
            self.idle[group] = None
            if len(self.idle) > self.idle_max:
                self._free(next(iter(self.idle)))
        elif self.strict:
            self._open_to(group, owner)

    def _free(self, group: Group) -> None:
        """Free `group`, of which nothing is in flight."""
        owner = group.owner
        assert owner is not None, "only a group with an owner is freed"
        holding = holding_of(owner)
        assert holding is not None, "the owner of a group has a holding"
        if group.shut:
            holding.groups.pop(group, None)  # a shut group may be missing there
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
        """Let every consumer find the next entry of a free group; drop a group without entries."""
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
        """Let the owner find the next entry of a strict group."""
        holding = holding_of(owner)
        if holding is not None:
            holding.add_head(group)
        self._open_first(group)

    def _open_first(self, group: Group) -> None:
        """Note that the first entry of a strict group may be delivered, parked or not."""
        entry = group.in_order()
        if entry is not None:
            self._opened.append(entry)

    def _update_strict(self, group: Group) -> None:
        """Update a strict group: a transaction may remove all its entries in flight now, or no longer."""
        owner = group.owner
        if owner is None or group.shut:
            return
        if group.in_order() is None:
            self._closed.append(group)
        else:
            self._open_to(group, owner)


def _is_getting(consumer: QueueConsumer) -> bool:
    """Whether `consumer` is a basic.get, which owns its entries until they are settled or requeued."""
    return consumer.getting or consumer.state == REMOVED
