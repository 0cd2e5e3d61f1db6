"""The consumers of a queue: their levels by priority, and the rules by which they are notified of work.

[Qpid: QueueConsumerManager]

While entries are ready, the highest priority with an unblocked consumer has a NOTIFIED consumer. This
consumer pulls until it gets nothing. If it drops out, another one takes over. So no wake-up is lost, and no
consumer polls. A notification only requests a turn, and never delivers.

More consumers of a level are NOTIFIED if there is work for them too. Where all consumers see the same
entries, at most as many are NOTIFIED as there are ready entries. Elsewhere the number of entries that a
consumer sees is unknown. There, a consumer that has had its message causes the next one of its level to be
NOTIFIED, if there is another entry, see `share_work`.

Every change goes through `set_blocker`: flag first, lists second, notifications last.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.counters import Counters
from broker.core.entries.cursor import SCAN_BUDGET, Cursor, PostingList
from broker.core.entries.entry import QueueEntry
from broker.core.entries.list import QueueEntryList
from broker.core.ports import MessageStore
from broker.core.queues.consumer import (
    BLOCKED_BY_SIZE,
    INTERESTED,
    NON_ACQUIRING,
    NOT_INTERESTED,
    NOTIFIED,
    REMOVED,
    ConsumerLevel,
    QueueConsumer,
    QueueConsumerList,
)
from broker.core.queues.hooks import (
    DemandWatcher,
    DiscardsHook,
    Discipline,
    GateHook,
    LimitsHook,
    ReadyWatcher,
    Settlement,
    UndeliverableHook,
)
from broker.core.queues.state import QueueState
from broker.core.schedule import Chore

TURN_BITS: Final = 31  # bits of a rank below the priority: more than enough for a queue's consumers
_NO_LEVEL: Final = "a consumer that acquires has a level"


@final
class QueueConsumerManager:
    """The lists of a queue's consumers: each is in `all` and in exactly one list, by its state.

    A waiting basic.get is in `gets` instead of `all`, and otherwise like any consumer. `levels`: the
    INTERESTED and NOTIFIED consumers per rank and context, highest rank first. Only levels with a consumer
    that wants work are listed, so the cost of a message does not grow with the number of priorities. A single
    listed level may stay there without such a consumer. Browsers are in no level. `posting_levels`: the
    levels of consumers that see one posting list of an index. `strict`: consumers of one priority are not
    served round-robin. The consumer attached first goes first, so each consumer has its own rank. Otherwise
    the rank is the priority. A change takes effect when the queue has no acquiring consumer. [ActiveMQ
    strictOrderDispatch]
    `gate`: no consumer is served while the gate is shut; None: no gate. `purges`: no consumer is served while
    the first of these purges runs; the other purges wait. `returns`: no consumer is served while entries are
    being requeued. `discards`: a large number of refused entries that are leaving in slices. `undeliverable`:
    the entries that consumers have returned as undeliverable to themselves, if any. `acquiring` counts the
    consumers that are no browsers, `interested` and `notified` the members of these lists over all levels.
    `wakeups` counts the notifications since the start. `empty_wakeups` counts the notified consumers that got
    no message before they were idle or suspended again. `counters`: the broker's counters, which count the
    empty wakeups too. `demand_watchers`: watchers of consumers that wait for messages; None: there are none.
    """

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.all: dict[QueueConsumer, None] = {}
        self.gets: dict[QueueConsumer, None] = {}
        self.non_acquiring = QueueConsumerList()
        self.not_interested = QueueConsumerList()
        self.levels: list[ConsumerLevel] = []
        self.posting_levels: dict[PostingList, list[ConsumerLevel]] = {}
        self._levels: dict[tuple[int, Cursor], ConsumerLevel] = {}
        self.acquiring: i64 = 0
        self.interested: i64 = 0
        self.notified: i64 = 0
        self.wakeups: i64 = 0
        self.empty_wakeups: i64 = 0
        self.strict: bool = False
        self.gate: GateHook | None = None
        self.purges: list[Chore] = []
        self.returns: list[Settlement] = []
        self.discards: DiscardsHook | None = None
        self.undeliverable: UndeliverableHook | None = None
        self.demand_watchers: list[DemandWatcher] | None = None
        self._ranked: bool = False  # whether the present acquiring consumers have their own ranks
        self._turns: i64 = 0
        self._rotations: i64 = 0

    def add(self, consumer: QueueConsumer) -> None:
        """Add a REMOVED consumer; `move` gives it a state."""
        (self.gets if consumer.getting else self.all)[consumer] = None
        if consumer.acquires:
            if self.acquiring == 0:
                self._ranked = self.strict
            self.acquiring += 1
            consumer.rank = consumer.priority
            if self._ranked:
                self._turns += 1
                consumer.rank = (consumer.priority << TURN_BITS) - self._turns
            level = self._level(consumer.rank, consumer.context)
            level.members += 1
            consumer.level = level

    def acquiring_consumers(self) -> list[QueueConsumer]:
        """Return the acquiring consumers in the order in which they were attached, waiting gets last."""
        return [consumer for consumer in [*self.all, *self.gets] if consumer.acquires]

    def remove(self, consumer: QueueConsumer) -> None:
        """Remove `consumer` from its list, from its level and from `all`."""
        self.move(consumer, REMOVED)
        del (self.gets if consumer.getting else self.all)[consumer]
        if consumer.level is not None:
            self.acquiring -= 1
            self._leave_level(consumer)

    def change_context(self, consumer: QueueConsumer, context: Cursor) -> None:
        """Let `consumer`, which acquires and is attached, see the entries of `context` from now on.

        The consumer keeps its place among all consumers and its rank. Afterwards it is INTERESTED, or
        NOT_INTERESTED with a blocker.
        """
        self.move(consumer, NOT_INTERESTED)
        self._leave_level(consumer)
        consumer.context = context
        level = self._level(consumer.rank, context)
        level.members += 1
        consumer.level = level
        if consumer.blockers == 0:
            self.move(consumer, INTERESTED)

    def move(self, consumer: QueueConsumer, state: i64) -> None:
        """Put `consumer` at the tail of the list for `state`; nothing happens if it is in that state."""
        if consumer.state == state:
            return
        level = consumer.level
        self._leave(consumer, level)
        consumer.state = state
        if self.demand_watchers is not None and state != NOTIFIED:
            for watcher in self.demand_watchers:
                watcher.on_demand_changed()
        if level is None:
            if state == NOT_INTERESTED:
                self.not_interested.append(consumer)
            elif state == NON_ACQUIRING:
                self.non_acquiring.append(consumer)
            return
        if state == INTERESTED:
            level.interested.append(consumer)
            self.interested += 1
        elif state == NOTIFIED:
            level.notified.append(consumer)
            self.notified += 1
        else:
            if state == NOT_INTERESTED:
                self.not_interested.append(consumer)
            if level.listed and len(level.home) > 1 and not level.wants_work:
                level.delist()
            return
        if not level.listed:
            level.enlist()

    def to_back(self, consumer: QueueConsumer) -> None:
        """Put `consumer`, which has just had a message, at the tail of its list."""
        level = consumer.level
        if consumer.state == INTERESTED and level is not None:
            level.interested.remove(consumer)
            level.interested.append(consumer)

    def outranked(self, consumer: QueueConsumer) -> bool:
        """Whether a consumer of higher rank than `consumer` wants work too. `consumer` wants work."""
        return self.levels[0].rank > consumer.rank

    def rotate(self, level: ConsumerLevel) -> None:
        """Put `level`, which was notified just now, behind the other levels of its rank."""
        self._rotations += 1
        if len(level.home) > 1:
            level.delist()
            level.turn = self._rotations
            level.enlist()
        else:
            level.turn = self._rotations

    def _leave(self, consumer: QueueConsumer, level: ConsumerLevel | None) -> None:
        state = consumer.state
        if state == INTERESTED:
            assert level is not None, _NO_LEVEL
            level.interested.remove(consumer)
            self.interested -= 1
        elif state == NOTIFIED:
            assert level is not None, _NO_LEVEL
            level.notified.remove(consumer)
            self.notified -= 1
            if consumer.woken:
                consumer.woken = False
                self.empty_wakeups += 1
                self.counters.consumer_empty_wakeups += 1
        elif state == NOT_INTERESTED:
            self.not_interested.remove(consumer)
        elif state == NON_ACQUIRING:
            self.non_acquiring.remove(consumer)

    def _leave_level(self, consumer: QueueConsumer) -> None:
        """Remove `consumer`, in no list of its level, from the level, which ends with its last member."""
        level = consumer.level
        assert level is not None, _NO_LEVEL
        consumer.level = None
        level.members -= 1
        if level.members == 0:
            if level.listed:
                level.delist()
            del self._levels[int(level.rank), level.context]

    def _level(self, rank: i64, context: Cursor) -> ConsumerLevel:
        level = self._levels.get((int(rank), context))
        if level is None:
            postings = context.postings
            home = self.levels if postings is None else self.posting_levels.setdefault(postings, [])
            level = self._levels[int(rank), context] = ConsumerLevel(rank, context, home)
        return level


@mypyc_attr(allow_interpreted_subclasses=True)
class ConsumedQueue(QueueState):
    """A queue with its consumers, and with the features that decide which consumer gets which entry.

    `waiting`: consumers whose next entry is too large for their byte window. `gated`: consumers whose next
    entry is left to a consumer of higher priority. `waiters`: the consumers of both kinds, by the entry for
    which they wait.
    `discipline`: assigns entries to consumers, unless every consumer may get each entry that it sees; set
    before there are entries. `limits`: the queue's limits in time and space. `ready_watchers`: watchers of
    messages that become ready; None: there are none.
    """

    def __init__(
        self,
        name: str,
        store: MessageStore,
        entries: QueueEntryList,
        counters: Counters,
        durable: bool,
        logged: bool,
        number: i64,
        vhost: str,
    ) -> None:
        super().__init__(name, store, entries, counters, durable, logged, number, vhost)
        self.manager = QueueConsumerManager(counters)
        self.waiting: dict[QueueConsumer, None] = {}
        self.gated: dict[QueueConsumer, None] = {}
        self.waiters: dict[QueueEntry, list[QueueConsumer]] = {}
        self.discipline: Discipline | None = None
        self.limits: LimitsHook | None = None
        self.ready_watchers: list[ReadyWatcher] | None = None

    def watch_ready(self, watcher: ReadyWatcher) -> None:
        """Inform `watcher` whenever messages become ready."""
        self.ready_watchers = [*(self.ready_watchers or []), watcher]

    def stop_watching_ready(self, watcher: ReadyWatcher) -> None:
        """Forget `watcher`; nothing happens if it does not watch."""
        left = [each for each in self.ready_watchers or [] if each is not watcher]
        self.ready_watchers = left or None

    def watch_demand(self, watcher: DemandWatcher) -> None:
        """Inform `watcher` whenever a consumer begins or ceases to wait for messages."""
        self.manager.demand_watchers = [*(self.manager.demand_watchers or []), watcher]

    def stop_watching_demand(self, watcher: DemandWatcher) -> None:
        """Forget `watcher`; nothing happens if it does not watch."""
        left = [each for each in self.manager.demand_watchers or [] if each is not watcher]
        self.manager.demand_watchers = left or None

    def has_demand(self, priority: i64) -> bool:
        """Whether a consumer of at least this priority would take a message now, and none is ready."""
        if self.ready != 0:
            return False
        for consumers in (self.manager.all, self.manager.gets):
            for consumer in consumers:
                if consumer.state in (INTERESTED, NOTIFIED) and consumer.priority >= priority:
                    return True
        return False

    def set_discipline(self, discipline: Discipline | None) -> None:
        """Set the discipline of the queue, which has neither entries nor consumers yet."""
        self.discipline = discipline
        self.alike = discipline is None

    @property
    def consumer_count(self) -> int:
        """The number of attached consumers, browsers included."""
        return len(self.manager.all)


def next_entry(queue: ConsumedQueue, consumer: QueueConsumer) -> QueueEntry | None:
    """Return the next entry for `consumer`.

    None with `consumer.context.more`: the look-up is not complete.
    """
    discipline = queue.discipline
    if discipline is None or not consumer.acquires:
        return consumer.context.get_next_available_entry()
    return discipline.next_entry(consumer)


def wait_for_turn(queue: ConsumedQueue, consumer: QueueConsumer, entry: QueueEntry) -> None:
    """Leave the consumer's next `entry` to a consumer of higher priority; look again when it is taken."""
    wait_on(queue, consumer, entry)
    queue.gated[consumer] = None


