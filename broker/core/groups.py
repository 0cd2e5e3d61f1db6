"""Message groups: the entries of one key go to one consumer at a time, in their order.

[ActiveMQ message groups; Qpid's two kinds of them; JMSXGroupID]
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappush
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.consumer import REMOVED, QueueConsumer
from broker.core.context import QueueContext
from broker.core.discipline import Discipline, able_in, first_idle
from broker.core.entry import AVAILABLE, QueueEntry
from broker.core.freeing import SLICE, FreedLater, let_go, lets_go, takes_time
from broker.core.group import Group, Holding
from broker.core.group_key import GroupKeys
from broker.core.group_search import next_for
from broker.core.notifying import notify_if_nobody_comes, notify_one, wake_contexts
from broker.core.schedule import Schedule
from broker.core.waiting import wake_for_earlier, wake_waiters

if TYPE_CHECKING:
    from broker.core.queue import Queue
    from broker.core.session import Session

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
        super().__init__(queue, True)
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
        self._gets: dict[Session, Holding] = {}  # the groups of the basic.gets of a session, if `strict`
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
        group = entry.group
        if group is None:
            return True
        if group.shut:
            return False
        return not self.strict or group.in_order() is entry

    def owner(self, entry: QueueEntry) -> QueueConsumer | None:
        """The owner of its group (Discipline)."""
        group = entry.group
        if group is None or group.owner is None:
            return None
        return first_idle(self._gets_for(entry, group)) or group.owner

    def contenders(self, entry: QueueEntry) -> list[QueueConsumer]:
        """The owner of its group, or basic.gets that wait for more of its transaction (Discipline)."""
        group = entry.group
        if group is None or group.owner is None:
            return []
        return self._gets_for(entry, group) or [group.owner]

    def _gets_for(self, entry: QueueEntry, group: Group) -> list[QueueConsumer]:
        """The basic.gets that wait, and may have `entry` as the owner of `group` takes more of it."""
        owner = group.owner
        if owner is None or group.batch is None or not _is_getting(owner):
            return []
        return [each for each in able_in(owner.target.session, self.queue, entry) if each.getting]

    def owns(self, consumer: QueueConsumer, group: Group) -> bool:
        """Whether `consumer` is the owner of `group`, or gets more of it for the transaction of the owner."""
        owner = group.owner
        if owner is consumer:
            return True
        if owner is None or group.batch is None or not _is_getting(owner):
            return False
        return owner.holding is not None and owner.holding is self.holding_of(consumer)

    def holding_of(self, consumer: QueueConsumer) -> Holding | None:
        """Return the groups that `consumer` owns, those of its session if it is a basic.get and `strict`."""
        if self.strict and _is_getting(consumer):
            return self._gets.get(consumer.target.session)
        return consumer.holding

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
        group = entry.group
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

    def left(self, entry: QueueEntry, owner: QueueConsumer | None) -> None:
        """Free its group, or give out what follows, if `entry` held that up (Discipline)."""
        group = entry.group
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
            group = entry.group
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
        group = entry.group
        if group is not None and self.strict and entry.is_with(consumer):
            group.promise(entry)
            self._go_on(group)
            self.wake()

    def withdrawn(self, entries: list[QueueEntry]) -> None:
        """Give out no more of their groups before these are settled or back (Discipline)."""
        closed: dict[Group, None] = {}
        for entry in entries:
            group = entry.group
            if group is not None and group.withdraw(entry):
                closed[group] = None
        if closed:
            self._look_again(list(closed))

    def attached(self, consumer: QueueConsumer) -> None:
        """Have sticky groups move, if they are to; not to a basic.get that waits (Discipline)."""
        if consumer.getting:
            consumer.holding = self._gets.get(consumer.target.session)
        if self.rebalances and not consumer.getting:
            self.moves += 1
            let_go(self, [taker.holding for taker in self.queue.manager.takers()])

    def detached(self, consumer: QueueConsumer) -> None:
        """Free its groups, but for those of which it has something in flight (Discipline)."""
        if consumer.holding is not None and consumer.state == REMOVED:
            if self.strict and consumer.getting:
                return  # its session may get more; each group is free when nothing of it is in flight
            let_go(self, [consumer.holding])

    def context_changed(self, consumer: QueueConsumer) -> None:
        """Have its groups stay its own: the new cursor finds what is parked with the old one (Discipline)."""
        holding = consumer.holding
        if holding is not None:
            holding.context = consumer.context
            holding.heads.clear()

    def sent_away(self, consumer: QueueConsumer, entries: list[QueueEntry]) -> None:
        """Shut the groups of `entries`: another consumer has to own each to get its entry (Discipline)."""
        shut: list[Group] = []
        for entry in entries:
            group = entry.group
            if group is None or group.owner is not consumer or group.shut:
                continue
            group.shut = True
            if consumer.holding is not None:
                consumer.holding.groups.pop(group, None)
            shut.append(group)
        if shut:
            self._look_again(shut)

    def served_alone(self, consumer: QueueConsumer) -> None:
        """Have the groups of all others be free as soon as nothing of them is in flight (Discipline)."""
        let_go(self, [other.holding for other in self.queue.manager.takers() if other is not consumer])

    # ---- ownership

    def _take(self, group: Group, consumer: QueueConsumer) -> None:
        group.owner = consumer
        holding = consumer.holding
        if self.strict and _is_getting(consumer):
            holding = consumer.holding = self._holding_of_gets(consumer.target.session)
        elif holding is None:
            holding = consumer.holding = Holding(consumer.context, self.moves)
        holding.groups[group] = None
        holding.add_head(group)

    def _holding_of_gets(self, session: Session) -> Holding:
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
            for entry in [entry for entry in awaited if entry.group in changed]:
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
        assert owner.holding is not None, "it knows its groups"
        if group.shut:
            owner.holding.groups.pop(group, None)  # it may know it no more
            group.shut = False
        else:
            del owner.holding.groups[group]
        if self._gets and not owner.holding.groups:
            session = owner.target.session
            if self._gets.get(session) is owner.holding:
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
        if owner.holding is not None:
            owner.holding.add_head(group)
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
