"""The places of a queue's entries: the nth entry, the entry with an id, and the count of entries before one.

A queue has no places until the first question. The first question counts the entries up to the entry in
question. From then on each arrival, delivery, return and departure of a counted entry is noted in O(log n),
and each question is answered in O(log n). When a queue has had many changes without a question, its places
are dropped.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.entries.entry import AVAILABLE, QueueEntry
from broker.core.entries.list import QueueEntryList

BLOCK: Final[i64] = 512  # entries of a block that is begun at the end
IDLE_MIN: Final[i64] = 100_000  # changes without a question that places survive, even in a short queue
NO_NUMBER: Final[i64] = -1


@final
@mypyc_attr(acyclic=True)
class CountedBlock:
    """A stretch of neighbours, beginning with `first`: their count, and the range of their numbers.

    The range covers all entries that have ever been in the block: it grows and never shrinks.
    """

    def __init__(self, first: QueueEntry) -> None:
        self.first = first
        self.count: i64 = 0
        self.ready: i64 = 0
        self.low: i64 = 0  # sequences in the log; 0: none is logged
        self.high: i64 = 0
        self.low_arrival: i64 = 0
        self.high_arrival: i64 = 0

    def note(self, entry: QueueEntry, arrival: i64) -> None:
        """Count an entry, whose arrival had the number `arrival`."""
        self.count += 1
        if entry.state == AVAILABLE:
            self.ready += 1
        sequence = entry.message.sequence
        if sequence > 0:
            if self.low == 0 or sequence < self.low:
                self.low = sequence
            if sequence > self.high:
                self.high = sequence
        if self.low_arrival == 0 or arrival < self.low_arrival:
            self.low_arrival = arrival
        if arrival > self.high_arrival:
            self.high_arrival = arrival

    def may_have(self, sequence: i64, arrival: i64) -> bool:
        """Whether an entry with this sequence may be in the block; with NO_NUMBER, this arrival number."""
        if sequence != NO_NUMBER:
            return self.low <= sequence <= self.high
        return self.low_arrival <= arrival <= self.high_arrival


@final
class Sums:
    """Numbers, a single one for each block, and their sums from the first on, in O(log n). [Fenwick 1994]"""

    def __init__(self) -> None:
        self._tree: list[int] = []

    def append(self, number: i64) -> None:
        """Add one more number at the end."""
        tree = self._tree
        size: i64 = len(tree) + 1
        low: i64 = size & -size
        step: i64 = 1
        while step < low:
            number += tree[size - step - 1]
            step <<= 1
        tree.append(number)

    def add(self, index: i64, number: i64) -> None:
        """Add `number` to one of the numbers."""
        tree = self._tree
        size: i64 = len(tree)
        at = index + 1
        while at <= size:
            tree[at - 1] += number
            at += at & -at

    def before(self, index: i64) -> i64:
        """The sum of the numbers before this one."""
        tree = self._tree
        total: i64 = 0
        at = index
        while at > 0:
            total += tree[at - 1]
            at &= at - 1
        return total

    def holding(self, count: i64) -> i64:
        """Return the first index whose running sum exceeds `count`; the number of indexes, if none does."""
        tree = self._tree
        size: i64 = len(tree)
        step: i64 = 1
        while step * 2 <= size:
            step *= 2
        at: i64 = 0
        while step > 0:
            if at + step <= size and tree[at + step - 1] <= count:
                at += step
                count -= tree[at - 1]
            step >>= 1
        return at


@final
class Places:
    """The counts of a queue's entries from the first one up to `end`, of all entries and of the ready ones.

    The entries behind `end` have not been counted yet: `extend` counts some more of them.
    """

    def __init__(self, entries: QueueEntryList) -> None:
        self.end: QueueEntry = entries.head
        self.idle: i64 = 0  # changes since the latest question
        self._entries = entries
        self._blocks: list[CountedBlock] = []
        self._all = Sums()
        self._ready = Sums()

    # ---- changes

    def note_linked(self, entry: QueueEntry) -> None:
        """Count `entry`, which is new and linked at its place."""
        if not self._counts(entry) or entry.prev is self.end:  # else it may have the order of `end`
            return
        blocks = self._blocks
        if entry.precedes(blocks[0].first):
            blocks[0].first = entry
        index = self._block_of(entry)
        block = blocks[index]
        block.note(entry, self._entries.arrival(entry))
        if block.count > 2 * BLOCK:
            self._split(index)
            return
        self._all.add(index, 1)
        self._ready.add(index, 1)

    def note_ready_change(self, entry: QueueEntry, ready: i64) -> None:
        """Note that `entry` has become ready (1), or is not ready any more (-1)."""
        self.idle += 1
        if self._counts(entry):
            index = self._block_of(entry)
            self._blocks[index].ready += ready
            self._ready.add(index, ready)

    def note_unlinked(self, entry: QueueEntry) -> None:
        """Uncount `entry`, which is not ready any more and is about to be unlinked."""
        self.idle += 1
        if not self._counts(entry):
            return
        index = self._block_of(entry)
        block = self._blocks[index]
        block.count -= 1
        if entry is self.end:
            self.end = self._entries.before(entry)
        if block.count == 0:
            del self._blocks[index]
            self._sum_up()
            return
        if block.first is entry:
            following = entry.next
            assert following is not None, "a block has more entries"
            block.first = following
        self._all.add(index, -1)

    # ---- questions

    @property
    def is_idle(self) -> bool:
        """Whether noting changes has cost more by now than counting everything anew would cost."""
        return self.idle > IDLE_MIN + self.count(False)

    def count(self, ready: bool) -> i64:
        """The count of entries counted so far, or of the ready ones among them."""
        return (self._ready if ready else self._all).before(len(self._blocks))

    def extend(self, most: i64) -> bool:
        """Count up to `most` more entries. Return whether uncounted entries are left."""
        self.idle = 0
        entries = self._entries
        entry = entries.next(self.end)
        block = self._blocks[-1] if self._blocks else None
        count: i64 = 0 if block is None else block.count
        ready: i64 = 0 if block is None else block.ready
        while entry is not None and most > 0:
            if block is None or block.count >= BLOCK:
                self._note_last(block, count, ready)
                block = CountedBlock(entry)
                self._blocks.append(block)
                self._all.append(0)
                self._ready.append(0)
                count = ready = 0
            block.note(entry, entries.arrival(entry))
            self.end = entry
            entry = entries.next(entry)
            most -= 1
        self._note_last(block, count, ready)
        return entry is not None

    def nth(self, place: i64, ready: bool) -> QueueEntry | None:
        """Return the counted entry (or ready entry) with `place` such entries before it.

        None: none is counted yet.
        """
        self.idle = 0
        sums = self._ready if ready else self._all
        index = sums.holding(place)
        if index >= len(self._blocks):
            return None
        left = place - sums.before(index)
        entry: QueueEntry | None = self._blocks[index].first
        while entry is not None:
            if not ready or entry.state == AVAILABLE:
                if left == 0:
                    return entry
                left -= 1
            entry = entry.next
        raise AssertionError("a block has as many entries as it counts")

    def place(self, entry: QueueEntry, ready: bool) -> i64:
        """The count of entries before a counted one, or of the ready ones among them."""
        self.idle = 0
        index = self._block_of(entry)
        before = (self._ready if ready else self._all).before(index)
        other = self._blocks[index].first
        while other is not entry:
            if not ready or other.state == AVAILABLE:
                before += 1
            following = other.next
            assert following is not None, "an entry of the block precedes its end"
            other = following
        return before

    def reaches(self, placeholder: QueueEntry) -> bool:
        """Whether all entries up to `placeholder`, which need not be linked, have been counted."""
        return self._entries.next(self.end) is None or placeholder.precedes(self.end)

    def last_up_to(self, placeholder: QueueEntry) -> QueueEntry:
        """Return the last counted entry at or before a place, or the head of the list."""
        self.idle = 0
        if not self._blocks or placeholder.precedes(self._blocks[0].first):
            return self._entries.head
        entry = self._blocks[self._block_of(placeholder)].first
        while entry is not self.end:
            following = entry.next
            if following is None or placeholder.precedes(following):
                break
            entry = following
        return entry

    def find(self, sequence: i64, arrival: i64) -> QueueEntry | None:
        """Return the counted entry with this sequence in the log.

        With NO_NUMBER, the one with this arrival number.

        Where entries are in the order of their arrival, as in most queues, only a block or two can contain
        the entry.
        """
        self.idle = 0
        for block in self._blocks:
            if not block.may_have(sequence, arrival):
                continue
            entry: QueueEntry | None = block.first
            left = block.count
            while entry is not None and left > 0:
                if sequence == NO_NUMBER:
                    if self._entries.arrival(entry) == arrival:
                        return entry
                elif entry.message.sequence == sequence:
                    return entry
                entry = entry.next
                left -= 1
        return None

    # ---- blocks

    def _counts(self, entry: QueueEntry) -> bool:
        """Whether the place of `entry` has been counted."""
        return bool(self._blocks) and not self.end.precedes(entry)

    def _block_of(self, entry: QueueEntry) -> i64:
        """Return the index of the last block that does not begin after `entry`."""
        blocks = self._blocks
        low: i64 = 0
        high: i64 = len(blocks)
        while high - low > 1:
            middle = (low + high) >> 1
            if entry.precedes(blocks[middle].first):
                high = middle
            else:
                low = middle
        return low

    def _note_last(self, block: CountedBlock | None, count: i64, ready: i64) -> None:
        """Update the sums after the counts of the last block have changed from these."""
        if block is not None:
            last: i64 = len(self._blocks) - 1
            self._all.add(last, block.count - count)
            self._ready.add(last, block.ready - ready)

    def _split(self, index: i64) -> None:
        """Split a block into two."""
        whole = self._blocks[index]
        parts: list[CountedBlock] = []
        entry: QueueEntry | None = whole.first
        left = whole.count
        while entry is not None and left > 0:
            if not parts or parts[-1].count >= BLOCK:
                parts.append(CountedBlock(entry))
            parts[-1].note(entry, self._entries.arrival(entry))
            entry = entry.next
            left -= 1
        self._blocks[index : index + 1] = parts
        self._sum_up()

    def _sum_up(self) -> None:
        """Rebuild the sums after the blocks have changed."""
        self._all = Sums()
        self._ready = Sums()
        for block in self._blocks:
            self._all.append(block.count)
            self._ready.append(block.ready)