def wait_on(queue: ConsumedQueue, consumer: QueueConsumer, entry: QueueEntry) -> None:
    """Register `consumer` as a waiter for `entry`, and for no other entry."""
    forget_waiting(queue, consumer)
    consumer.waiting_on = entry
    queue.waiters.setdefault(entry, []).append(consumer)


def forget_waiting(queue: ConsumedQueue, consumer: QueueConsumer) -> None:
    """Remove the consumer's registration as a waiter, if any."""
    entry = consumer.waiting_on
    if entry is None:
        return
    consumer.waiting_on = None
    queue.waiting.pop(consumer, None)
    queue.gated.pop(consumer, None)
    waiters = queue.waiters[entry]
    waiters.remove(consumer)
    if not waiters:
        del queue.waiters[entry]


def notify(queue: ConsumedQueue, consumer: QueueConsumer) -> None:
    """Notify `consumer`, on which the queue relies from now on: INTERESTED → NOTIFIED."""
    queue.manager.move(consumer, NOTIFIED)
    queue.manager.wakeups += 1
    queue.counters.consumer_wakeups += 1
    consumer.woken = True
    consumer.notify_work()


def notify_browsers(queue: ConsumedQueue) -> None:
    """Notify every browser of a new entry."""
    browser = queue.manager.non_acquiring.head
    while browser is not None:
        browser.notify_work()
        browser = browser.next


