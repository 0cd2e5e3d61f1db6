"""Purging a queue, and disposing of the entries of a deleted queue, in slices."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.entries.cursor import Cursor
from broker.core.entries.entry import AVAILABLE, HELD, Holder, QueueEntry
from broker.core.message import Message
from broker.core.queues.attach import end_snapshot, remove_consumer
from broker.core.queues.consumer import BLOCKED_BY_PURGE
from broker.core.queues.consumers import clear_blocker, suspend
from broker.core.queues.dead_letter_backlog import existing_backlog
from broker.core.queues.duplicates import memory_of
from broker.core.queues.hooks import PartitionsHook, RemoteHook
from broker.core.queues.queue import Queue, drop, refuse_stream
from broker.core.queues.state import abandon, begin_browsing, end_browsing, reset_counts
from broker.core.schedule import ENTRIES, Chore, Schedule

SLICE: Final[i64] = 5000  # entries that are looked at in one turn: one or two milliseconds
DEAD_SLICE: Final[i64] = 1000  # messages that wait to be dead-lettered; each has a record in the log


@mypyc_attr(allow_interpreted_subclasses=True)
class PurgeWaiter:
    """A caller that must not answer before a purge is over."""

    def on_purged(self, purge: Purge) -> None:
        """Note that the purge is over or has failed, or its queue was deleted meanwhile."""
        raise NotImplementedError


@final
class Purge(Chore):
    """A purge: it drops every AVAILABLE or HELD entry that was in `queue` at the request.

    Before that it drops the messages that waited to be dead-lettered at the request. The journal knows them
    by their places, and records the entries in stretches.

    Later arrivals stay, and so do entries that are acquired when the purge reaches them. While it runs no
    consumer is served, so that none gets an entry that is about to be dropped. Only browsers, basic.get and
    operators may come first. When it is `over`, no entry is ready that was ready at its beginning, unless a
    basic.get or an operator had it and returned it. Entries that clients return meanwhile may be dropped too.
    Several purges of a queue run one after the other.

    Each entry is settled in the log when it is dropped: if the broker dies meanwhile, a restart restores the
    others.
    `dropped` counts them. `most`: how many entries are looked at in one turn. `logged`: the log stores
    messages of the queue. `failure`: why messages of another broker may be left; "": none are left.

    A purge of a partitioned queue purges its members, and is over when all these purges are. A purge of a
    remote queue purges the messages that wait here and those of the other broker.
    """

    def __init__(self, queue: Queue, schedule: Schedule, most: i64) -> None:
        super().__init__(schedule, most)
        self.queue = queue
        self.dropped: i64 = 0
        self.over: bool = False
        self.logged: bool = queue.logged
        self.failure = ""
        self._newest: i64 = queue.entries.sequence
        backlog = existing_backlog(queue)
        self._newest_dead: i64 = 0 if backlog is None else backlog.numbers
        self._dead_done = False
        self._cursor: Cursor | None = None  # on the last entry that has been looked at and stays
        self._waiter: PurgeWaiter | None = None
        self._by: object | None = None if queue.journal is None else queue.journal.current_actor()
        self._parts_left: i64 = 0

    def set_waiter(self, waiter: PurgeWaiter) -> None:
        """Set the only waiter, which is called when the purge is over."""
        self._waiter = waiter
        if self.over:
            waiter.on_purged(self)

    def begin(self) -> None:
        """Drop a first slice. If more is left, no consumer is served until the purge is over."""
        queue = self.queue
        is_over = False
        last: QueueEntry | None = None
        if self._drop_dead():
            last = self._drop_slice(queue.entries.head, self.budget)
            is_over = last is None
        self.schedule.allowance.use(self.dropped // ENTRIES)
        if is_over:
            self.over = True
            return
        self.wait()
        if last is not None:
            self._move_cursor(last)
        self.continue_soon()

    def begin_members(self, partitions: PartitionsHook) -> None:
        """Purge the members of the partitioned queue. Raises PreconditionFailed before the first purge."""
        members = partitions.member_queues()
        for member in members:
            if isinstance(member, Queue) and member.remote is not None:
                member.remote.check_purge()
        self._parts_left = len(members)
        self.over = not members
        for member in members:
            assert isinstance(member, Queue), "every QueueState is a Queue"
            self.logged = self.logged or member.logged
            purge(member, self.schedule, self.budget).set_waiter(_PartEnd(self))

    def begin_remote(self, remote: RemoteHook) -> None:
        """Purge the messages that wait here and the queue of the other broker. Raises PreconditionFailed."""
        self._parts_left = 2
        remote.purge(self.note_part_end)
        here = Purge(self.queue, self.schedule, self.budget)
        _begin(here)
        here.set_waiter(_PartEnd(self))

    def note_part_end(self, dropped: i64, failure: str) -> None:
        """Note that a part of the purge is over and has dropped so many messages. `failure`: as here."""
        self.dropped += dropped
        self.failure = self.failure or failure
        self._parts_left -= 1
        if self._parts_left == 0:
            self.over = True
            if self._waiter is not None:
                self._waiter.on_purged(self)

    def wait(self) -> None:
        """Queue the purge for a later turn, until which no consumer is served."""
        queue = self.queue
        queue.manager.purges.append(self)
        for consumer in queue.manager.acquiring_consumers():
            suspend(queue, consumer, BLOCKED_BY_PURGE)  # no consumer takes over

    def step(self, budget: i64) -> bool:
        """Drop waiting dead letters, or look at up to `budget` entries and drop them."""
        queue = self.queue
        if self.over:
            return False
        if queue.deleted:
            self._end()
            return False
        if not self._drop_dead():
            return True
        last = self._drop_slice(queue.entries.head if self._cursor is None else self._cursor.last, budget)
        if last is None:
            self._end()
            return False
        self._move_cursor(last)
        return True

    def _drop_dead(self) -> bool:
        """Drop a slice of the messages that wait to be dead-lettered; true if none are left."""
        backlog = existing_backlog(self.queue)
        if not self._dead_done and backlog is not None and self._newest_dead > 0:
            dropped = backlog.drop(DEAD_SLICE, self._newest_dead, self._by)
            self.dropped += dropped
            if dropped == DEAD_SLICE:
                return False
        self._dead_done = True
        return True

    def _drop_slice(self, last: QueueEntry, room: i64) -> QueueEntry | None:
        """Look at up to `room` entries after `last`. Return where to continue, None: no more."""
        queue = self.queue
        entries = queue.entries
        noted = _PurgedStretch(queue, self._by)
        entry = entries.next(last)
        while entry is not None and room > 0:
            following = entries.next(entry)
            if entries.arrival(entry) > self._newest:
                if entries.in_order:
                    noted.end()
                    return None
                last = entry
            elif entry.state == AVAILABLE or entry.state == HELD:
                noted.add(entry)
                drop(queue, entry)
                self.dropped += 1
            else:
                last = entry
            room -= 1
            entry = following
        noted.end()
        return None if entry is None else last

    def _move_cursor(self, last: QueueEntry) -> None:
        """Set the cursor to `last`, after which the next slice begins."""
        cursor = self._cursor
        if cursor is None:
            cursor = self._cursor = Cursor(self.queue.entries)
            begin_browsing(self.queue, cursor)
        if cursor.last is not last:
            cursor.move_past(last)

    def _end(self) -> None:
        self.over = True
        queue = self.queue
        if self._cursor is not None:
            end_browsing(queue, self._cursor)
        purges = queue.manager.purges
        purges.remove(self)
        if purges:
            purges[0].continue_soon()
        else:
            clear_blocker(queue, queue.manager.acquiring_consumers(), BLOCKED_BY_PURGE)
        if self._waiter is not None:
            self._waiter.on_purged(self)


@final
class _PartEnd(PurgeWaiter):
    """The waiter for the purge of a member, for the purge of its partitioned queue."""

    def __init__(self, whole: Purge) -> None:
        self._whole = whole

    def on_purged(self, purge: Purge) -> None:
        """Count the dropped messages."""
        self._whole.note_part_end(purge.dropped, purge.failure)


@final
class _PurgedStretch:
    """The purged stretches for the journal: the first and the last place, and the count of entries.

    Within a slice no other work runs, so each stretch covers exactly the dropped entries. An entry with a
    consumer ends the stretch. Where entries are not in the order of their places, or a message that waits to
    be dead-lettered may have a place in between, each entry is recorded separately.
    """

    def __init__(self, queue: Queue, by: object | None) -> None:
        self._queue = queue
        self._by = by
        self._first: i64 = 0
        self._last: i64 = 0
        self._count: i64 = 0

    def add(self, entry: QueueEntry) -> None:
        """Add `entry`, which leaves."""
        if self._queue.journal is None:
            return
        before = entry.prev
        alone = not self._queue.entries.in_order or self._queue.dead > 0
        alone = alone or (before is not None and before.owner is not None)
        if self._count > 0 and alone:
            self.end()
        if self._count == 0:
            self._first = entry.order
        self._last = entry.order
        self._count += 1

    def end(self) -> None:
        """Record the stretch so far."""
        if self._count > 0 and self._queue.journal is not None:
            self._queue.journal.purged(self._first, self._last, self._count, self._by)
        self._count = 0


def purge(queue: Queue, schedule: Schedule, most: i64 = SLICE) -> Purge:
    """Drop the AVAILABLE and HELD entries of a queue: at once if there are few, else in later turns.

    Raises:
        Unsupported: the queue is a stream.
        PreconditionFailed: the queue or a member is remote, and the other broker cannot be reached.
    """
    refuse_stream(queue, "purged")
    started = Purge(queue, schedule, most)
    if queue.partitions is not None:
        started.begin_members(queue.partitions)
        return started
    if queue.remote is not None:
        started.begin_remote(queue.remote)
        return started
    _begin(started)
    return started


def _begin(started: Purge) -> None:
    """Drop the first entries, or wait behind other work of the queue."""
    queue = started.queue
    purges = queue.manager.purges
    if queue.manager.returns and not purges:
        started.wait()  # for entries that are being requeued
    elif purges:
        purges.append(started)  # a purge begins when the purge before it is over
    else:
        started.begin()


CLEARING_SLICE: Final[i64] = 5000  # entries of a deleted queue released in one turn: 1 or 2 milliseconds


def cut_off(queue: Queue, schedule: Schedule) -> None:
    """Stop all activity of a deleted queue, of its timers as well as its clients.

    From now on, settling or releasing its deliveries has no effect. `dispose` removes the rest.
    """
    queue.deleted = True
    if queue.limits is not None:
        queue.limits.stop()
    backlog = existing_backlog(queue)
    if backlog is not None:
        backlog.stop()
    if queue.retry is not None:
        queue.retry.stop()
    if queue.volatile is not None:
        schedule.cancel(queue.volatile)
    if queue.memory is not None:
        schedule.cancel(queue.memory)
    if queue.manager.gate is not None:
        queue.manager.gate.stop()
    if queue.stream is not None:
        queue.stream.drop()
        queue.stream = None
    if queue.partitions is not None:
        queue.partitions.stop()


def dispose(queue: Queue, schedule: Schedule) -> None:
    """Remove the consumers and all contents of a deleted queue, which no client can reach any more.

    Targets learn of the deletion through `on_consumer_cancelled`. The queue takes back the deliveries of
    clients, and reports each of them through `on_acquisition_removed`.
    """
    cut_off(queue, schedule)
    if queue.journal is not None:
        queue.journal.deleted()
        queue.journal = None
    if queue.partitions is not None:
        queue.partitions.end()
        queue.partitions = None
    if queue.member is not None:
        queue.member.note_deleted()
    if queue.remote is not None:
        inlet = queue.remote.end()
        assert isinstance(inlet, Queue), "every QueueState is a Queue"
        dispose(inlet, schedule)
    remains = DeletedContents(queue, schedule)
    queue.limits = None
    queue.memory = None
    queue.election = None
    queue.discipline = None
    consumers = [*queue.manager.all, *queue.manager.gets]
    for consumer in consumers:
        remove_consumer(queue, consumer)
        consumer.holding = None
    queue.manager.gate = None
    queue.volatile = None
    if queue.browsers is not None:
        queue.browsers.clear()
        queue.browsers = None
    queue.places = None
    queue.filtered.clear()
    queue.context.restart()
    reset_counts(queue)
    remains.do_due_work()
    for consumer in consumers:
        end_snapshot(consumer.front)
        consumer.target.on_consumer_cancelled(consumer)


def disposal_cost(queue: Queue) -> i64:
    """Return how many entries, or equal amounts of work, `dispose` handles at once."""
    cost = queue.messages
    if queue.limits is not None and queue.limits.timetable is not None:
        cost += len(queue.limits.timetable)
    memory = memory_of(queue)
    if memory is not None:
        cost += len(memory)
    return min(cost, CLEARING_SLICE)


@final
class DeletedContents(Chore):
    """The contents of a deleted queue, released in slices, because there may be a million entries.

    For clients and for recovery they are deleted with the queue: settling or releasing an entry that is not
    reached yet has no effect. Iterative: neither entries nor groups are collected in cycles.
    """

    def __init__(self, queue: Queue, schedule: Schedule) -> None:
        super().__init__(schedule, CLEARING_SLICE)
        self._queue = queue
        self._limits = queue.limits
        self._memory = memory_of(queue)

    def step(self, budget: i64) -> bool:
        """Release up to `budget` entries, delayed messages, waiting dead letters and marks."""
        entries = self._queue.entries
        room = budget
        taken: list[tuple[Holder, QueueEntry]] = []
        entry = entries.next(entries.head)
        while entry is not None and room > 0:
            following = entries.next(entry)
            owner = entry.owner
            if owner is not None:
                taken.append((owner, entry))
            self._remove_entry(entry)
            room -= 1
            entry = following
        timetable = None if self._limits is None else self._limits.timetable
        if timetable is not None:
            for message in timetable.take(room):
                self._forget(message)
        backlog = existing_backlog(self._queue)
        if backlog is not None:
            for message in backlog.take(room):
                self._forget(message)
        memory = self._memory
        if memory is not None:
            for mark in memory.take(room):
                self._forget(mark)
        is_unfinished = (
            entry is not None
            or (timetable is not None and len(timetable) > 0)
            or (backlog is not None and not backlog.is_empty())
            or (memory is not None and len(memory) > 0)
        )
        if not is_unfinished:
            self._queue.retry = None
            self._queue.backlog = None
            self._queue.member = None
        for owner, taken_back in taken:
            owner.on_acquisition_removed(taken_back)
        return is_unfinished

    def _remove_entry(self, entry: QueueEntry) -> None:
        """Remove an entry: AVAILABLE, ACQUIRED or HELD → DEQUEUED."""
        queue = self._queue
        if entry.state == HELD and queue.retry is not None:
            queue.retry.forget_wait(entry)
        abandon(entry)
        group = entry.group
        if group is not None:
            group.disown()  # the owner refers to its groups
            entry.group = None
        if self._limits is not None and entry.timer is not None:
            self._limits.timers.stop(entry.timer)
        if queue.index is not None:
            queue.index.remove(entry, 0)
        queue.entries.unlink(entry)
        if queue.member is not None:
            queue.member.note_departure(entry)
        self._forget(entry.message)

    def _forget(self, message: Message) -> None:
        if self._queue.logged and message.sequence != 0:
            self._queue.store.forget(message, self._queue)
