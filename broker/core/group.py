"""One message group of a queue, and what its owner needs to find its entries."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.entry import AVAILABLE, DEQUEUED, QueueEntry

if TYPE_CHECKING:
    from broker.core.consumer import QueueConsumer
    from broker.core.context import QueueContext

_STALE_MIN: Final = 8
_STALE_HEADS_MIN: Final = 64


@final
class Group:
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
class Holding:
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
