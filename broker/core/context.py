"""How far consumers have got in a queue."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.entry import AVAILABLE, DEQUEUED, QueueEntry
from broker.core.entry_filter import EntryFilter
from broker.core.entry_list import QueueEntryList

if TYPE_CHECKING:
    from broker.core.browsers import Browsers
    from broker.core.index import Row
    from broker.core.stream_progress import StreamProgress

SCAN_BUDGET: Final = 5000  # what one look may cost, in entries passed: a few hundred microseconds
FILTER_COST: Final[i64] = 10  # of asking a filter about an entry, in the same unit
LOAD_COST: Final[i64] = 200  # of having the store read the entry's content for it,
LOAD_SHIFT: Final[i64] = 7  # and of 128 bytes of that
PUSHED: Final[i64] = 4  # times as much that is behind makes pushes cheaper than to heapify all
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

    `filter`: which entries these consumers see; None: all of them.
    `users`: how many consumers share it, if it has a filter.
    `more` tells after a look-up that returned None that the budget was used up before the end of the queue.
    `row`: of an index, which it walks over instead of the queue, if any.
    `browsers`: has to know where it stands; None unless a browser's cursor.
    `progress`: what has been done with what it has shown of a stream, if that is to remember it.
    `effort`: what look-ups have cost since somebody set it to 0, as if each entry passed cost 1.
    """

    def __init__(self, entries: QueueEntryList, entry_filter: EntryFilter | None = None) -> None:
        self.entries = entries
        self.filter = entry_filter
        self.users: i64 = 0
        self.last: QueueEntry = entries.head
        self.behind: list[QueueEntry] = []
        self.more: bool = False
        self.scan_budget: i64 = SCAN_BUDGET
        self.effort: i64 = 0
        self.browsers: Browsers | None = None
        self.row: Row | None = None
        self.progress: StreamProgress | None = None

    @property
    def is_left(self) -> bool:
        """Whether nobody shares it any more, or will: who comes with the same filter gets another one."""
        return self.users == 0 and self.filter is not None

    def get_next_available_entry(self) -> QueueEntry | None:
        """The entry to deliver next, or None; changes nothing but the cursor."""
        self.more = False
        limit = self.effort + self.scan_budget
        while self.behind:
            entry = self.behind[0]
            if entry.state == AVAILABLE and (self.filter is None or self.passes(entry)):
                return entry
            heappop(self.behind)  # gone, or with somebody: it is offered again if it comes back
            if self.filter is not None:
                self.effort += 1
                if self.effort >= limit:
                    self.more = True
                    return None
        following = self.entries.next(self.last)
        if following is None:
            return None
        if following.state == AVAILABLE and self.filter is None:
            return following
        return self._scan(following, limit)

    def sees(self, entry: QueueEntry) -> bool:
        """Whether these consumers see `entry`, as far as it is up to the filter."""
        return self.filter is None or self.filter.passes(entry)

    def passes(self, entry: QueueEntry) -> bool:
        """Ask the filter, which there is, in a look-up: what that costs is noted."""
        assert self.filter is not None, "only contexts with a filter ask it"
        message = entry.message
        self.effort += FILTER_COST
        if message.content is None:
            self.effort += LOAD_COST + (message.length >> LOAD_SHIFT)
        return self.filter.passes(entry)

    def passed(self, entry: QueueEntry) -> None:
        """`entry`, the result of the latest look-up, is being delivered."""
        if self.progress is not None:
            self.progress.delivered(entry)
        if self.behind and self.behind[0] is entry:
            heappop(self.behind)
        else:
            self._move_to(entry)

    def offer(self, entry: QueueEntry, depth: i64) -> None:
        """`entry` has just become AVAILABLE in a queue of `depth` entries."""
        if not self.last.precedes(entry):
            heappush(self.behind, entry)
            self.compact(depth)

    def offer_many(self, entries: list[QueueEntry], depth: i64) -> None:
        """All of `entries` have just become AVAILABLE: one O(n) heapify instead of n pushes.

        Not even that if they come in order, after what is behind already: so comes back what a consumer had.
        If much more is behind, they are pushed after all: what goes on in slices is not to be O(n) in each.
        """
        last = self.last
        behind = self.behind
        known: i64 = len(behind)
        back = [entry for entry in entries if not last.precedes(entry)]
        if known > PUSHED * len(back):
            for entry in back:
                heappush(behind, entry)
        else:
            behind += back
            if not _is_heap_from(behind, known):
                heapify(behind)
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
            self.last = self.entries.before(entry)
        if self.behind:
            self.compact(depth)

    def compact(self, depth: i64) -> None:
        """Drop what has left the queue, once it may outnumber what has not; O(1) amortised."""
        if len(self.behind) > _STALE_MIN and len(self.behind) > 2 * depth:
            live = dict.fromkeys([entry for entry in self.behind if entry.state != DEQUEUED])
            self.behind = sorted(live)

    def _scan(self, entry: QueueEntry, limit: i64) -> QueueEntry | None:
        """Walk on from the successor of `last`; None at the end, or with `more` where the effort ends."""
        passed = self.last
        following: QueueEntry | None = entry
        while following is not None:
            if following.state == AVAILABLE and (self.filter is None or self.passes(following)):
                break
            passed = following
            following = self.entries.next(following)
            self.effort += 1 + self.entries.reads
            self.entries.reads = 0
            if self.effort >= limit and following is not None:
                self.more = True
                following = None
        if passed is not self.last:
            self._move_to(passed)
        return following

    def _move_to(self, entry: QueueEntry) -> None:
        before = self.last
        self.last = entry
        if self.browsers is not None:
            self.browsers.moved(self, before)
            self.effort += self.entries.reads
            self.entries.reads = 0


def _is_heap_from(entries: list[QueueEntry], known: i64) -> bool:
    """Whether all of `entries` are a heap, the first `known` of them being one."""
    i = max(known, 1)
    while i < len(entries):
        if entries[i].precedes(entries[(i - 1) >> 1]):
            return False
        i += 1
    return True
