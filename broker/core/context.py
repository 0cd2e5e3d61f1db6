"""How far consumers have got in a queue."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, final

from mypy_extensions import i64

from broker.core.entry import AVAILABLE, DEQUEUED, QueueEntry
from broker.core.entry_list import QueueEntryList

SCAN_BUDGET: Final = 5000  # entries passed in one turn: a few hundred microseconds
_STALE_MIN: Final = 64  # below this many, stale entries are not worth collecting


@final
class QueueContext:
    """A cursor, shared by all consumers that see the same entries.

    [Qpid: QueueContext, one per consumer there]

    `last` is the last entry seen; it never moves to a later entry's back: released entries and late arrivals
    of higher priority that lie at or before it go to the heap `behind`. The invariant that everything rests
    on: every AVAILABLE entry at or before `last` that these consumers may see is in `behind`. So the next
    entry is the first of `behind`, else the first AVAILABLE one after `last`, in strict order and without
    rescanning.

    `more` tells after a look-up that returned None that the budget was used up before the end of the queue.
    """

    def __init__(self, entries: QueueEntryList) -> None:
        self.entries = entries
        self.last: QueueEntry = entries.head
        self.behind: list[tuple[int, QueueEntry]] = []
        self.more: bool = False
        self.scan_budget: i64 = SCAN_BUDGET

    def get_next_available_entry(self) -> QueueEntry | None:
        """The entry to deliver next, or None; changes nothing but the cursor."""
        self.more = False
        if self.behind:
            entry = self._first_behind()
            if entry is not None:
                return entry
        entry = self.entries.next(self.last)
        if entry is None or entry.state == AVAILABLE:
            return entry
        return self._scan(entry)

    def passed(self, entry: QueueEntry) -> None:
        """`entry`, the result of the latest look-up, is being delivered."""
        if self.behind and self.behind[0][1] is entry:
            heappop(self.behind)
        else:
            self.last = entry

    def offer(self, entry: QueueEntry, depth: i64) -> None:
        """`entry` has just become AVAILABLE in a queue of `depth` entries."""
        if entry.order <= self.last.order:
            heappush(self.behind, (entry.order, entry))
            self.compact(depth)

    def offer_many(self, entries: list[QueueEntry], depth: i64) -> None:
        """All of `entries` have just become AVAILABLE: one O(n) heapify instead of n pushes."""
        last = self.last.order
        self.behind += [(entry.order, entry) for entry in entries if entry.order <= last]
        heapify(self.behind)
        self.compact(depth)

    def forget(self, entry: QueueEntry, depth: i64) -> None:
        """`entry` is about to be unlinked, and then `depth` are left: no cursor may stand on it.

        Nothing lies between an entry and the one before it, so stepping back shows nothing again. Nor does
        starting anew in an empty queue, and it spares a priority queue the heap.
        """
        if depth == 0:
            self.last = self.entries.head
            if self.behind:
                self.behind.clear()
            return
        if self.last is entry:
            before = entry.prev
            assert before is not None, "a cursor stands on linked entries only"
            self.last = before
        if self.behind:
            self.compact(depth)

    def compact(self, depth: i64) -> None:
        """Drop what has left the queue, once it may outnumber what has not; O(1) amortised."""
        if len(self.behind) > _STALE_MIN and len(self.behind) > 2 * depth:
            live = {order: entry for order, entry in self.behind if entry.state != DEQUEUED}
            self.behind = sorted(live.items())

    def _first_behind(self) -> QueueEntry | None:
        while self.behind:
            entry = self.behind[0][1]
            if entry.state == AVAILABLE:
                return entry
            heappop(self.behind)  # gone, or with somebody: it is offered again if it comes back
        return None

    def _scan(self, entry: QueueEntry) -> QueueEntry | None:
        """Walk on from `entry`, the successor of `last`, which is not AVAILABLE."""
        budget = self.scan_budget
        while True:
            following = self.entries.next(entry)
            if following is None or following.state == AVAILABLE:
                self.last = entry
                return following
            budget -= 1
            if budget <= 0:
                self.last = entry
                self.more = True
                return None
            entry = following
