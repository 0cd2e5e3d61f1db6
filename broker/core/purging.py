"""Purging a queue: what was ready goes, in slices, as there may be a million messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.allowance import ENTRIES
from broker.core.browsers import begin_browsing, end_browsing
from broker.core.consumer import BLOCKED_BY_PURGE
from broker.core.context import QueueContext
from broker.core.entry import AVAILABLE, HELD, QueueEntry
from broker.core.leaving import drop
from broker.core.schedule import Alarm, Schedule
from broker.core.stream_list import refuse_stream
from broker.core.waiting import clear_blocker, suspend

if TYPE_CHECKING:
    from broker.core.queue import Queue

SLICE: Final[i64] = 5000  # entries that are looked at in one turn: one or two milliseconds
DEAD_SLICE: Final[i64] = 1000  # messages that wait to be dead-lettered, of which each is told to the log


@mypyc_attr(allow_interpreted_subclasses=True)
class PurgeWaiter:
    """Somebody who must not answer before a purge is over."""

    def on_purged(self, purge: Purge) -> None:
        """It is, or its queue was deleted meanwhile."""
        raise NotImplementedError


@final
class Purge(Alarm):
    """Drops every AVAILABLE or HELD entry of `queue`, as far as they were there when it was asked for.

    Before that it drops the messages that wait to be dead-lettered, as far as they did so then: the journal
    knows them by their places, and is told of stretches of entries.

    What comes later stays, and so does what somebody has when its turn comes. As long as it goes on no
    consumer is served, so that none of them gets what is to go; only browsers, basic.get and operators may
    come before it. When it is `over`, nothing is ready that was so when it began, unless one of those two had
    it and gave it back. What comes back from clients meanwhile may go too. Several purges of a queue go on
    one after the other.

    Each entry is settled in the log when it is dropped: if the broker dies meanwhile, the others are there
    again. `dropped` counts them. `most`: how many entries are looked at in one turn.
    """

    def __init__(self, queue: Queue, schedule: Schedule, most: i64) -> None:
        super().__init__()
        self.queue = queue
        self.dropped: i64 = 0
        self.over: bool = False
        self._schedule = schedule
        self._most = most
        self._newest: i64 = queue.entries.sequence
        self._newest_dead: i64 = 0 if queue.backlog is None else queue.backlog.numbers
        self._dead_done = False
        self._cursor: QueueContext | None = None  # on the last entry that has been looked at and stays
        self._waiter: PurgeWaiter | None = None
        self._by: object | None = None if queue.journal is None else queue.journal.who()

    def tell(self, waiter: PurgeWaiter) -> None:
        """Have `waiter`, and nobody else, be told when it is over."""
        self._waiter = waiter
        if self.over:
            waiter.on_purged(self)

    def begin(self) -> None:
        """Drop a first slice. If there is more, no consumer is served until this is over."""
        queue = self.queue
        is_over = False
        last: QueueEntry | None = None
        if self._drop_dead():
            last = self._drop_slice(queue.entries.head)
            is_over = last is None
        self._schedule.allowance.use(self.dropped // ENTRIES)
        if is_over:
            self.over = True
            return
        self.wait()
        self._go_on(last)

    def wait(self) -> None:
        """Have a turn to come, until which no consumer is served."""
        queue = self.queue
        queue.manager.purges.append(self)
        for consumer in queue.manager.takers():
            suspend(queue, consumer, BLOCKED_BY_PURGE)  # nobody takes over

    def ring(self) -> None:
        """Drop another slice (Alarm)."""
        queue = self.queue
        if queue.deleted:
            self._end()
        elif not self._drop_dead():
            self._go_on(None)
        else:
            last = self._drop_slice(queue.entries.head if self._cursor is None else self._cursor.last)
            if last is None:
                self._end()
            else:
                self._stand_on(last)

    def _drop_dead(self) -> bool:
        """Drop a slice of what waits to be dead-lettered; true if that was all."""
        backlog = self.queue.backlog
        if not self._dead_done and backlog is not None and self._newest_dead > 0:
            dropped = backlog.drop(DEAD_SLICE, self._newest_dead, self._by)
            self.dropped += dropped
            if dropped == DEAD_SLICE:
                return False
        self._dead_done = True
        return True

    def _go_on(self, last: QueueEntry | None) -> None:
        """Go on after `last` in another turn; None: with what waits, or from the beginning."""
        if last is None:
            self._schedule.set(self, self._schedule.now())
        else:
            self._stand_on(last)

    def _drop_slice(self, last: QueueEntry) -> QueueEntry | None:
        """Look at entries after `last`; returns the one after which to go on, None: that was all."""
        queue = self.queue
        entries = queue.entries
        room = self._most
        noted = _Noted(queue, self._by)
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

    def _stand_on(self, last: QueueEntry) -> None:
        """Go on after `last` in another turn."""
        cursor = self._cursor
        if cursor is None:
            cursor = self._cursor = QueueContext(self.queue.entries)
            begin_browsing(self.queue, cursor)
        if cursor.last is not last:
            cursor.passed(last)
        self._schedule.set(self, self._schedule.now())

    def _end(self) -> None:
        self.over = True
        queue = self.queue
        if self._cursor is not None:
            end_browsing(queue, self._cursor)
        purges = queue.manager.purges
        purges.remove(self)
        if purges:
            self._schedule.set(purges[0], self._schedule.now())
        else:
            clear_blocker(queue, queue.manager.takers(), BLOCKED_BY_PURGE)
        if self._waiter is not None:
            self._waiter.on_purged(self)


@final
class _Noted:
    """What the journal is told of a purge: from which place to which all leave, and how many those are.

    In a slice nothing comes between, so that nothing else was in that part of the queue: what is with
    consumers ends it. Where entries are not in the order of their places, or what waits to be dead-lettered
    may have a place between, each is told by itself.
    """

    def __init__(self, queue: Queue, by: object | None) -> None:
        self._queue = queue
        self._by = by
        self._first: i64 = 0
        self._last: i64 = 0
        self._count: i64 = 0

    def add(self, entry: QueueEntry) -> None:
        """`entry` leaves."""
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
        """Tell what has left and has not been told."""
        if self._count > 0 and self._queue.journal is not None:
            self._queue.journal.purged(self._first, self._last, self._count, self._by)
        self._count = 0


def purge(queue: Queue, schedule: Schedule, most: i64 = SLICE) -> Purge:
    """Drop what is AVAILABLE or HELD: at once if that is soon done, else in turns to come.

    Raises:
        Unsupported: it is a stream.
    """
    refuse_stream(queue, "purged")
    asked = Purge(queue, schedule, most)
    purges = queue.manager.purges
    if queue.manager.returns and not purges:
        asked.wait()  # for what is on its way back
    elif purges:
        purges.append(asked)  # each begins when the one before it is over
    else:
        asked.begin()
    return asked
