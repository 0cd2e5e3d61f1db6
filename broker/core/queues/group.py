"""A message group, and the groups that a consumer owns.

[ActiveMQ message groups; JMSXGroupID]
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, final

from mypy_extensions import i64

from broker.core.entries.cursor import Cursor
from broker.core.entries.entry import AVAILABLE, DEQUEUED, EntryGroup, QueueEntry
from broker.core.message import Message
from broker.core.message_view import Views
from broker.core.ports import MessageStore
from broker.core.queues.consumer import OwnedGroups, QueueConsumer


@final
class GroupKeys:
    """The reader of group keys, from `header`, or from the usual properties if `header` is ""."""

    def __init__(self, views: Views, store: MessageStore, header: str) -> None:
        self._views = views
        self._store = store
        self._header = header
        self.closes = False

    def key(self, message: Message) -> str:
        """Return the group key of a message: a string, or a number as text; "": no group. Also sets `closes`.

        A message that does not decode, or cannot be read from the disk, is in no group, because an enqueue
        must not fail.
        """
        self.closes = False
        try:
            view = self._views(message, self._store)
            value = view.headers().get(self._header) if self._header else view.group_id()
            if value is None:
                return ""
            sequence = view.group_sequence()
        except Exception:
            return ""
        self.closes = isinstance(sequence, int) and sequence == -1
        if isinstance(value, (bytes, bytearray)):
            return value.decode(errors="surrogateescape")
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            return ""
        return str(value)


_STALE_MIN: Final = 8
_STALE_HEADS_MIN: Final = 64


@final
class Group(EntryGroup):
    """The entries of a queue with one key.

    `owner`: the only consumer that may get them. None: the group is free, and its next acquirer becomes the
    owner.
    `entries`: the count of its entries, in all states; `inflight`: how many of them are with clients.
    `shut`: no consumer gets more of the group until none of its entries is in flight. Then the group is free.
    `parked`: by context, AVAILABLE entries that its cursor has passed because another consumer owns them; and
    some that are not AVAILABLE any more.
    `closers`: the entries that shut the group when they are delivered; None: there are none.
    `line`: all its entries in order, in strict queues, where only the first one may be delivered; else empty.
    `batch`: the entries in flight that a transaction removes, and whether `line` lacks them; None: none.
    `last`: the last entry, in queue order, of all that have been in `batch` since it was empty.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.owner: QueueConsumer | None = None
        self.entries: i64 = 0
        self.inflight: i64 = 0
        self.shut: bool = False
        self.parked: dict[Cursor, list[QueueEntry]] = {}
        self.closers: dict[QueueEntry, None] | None = None
        self.line: list[QueueEntry] = []
        self.batch: dict[QueueEntry, bool] | None = None
        self.last: QueueEntry | None = None

    def disown(self) -> None:
        """Forget its owner."""
        self.owner = None

    def first(self) -> QueueEntry | None:
        """Return the first of its entries that no transaction removes, in strict queues."""
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
        """Return the only entry that may be delivered now, in strict queues; None: none may.

        Entries in flight hold up the others, except those that a transaction removes. An entry that is
        requeued after a later one was promised to a transaction waits for the end of that transaction.
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
        """Note that a transaction will remove `entry`, which is in flight, with its commit."""
        if self.batch is None:
            self.batch = {}
        self.batch.setdefault(entry, False)
        if self.last is None or self.last.precedes(entry):
            self.last = entry

    def withdraw(self, entry: QueueEntry) -> bool:
        """Note that no transaction will remove `entry` any more, or that one has; false if none was to."""
        batch = self.batch
        if batch is None or entry not in batch:
            return False
        if batch.pop(entry) and entry.state != DEQUEUED:
            heappush(self.line, entry)
        if not batch:
            self.batch = None
            self.last = None
        return True

    def park(self, context: Cursor, entry: QueueEntry) -> bool:
        """Park an entry that the cursor of `context` passes; true if it is the first of them."""
        heap = self.parked.get(context)
        if heap is None:
            for left in [each for each in self.parked if each.is_left]:
                del self.parked[left]  # else each consumer with its own filter would leave entries here
            heap = self.parked[context] = []
        heappush(heap, entry)
        is_first = heap[0] is entry
        if len(heap) > 2 * self.entries + _STALE_MIN:
            _sweep(heap)
        return is_first

    def first_parked(self, context: Cursor) -> QueueEntry | None:
        """Return the first AVAILABLE entry that `context` has parked.

        Acquired ones are offered again on return.
        """
        heap = self.parked.get(context)
        if heap is None:
            return None
        while heap:
            if heap[0].state == AVAILABLE:
                return heap[0]
            heappop(heap)
        del self.parked[context]
        return None

    def take_parked(self, context: Cursor) -> None:
        """Drop the first parked entry, which must exist."""
        heap = self.parked[context]
        heappop(heap)
        if not heap:
            del self.parked[context]

    def drop_left_entries(self) -> None:
        """Drop entries that have left from the lists, once they may outnumber the others."""
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
    """Drop entries that are not AVAILABLE any more, and duplicates."""
    heap[:] = dict.fromkeys([entry for entry in heap if entry.state == AVAILABLE])
    heapify(heap)


@final
class Head:
    """The first parked entry of `group` at the time when its owner was informed."""

    def __init__(self, entry: QueueEntry, group: Group) -> None:
        self.entry = entry
        self.group = group

    def __lt__(self, other: Head) -> bool:
        return self.entry.precedes(other.entry)


@final
class Holding(OwnedGroups):
    """The groups that one consumer owns, and a heap of their parked entries in its context.

    For every group that is not shut and has a parked entry, the heap has a head at or before that entry.
    Further heads may be stale. Shut groups need not be in the holding.

    `moves`: the value of `Groups.moves`. A holding with another value must give up all its groups. The groups
    may be very many, and are shut in later turns. Until then the consumer gets nothing.
    """

    def __init__(self, context: Cursor, moves: i64) -> None:
        self.context = context
        self.moves = moves
        self.groups: dict[Group, None] = {}
        self.heads: list[Head] = []

    def owns_some(self) -> bool:
        """Whether the consumer owns a group."""
        return len(self.groups) > 0

    def is_empty(self) -> bool:
        """Whether no group or head is left to give up."""
        return not self.groups and not self.heads

    def shut_some(self, most: i64) -> list[Group]:
        """Shut and forget up to `most` of its groups, the last ones; later calls do the others."""
        shut: list[Group] = []
        while self.groups and len(shut) < most:
            group, _ = self.groups.popitem()
            group.shut = True
            shut.append(group)
        del self.heads[-2 * most - _STALE_HEADS_MIN :]  # the rest is still a heap, of stale heads
        return shut

    def shut_all(self, moves: i64) -> None:
        """Shut its groups; each has entries in flight, so they are few."""
        self.moves = moves
        for group in self.groups:
            group.shut = True

    def take_first(self) -> None:
        """Drop the entry of the first head, which must be the first parked one of its group."""
        group = heappop(self.heads).group
        group.take_parked(self.context)
        self.add_head(group)

    def add_head(self, group: Group) -> None:
        """Add a head for `group`, whose first parked entry is new or may be delivered again."""
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


def group_of(entry: QueueEntry) -> Group | None:
    """Return the group of an entry; None: the entry is in no group."""
    group = entry.group
    assert group is None or isinstance(group, Group), "this module makes all groups"
    return group


def holding_of(consumer: QueueConsumer) -> Holding | None:
    """Return the groups that `consumer` has owned and their parked entries; None: no group."""
    holding = consumer.holding
    assert holding is None or isinstance(holding, Holding), "this module makes all holdings"
    return holding
