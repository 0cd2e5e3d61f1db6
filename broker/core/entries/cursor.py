"""The cursors of a queue: the position up to which a consumer or browser has seen the entries."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.entries.entry import AVAILABLE, DEQUEUED, RANK_SHIFT, EntryFilter, QueueEntry
from broker.core.entries.list import QueueEntryList

SHARE: Final[i64] = 32  # a browser sees one message for so many that consumers get,
LEAST: Final[i64] = 8  # and so many in a turn in which consumers get none
SWEEP: Final[i64] = 64  # entries that leave the queue before `behind` of all cursors is compacted


@final
class Browsers:
    """The cursors of a queue's browsers, each with the queue's delivery count at its last turn.

    `standing` has the cursors by the entries that they stand on. So an entry that leaves the queue affects
    only the cursors that stand on it, however many browsers there are.
    """

    def __init__(self) -> None:
        self.cursors: dict[Cursor, int] = {}
        self.standing: dict[QueueEntry, dict[Cursor, None]] = {}
        self._gone: i64 = 0  # entries, since the last sweep

    def note_move(self, cursor: Cursor, before: QueueEntry) -> None:
        """Note that `cursor` has moved from `before` to its `last`."""
        there = self.standing[before]
        if len(there) == 1 and not cursor.last.stood_on:
            del self.standing[before]
            before.stood_on = False
            before.release_page()
            self.standing[cursor.last] = there
            cursor.last.stood_on = True
        else:
            self._leave(cursor, before)
            self._stand(cursor)

    def offer(self, entry: QueueEntry, depth: i64) -> None:
        """Offer `entry`, which is new in a queue of `depth` entries, to all cursors.

        The entry may be before the last entry of the queue.
        """
        for cursor in self.cursors:
            cursor.offer(entry, depth)

    def offer_released(self, entry: QueueEntry, depth: i64) -> None:
        """Offer `entry`, which was HELD from its arrival on, to the cursors that began before its arrival."""
        for cursor in self.cursors:
            if cursor.entries.arrival(entry) > cursor.newest:
                cursor.offer(entry, depth)

    def forget(self, entry: QueueEntry, depth: i64) -> None:
        """Move all cursors off `entry`, which is about to be unlinked; `depth` entries are left then."""
        if entry.stood_on:
            entry.stood_on = False
            for cursor in self.standing.pop(entry):
                cursor.last = cursor.entries.before(entry)
                self._stand(cursor)
        self._gone += 1
        if self._gone >= SWEEP + len(self.cursors):
            self._gone = 0
            for cursor in self.cursors:
                cursor.compact(depth)

    def add(self, cursor: Cursor, delivered: i64) -> None:
        """Add the cursor of a new browser to a queue that has delivered `delivered` messages."""
        cursor.browsers = self
        self.cursors[cursor] = delivered
        self._stand(cursor)

    def remove(self, cursor: Cursor) -> None:
        """Remove the cursor of a browser that ends."""
        cursor.browsers = None
        del self.cursors[cursor]
        self._leave(cursor, cursor.last)

    def clear(self) -> None:
        """Forget all cursors: the queue is deleted."""
        for cursor in self.cursors:
            cursor.browsers = None
        self.cursors.clear()
        self.standing.clear()

    def _stand(self, cursor: Cursor) -> None:
        entry = cursor.last
        entry.stood_on = True
        self.standing.setdefault(entry, {})[cursor] = None

    def _leave(self, cursor: Cursor, entry: QueueEntry) -> None:
        there = self.standing[entry]
        del there[cursor]
        if not there:
            del self.standing[entry]
            entry.stood_on = False
            entry.release_page()

    def share(self, cursor: Cursor, total: i64) -> i64:
        """Return how many messages a browser may see in one turn while the queue has acquiring consumers.

        `cursor` is the browser's cursor. `total`: the messages that the queue has delivered. With these
        shares, consumers are hardly slowed down, whether they run at full speed or wait for their clients.
        """
        delivered = total - self.cursors[cursor]
        self.cursors[cursor] = total
        return max(delivered // SHARE, 1) if delivered > 0 else LEAST


SCAN_BUDGET: Final = 5000  # the budget of one look-up, in entries passed: a few hundred microseconds
FILTER_COST: Final[i64] = 10  # the cost of a filter's test of an entry, in the same unit
LOAD_COST: Final[i64] = 200  # the cost of a read of the entry's content for it,
LOAD_SHIFT: Final[i64] = 7  # and of each 128 bytes of the content
PUSHED: Final[i64] = 4  # with so many times as many entries behind, pushes are cheaper than a heapify
_STALE_MIN: Final = 64  # below this many, stale entries are not worth collecting


@final
class LateArrivals:
    """Entries of higher priorities that arrived behind a cursor: one stretch of the list for each rank.

    [Qpid: PriorityQueueList, a list for each priority]

    An arrival is the last entry of its rank. So the first entry of a stretch identifies the stretch. The
    stretch ends with its rank, or with the cursor if the cursor comes first. The next arrival of the rank
    costs nothing.
    `first`: the entry at which the first stretch begins; None: there is no stretch.
    """

    def __init__(self) -> None:
        self.first: QueueEntry | None = None
        self._begins: dict[int, QueueEntry] = {}  # by rank
        self._ranks: int = 0  # a bit for each rank that has a stretch, more than an i64 has

    def add(self, entry: QueueEntry) -> bool:
        """Add `entry`, which is at or before the cursor.

        False if no stretch contains it or can begin with it.
        """
        rank: int = entry.order >> RANK_SHIFT
        begin = self._begins.get(rank)
        if begin is not None:
            return not entry.precedes(begin)
        if not _is_last_of_rank(entry):
            return False
        self._begins[rank] = entry
        self._ranks |= 1 << rank
        if self.first is None or entry.precedes(self.first):
            self.first = entry
        return True

    def skip(self, entry: QueueEntry, last: QueueEntry) -> None:
        """Remove `entry` from the front of its stretch; the cursor stands on `last`."""
        rank: int = entry.order >> RANK_SHIFT
        after = None if entry is last or _is_last_of_rank(entry) else entry.next
        if after is not None:
            self._begins[rank] = after
        else:
            del self._begins[rank]
            self._ranks ^= 1 << rank
        if self.first is entry:
            if after is None and self._ranks != 0:
                after = self._begins[(self._ranks & -self._ranks).bit_length() - 1]
            self.first = after

    def forget(self, entry: QueueEntry, last: QueueEntry) -> None:
        """Remove `entry`, which is about to be unlinked.

        The cursor stands on `last`, which may be `entry`.
        """
        if self._begins.get(entry.order >> RANK_SHIFT) is entry:
            self.skip(entry, last)

    def clear(self) -> None:
        """Forget all stretches."""
        self.first = None
        self._begins.clear()
        self._ranks = 0

    def entries(self, last: QueueEntry) -> list[QueueEntry]:
        """Return the entries of all stretches; too slow for the hot path. The cursor stands on `last`."""
        entries: list[QueueEntry] = []
        for begin in self._begins.values():
            entry: QueueEntry | None = begin
            while entry is not None:
                entries.append(entry)
                entry = None if entry is last or _is_last_of_rank(entry) else entry.next
        return entries


def _is_last_of_rank(entry: QueueEntry) -> bool:
    after = entry.next
    return after is None or after.order >> RANK_SHIFT != entry.order >> RANK_SHIFT


@final
@mypyc_attr(acyclic=True)
class Posting:
    """The position of an entry in one posting list. `other`: its position in a list of another header."""

    def __init__(self, entry: QueueEntry, postings: PostingList, other: Posting | None) -> None:
        self.entry = entry
        self.postings = postings
        self.other = other
        self.before: Posting | None = None
        self.after: Posting | None = None


@final
class PostingList:
    """The entries of an index with one value of one header, in the order of the queue.

    `contexts`: the cursors of consumers that demand this value. `users`: the number of these consumers and of
    browsers.
    """

    def __init__(self, header: i64, value: object) -> None:
        self.header = header
        self.value = value
        self.first: Posting | None = None
        self.last: Posting | None = None
        self.users: i64 = 0
        self.entries: QueueEntryList | None = None
        self.contexts: list[Cursor] = []


class CursorProgress:
    """The progress of a named consumer of a stream; `broker.core.streams.progress` extends this class."""

    def note_delivery(self, entry: QueueEntry) -> None:
        """Note that the cursor has passed `entry`, which is being delivered."""
        raise NotImplementedError

    def note_settled(self, entries: list[QueueEntry]) -> None:
        """Note that the consumer has settled `entries`."""
        raise NotImplementedError

    def end(self) -> None:
        """End the progress of a detached consumer, whose unsettled messages do not count as processed."""
        raise NotImplementedError


@final
class Cursor:
    """A cursor, shared by all consumers that see the same entries.

    [Qpid: Cursor, one per consumer there]

    `last` is the last entry seen. An entry at or before `last` that becomes AVAILABLE does not move the
    cursor back. The entry is behind the cursor then: a requeued one in the heap `behind`, an arrival of
    higher priority in a stretch of `late`. The class relies on one invariant: every AVAILABLE entry at or
    before `last` that these consumers may see is in `behind` or in a stretch. So the next entry is the first
    of these, or else the first AVAILABLE one after `last`, in strict order and without rescanning.

    `late`: None unless entries have ranks. The cursor of a browser does not use it: when an entry leaves,
    only browsers whose cursors stand on that entry are notified.
    `filter`: selects the entries that these consumers see; None: all of them.
    `users`: how many consumers share the cursor, if it has a filter.
    `more`: the latest look-up returned None because its budget was used up before the end of the queue.
    `postings`: the posting list of an index that the cursor walks over instead of the queue, if any.
    `browsers`: must know the cursor's position; None unless a browser owns the cursor.
    `newest`: the number of the newest arrival that a browser leaves out, because it begins later.
    `progress`: the settled part of a stream, for a consumer whose progress the stream remembers.
    `effort`: the cost of look-ups since `effort` was last set to 0; an entry passed costs 1.
    """

    def __init__(self, entries: QueueEntryList, entry_filter: EntryFilter | None = None) -> None:
        self.entries = entries
        self.filter = entry_filter
        self.users: i64 = 0
        self.last: QueueEntry = entries.head
        self.behind: list[QueueEntry] = []
        self.late: LateArrivals | None = LateArrivals() if entries.ranks > 1 else None
        self.more: bool = False
        self.scan_budget: i64 = SCAN_BUDGET
        self.effort: i64 = 0
        self.browsers: Browsers | None = None
        self.newest: i64 = -1
        self.postings: PostingList | None = None
        self.progress: CursorProgress | None = None

    @property
    def is_left(self) -> bool:
        """Whether no consumer shares the cursor. A later consumer with the same filter gets a new cursor."""
        return self.users == 0 and self.filter is not None

    def get_next_available_entry(self) -> QueueEntry | None:
        """Return the entry to deliver next, or None; changes nothing but the cursor."""
        self.more = False
        limit = self.effort + self.scan_budget
        entry = self.first_behind()
        while entry is not None:
            if entry.state == AVAILABLE and (self.filter is None or self.passes(entry)):
                return entry
            self.skip_first(entry)  # removed or acquired: a requeue offers the entry again
            self.effort += 1
            if self.effort >= limit:
                self.more = True
                return None
            entry = self.first_behind()
        following = self.entries.next(self.last)
        if following is None:
            return None
        if following.state == AVAILABLE and self.filter is None:
            return following
        return self._scan(following, limit)

    @property
    def has_behind(self) -> bool:
        """Whether an entry for these consumers may be behind the cursor."""
        return len(self.behind) > 0 or (self.late is not None and self.late.first is not None)

    def first_behind(self) -> QueueEntry | None:
        """Return the first entry behind the cursor, AVAILABLE or not any more."""
        late = None if self.late is None else self.late.first
        if self.behind and (late is None or self.behind[0].precedes(late)):
            return self.behind[0]
        return late

    def skip_first(self, entry: QueueEntry) -> None:
        """Pass `entry`, the result of `first_behind`."""
        if self.behind and self.behind[0] is entry:
            heappop(self.behind)
        elif self.late is not None:
            self.late.skip(entry, self.last)

    def all_behind(self) -> list[QueueEntry]:
        """Return all entries behind the cursor, AVAILABLE or not any more; too slow for the hot path."""
        return self.behind if self.late is None else self.behind + self.late.entries(self.last)

    def sees(self, entry: QueueEntry) -> bool:
        """Whether the filter lets these consumers see `entry`."""
        return self.filter is None or self.filter.passes(entry)

    def passes(self, entry: QueueEntry) -> bool:
        """Whether the filter lets `entry` pass in a look-up, which costs `effort`. The filter must exist."""
        assert self.filter is not None, "only contexts with a filter call this"
        message = entry.message
        self.effort += FILTER_COST
        if message.content is None:
            self.effort += LOAD_COST + (message.length >> LOAD_SHIFT)
        return self.filter.passes(entry)

    def move_past(self, entry: QueueEntry) -> None:
        """Move past `entry`, the result of the latest look-up, which is being delivered."""
        if self.progress is not None:
            self.progress.note_delivery(entry)
        if self.first_behind() is entry:
            self.skip_first(entry)
        else:
            self._move_to(entry)

    def offer(self, entry: QueueEntry, depth: i64) -> None:
        """Note that `entry` has just become AVAILABLE in a queue of `depth` entries."""
        if self.last.precedes(entry):
            return
        if self.late is None or self.browsers is not None or not self.late.add(entry):
            heappush(self.behind, entry)
            self.compact(depth)

    def offer_many(self, entries: list[QueueEntry], depth: i64) -> None:
        """Note that `entries` have just become AVAILABLE: one O(n) heapify instead of n pushes.

        Entries that come in order, after all that are behind already, need no heapify: a consumer's requeued
        entries do so. If many more entries are behind, the new ones are pushed after all: a requeue that goes
        on in slices must not cost O(n) in each slice.
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
        """Move the cursor off `entry`, which is about to be unlinked; `depth` entries are left then.

        No entry lies between an entry and the one before it, so stepping back shows no entry twice. Neither
        does a restart in an empty queue, which also spares a priority queue the heap.
        """
        if depth == 0:
            self.restart()
            return
        if self.late is not None:
            self.late.forget(entry, self.last)
        if self.last is entry:
            self.last = self.entries.before(entry)
        if self.behind:
            self.compact(depth)

    def restart(self) -> None:
        """Start again before the first entry: no entry has been seen, and none is behind the cursor."""
        self.last = self.entries.head
        if self.behind:
            self.behind.clear()
        if self.late is not None:
            self.late.clear()

    def compact(self, depth: i64) -> None:
        """Drop entries that have left the queue, once they may outnumber the others; O(1) amortised."""
        if len(self.behind) > _STALE_MIN and len(self.behind) > 2 * depth:
            live = dict.fromkeys([entry for entry in self.behind if entry.state != DEQUEUED])
            self.behind = sorted(live)

    def _scan(self, entry: QueueEntry, limit: i64) -> QueueEntry | None:
        """Walk on from the successor of `last`.

        Return None at the end, or with `more` when the budget is used up.
        """
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
            self.browsers.note_move(self, before)
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