def notify_one(queue: ConsumedQueue, entry: QueueEntry) -> None:
    """Ensure that a consumer of the highest priority that wants `entry`, AVAILABLE now, is NOTIFIED.

    An idle consumer is preferred to a NOTIFIED consumer, but not to a consumer of higher priority.
    """
    if not queue.alike:
        _notify_first_idle(queue, entry)
        return
    levels = queue.manager.levels
    if levels:
        consumer = levels[0].interested.head
        if consumer is not None:
            notify(queue, consumer)


def notify_watchers(watchers: list[ReadyWatcher]) -> None:
    """Inform the watchers of messages that have become ready."""
    for watcher in watchers:
        watcher.on_ready()


def notify_watchers_of_returns(watchers: list[ReadyWatcher], back: list[QueueEntry]) -> None:
    """Inform the watchers of the entries `back`, which have become ready again."""
    for watcher in watchers:
        watcher.on_return(back)


def notify_if_unnotified(queue: ConsumedQueue, entry: QueueEntry) -> None:
    """Notify as `notify_one` does, unless a NOTIFIED consumer can take the only available entry."""
    rank: i64 = 0
    wanted = False
    for level in levels_for(queue, entry):
        if wanted and level.rank != rank:
            break  # no waiting for a NOTIFIED consumer of lower rank
        if level.wants_work and level.context.sees(entry):
            if level.notified.head is not None:
                return
            wanted = True
            rank = level.rank
    notify_one(queue, entry)


def notify_consumer(queue: ConsumedQueue, consumer: QueueConsumer, together: bool = False) -> None:
    """Notify `consumer`, which has just become able to work, if there is an entry for it.

    `together`: other consumers have become able too, and all share from the first message on.
    """
    if consumer.state == NON_ACQUIRING:
        consumer.notify_work()
    elif consumer.state == INTERESTED and queue.ready != 0:
        level = consumer.level
        assert level is not None, "an INTERESTED consumer acquires"
        if not queue.alike:
            _look(queue, level, consumer, together)
        elif level.notified.count < queue.ready and not queue.manager.outranked(consumer):
            notify(queue, consumer)


def pass_baton(queue: ConsumedQueue, left: QueueConsumer | None = None) -> None:
    """Notify another consumer, if there is work, because a NOTIFIED consumer has dropped out.

    `left`: the consumer that has dropped out, if it is still attached and is the only one.
    """
    if queue.ready == 0:
        return
    if not queue.alike:
        level = None if left is None else left.level
        if level is None or not level.wants_work:
            wake_contexts(queue)
        elif level.notified.head is None:  # else the NOTIFIED consumer sees the same entries
            _look(queue, level, level.interested.head)
        if queue.discipline is not None:
            queue.discipline.notify_another()
        return
    levels = queue.manager.levels
    if levels and levels[0].notified.head is None:
        consumer = levels[0].interested.head
        if consumer is not None:
            notify(queue, consumer)


def share_work(queue: ConsumedQueue, consumer: QueueConsumer) -> None:
    """Notify an idle consumer of the same level, if there is another entry.

    `consumer`, which is NOTIFIED, has just got a message.
    """
    level = consumer.level
    if level is None:  # a browser's
        return
    idle = level.interested.head
    if idle is not None and queue.ready != 0:
        entry = next_entry(queue, idle)
        if entry is not None and not _is_wanted_above(queue, idle, entry):
            notify(queue, idle)


def found_nothing(queue: ConsumedQueue, consumer: QueueConsumer) -> None:
    """Put a consumer whose pull found nothing at the back of Interested.

    A consumer that has only used up its scan budget stays NOTIFIED.
    """
    if consumer.context.more:
        if consumer.state == INTERESTED:
            queue.manager.move(consumer, NOTIFIED)
        return
    if consumer.state == NOTIFIED:
        queue.manager.move(consumer, INTERESTED)
    consumer.target.on_no_messages(consumer)
    extent = consumer.extent
    if extent is not None and extent.snapshot:
        consumer.target.on_snapshot_end(consumer)


def is_outranked(queue: ConsumedQueue, consumer: QueueConsumer, entry: QueueEntry) -> bool:
    """Whether a consumer of higher priority wants `entry`, the next entry of `consumer`.

    Where consumers see different entries, `consumer` then waits until the entry is taken.
    """
    if queue.alike:
        return queue.manager.outranked(consumer)
    if not _is_wanted_above(queue, consumer, entry):
        return False
    wait_for_turn(queue, consumer, entry)
    return True


# ---- for queues whose consumers see different entries


def _notify_first_idle(queue: ConsumedQueue, entry: QueueEntry) -> None:
    """Notify an idle consumer that sees `entry`, of the highest priority with an idle consumer."""
    discipline = queue.discipline
    if discipline is not None:
        if not discipline.is_open(entry):
            return
        owner = discipline.owner(entry)
        if owner is not None:
            if owner.state == INTERESTED and owner.context.sees(entry):
                notify(queue, owner)
            return
    rank: i64 = 0
    relied = False
    for level in levels_for(queue, entry):
        if relied and level.rank != rank:
            return  # a NOTIFIED consumer of a higher rank will take it
        if not level.wants_work or not level.context.sees(entry):
            continue
        consumer = level.interested.head
        if consumer is not None:
            queue.manager.rotate(level)
            notify(queue, consumer)
            return
        relied = True
        rank = level.rank


def _is_wanted_above(queue: ConsumedQueue, consumer: QueueConsumer, entry: QueueEntry) -> bool:
    if queue.discipline is not None and queue.discipline.owner(entry) is not None:
        return False  # the entry's group belongs to the consumer
    for level in levels_for(queue, entry):
        if level.rank <= consumer.rank:
            return False
        if level.wants_work and level.context.sees(entry):
            return True
    return False


def _look(
    queue: ConsumedQueue, level: ConsumerLevel, consumer: QueueConsumer | None, together: bool = False
) -> None:
    """Notify the INTERESTED `consumer` of `level` if an entry is for it, or put it behind a higher consumer.

    A NOTIFIED consumer of the level takes every entry that is not for `consumer` alone, so no look-up is made
    then. But consumers that become able `together` do look, because the assignment of a group lasts.
    """
    if consumer is None:
        return
    relied = level.notified.head is not None and not together
    if relied and (consumer.holding is None or not consumer.holding.owns_some()):
        return
    entry = next_entry(queue, consumer)
    if entry is None:
        if level.context.more:
            notify(queue, consumer)  # the consumer continues the look-up when it is served
    elif _is_wanted_above(queue, consumer, entry):
        wait_for_turn(queue, consumer, entry)
    else:
        notify(queue, consumer)


def wake_contexts(queue: ConsumedQueue) -> None:
    """Let an idle consumer of each context without a NOTIFIED one look for an entry.

    A single consumer is not enough for all contexts, because it may not see the entries of other contexts.
    When the look-ups have cost enough, the remaining consumers look in their turns.
    """
    effort: i64 = 0
    seen: set[Cursor] = set()
    for level in all_levels(queue):
        context = level.context
        if context in seen:
            continue
        if level.notified.head is not None:
            seen.add(context)
            continue
        consumer = level.interested.head
        if consumer is not None:
            seen.add(context)
            if effort >= SCAN_BUDGET:
                notify(queue, consumer)
                continue
            before = context.effort
            _look(queue, level, consumer)
            effort += context.effort - before


def levels_for(queue: ConsumedQueue, entry: QueueEntry) -> list[ConsumerLevel]:
    """Return the levels of consumers that may see `entry`: by rank, then the longest waiting first."""
    everyone = queue.manager.levels
    if queue.index is None:
        return everyone
    levels: list[ConsumerLevel] = []
    posting_levels = queue.manager.posting_levels
    for postings in queue.index.served_postings(entry):
        levels += posting_levels.get(postings, ())
    if not levels:
        return everyone
    for level in everyone:
        levels.append(level)
    levels.sort(key=_rank_and_turn)
    return levels


def all_levels(queue: ConsumedQueue) -> list[ConsumerLevel]:
    """Return all levels of consumers for which there may be an entry."""
    levels = list(queue.manager.levels)
    if queue.index is not None:
        for postings in queue.index.served:
            if postings.first is not None:
                levels += queue.manager.posting_levels.get(postings, ())
    return levels


def _rank_and_turn(level: ConsumerLevel) -> tuple[int, int]:
    return -level.rank, level.turn


def suspend(queue: ConsumedQueue, consumer: QueueConsumer, blocker: i64) -> bool:
    """Set one blocker; true if another consumer must take over now, by `pass_baton`."""
    before = consumer.blockers
    consumer.blockers = before | blocker
    if consumer.state == REMOVED or before != 0:
        return False
    queue.manager.move(consumer, NOT_INTERESTED)
    return consumer.acquires


def set_blocker(queue: ConsumedQueue, consumer: QueueConsumer, blocker: i64, on: bool) -> None:
    """Set or clear one blocker of a consumer."""
    before = consumer.blockers
    after = before | blocker if on else before & ~blocker
    consumer.blockers = after
    if consumer.state == REMOVED or (before == 0) == (after == 0):
        return
    if after != 0:
        queue.manager.move(consumer, NOT_INTERESTED)
        if consumer.acquires:
            pass_baton(queue, consumer)
    else:
        queue.manager.move(consumer, INTERESTED if consumer.acquires else NON_ACQUIRING)
        notify_consumer(queue, consumer)


def clear_blocker(queue: ConsumedQueue, consumers: list[QueueConsumer], blocker: i64) -> None:
    """Clear one blocker of all `consumers`, which acquire: all are INTERESTED before any is notified.

    Where all consumers see the same entries, at most as many consumers are notified as entries are ready.
    """
    for consumer in consumers:
        consumer.blockers &= ~blocker
        if consumer.state == NOT_INTERESTED and consumer.blockers == 0:
            queue.manager.move(consumer, INTERESTED)
    woken: i64 = 0  # NOTIFIED consumers of a lower priority do not count
    for consumer in consumers:
        if queue.alike and woken >= queue.ready:
            break
        if consumer.state != REMOVED:
            notify_consumer(queue, consumer, together=True)
            if consumer.state == NOTIFIED:
                woken += 1


def wait_for_size(queue: ConsumedQueue, consumer: QueueConsumer, entry: QueueEntry) -> None:
    """Let the consumer wait, because its next `entry` is too large for its byte window.

    The consumer looks again when its next entry or its window changes.
    """
    wait_on(queue, consumer, entry)
    queue.waiting[consumer] = None
    set_blocker(queue, consumer, BLOCKED_BY_SIZE, True)


def stop_waiting(queue: ConsumedQueue, consumer: QueueConsumer) -> None:
    """Let a waiting consumer look again: its byte window, or its next entry, has changed."""
    if consumer in queue.waiting:
        forget_waiting(queue, consumer)
        set_blocker(queue, consumer, BLOCKED_BY_SIZE, False)
    elif consumer in queue.gated:
        forget_waiting(queue, consumer)
        notify_consumer(queue, consumer)


def wake_waiters(queue: ConsumedQueue, entry: QueueEntry) -> None:
    """Wake the consumers that waited for `entry`, no longer AVAILABLE: their next entry may be smaller.

    Dead letters that wait for room in the queue wait for every entry.
    """
    for consumer in list(queue.waiters.get(entry, ())):
        stop_waiting(queue, consumer)
    if queue.limits is not None and queue.limits.room_waiters:
        queue.limits.on_room_made()


def wake_for_earlier(queue: ConsumedQueue, entry: QueueEntry) -> None:
    """Wake consumers that wait for an entry after `entry`, which has become AVAILABLE and may fit."""
    for consumer in list(queue.waiting):
        awaited = consumer.waiting_on
        if awaited is not None and entry.precedes(awaited) and consumer.target.fits(entry.message.size):
            stop_waiting(queue, consumer)


def wake_for_some(queue: ConsumedQueue, entries: list[QueueEntry]) -> None:
    """Wake consumers for many entries at once, as if the first of them were as small as the smallest.

    A woken consumer may find nothing.
    """
    first = entries[0]
    size = first.message.size
    for entry in entries:
        if entry.precedes(first):
            first = entry
        size = min(size, entry.message.size)
    for consumer in list(queue.waiting):
        awaited = consumer.waiting_on
        if awaited is not None and first.precedes(awaited) and consumer.target.fits(size):
            stop_waiting(queue, consumer)
