"""The orders that a queue can keep its entries in: one list class for each kind of queue.

[Qpid: QueueEntryList]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from mypy_extensions import i64, mypyc_attr

from broker.core.entry import ACQUIRED, RANK_SHIFT, QueueEntry
from broker.core.message import Address, Message

_NO_MESSAGE = Message(Address("", ""), b"", 0, False, 0)


def _sentinel(order: i64) -> QueueEntry:
    """The place before every entry of a list: never AVAILABLE, never unlinked."""
    entry = QueueEntry(_NO_MESSAGE, order)
    entry.state = ACQUIRED
    return entry


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueEntryList:
    """A strict order of entries in which an entry never moves.

    `head` stands before the first entry. `in_order`: an append can never land before an entry that is there.
    """

    def __init__(self, in_order: bool) -> None:
        self.head: QueueEntry = _sentinel(0)
        self.in_order = in_order
        self.sequence: i64 = 0

    def append(self, message: Message) -> QueueEntry:
        """Make `message`'s entry and link it at its place, O(1)."""
        raise NotImplementedError

    def unlink(self, entry: QueueEntry) -> None:
        """Take a linked `entry` out, O(1).

        Both its links are cut: cursors must have been moved off it before.
        """
        raise NotImplementedError

    def next(self, entry: QueueEntry) -> QueueEntry | None:
        """The entry after a linked one (or after `head`); None at the end."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[QueueEntry]:
        """All entries in order, for cold use. The one that the iteration stands on must stay linked."""
        entry = self.next(self.head)
        while entry is not None:
            yield entry
            entry = self.next(entry)


@final
class FifoEntryList(QueueEntryList):
    """First in, first out. `rank` and `sequence` matter only to a list that this one is a part of."""

    def __init__(self, rank: i64 = 0) -> None:
        super().__init__(True)
        self.head.order = rank << RANK_SHIFT
        self.tail: QueueEntry = self.head

    def append(self, message: Message) -> QueueEntry:
        """Link a new last entry."""
        self.sequence += 1
        entry = QueueEntry(message, self.sequence)
        tail = self.tail
        entry.prev = tail
        tail.next = entry
        self.tail = entry
        return entry

    def append_at(self, message: Message, order: i64) -> QueueEntry:
        """Link a new last entry whose order was fixed elsewhere and exceeds that of every entry here."""
        entry = QueueEntry(message, order)
        tail = self.tail
        entry.prev = tail
        tail.next = entry
        self.tail = entry
        return entry

    def unlink(self, entry: QueueEntry) -> None:
        """Take `entry` out and cut its links."""
        before = entry.prev
        after = entry.next
        assert before is not None, "only a linked entry can be unlinked"
        before.next = after
        if after is None:
            self.tail = before
        else:
            after.prev = before
            entry.next = None
        entry.prev = None

    def next(self, entry: QueueEntry) -> QueueEntry | None:
        """The entry that arrived next."""
        return entry.next


@final
class PriorityEntryList(QueueEntryList):
    """Higher priority first, first in first out within one.

    [Qpid: PriorityQueueList; RabbitMQ: x-max-priority]

    `levels` is the number of distinct priorities, 1..256: x-max-priority + 1. A message's level is its
    priority, capped at the highest one. Rank 0 is the highest level.
    """

    def __init__(self, levels: i64) -> None:
        super().__init__(False)
        if levels < 1 or levels > 256:
            raise ValueError("a priority queue has 1 to 256 levels")
        self.levels = levels
        self.ranks: list[FifoEntryList] = [FifoEntryList(rank) for rank in range(levels)]
        self.head = self.ranks[0].head

    def append(self, message: Message) -> QueueEntry:
        """Link a new last entry of the message's level."""
        level = message.priority
        if level >= self.levels:
            level = self.levels - 1
        rank = self.levels - 1 - level
        self.sequence += 1
        return self.ranks[rank].append_at(message, rank << RANK_SHIFT | self.sequence)

    def unlink(self, entry: QueueEntry) -> None:
        """Take `entry` out and cut its links."""
        self.ranks[entry.order >> RANK_SHIFT].unlink(entry)

    def next(self, entry: QueueEntry) -> QueueEntry | None:
        """The next entry of the same rank, else the first of the next rank that has one; O(levels)."""
        after = entry.next
        if after is not None:
            return after
        rank = (entry.order >> RANK_SHIFT) + 1
        while rank < self.levels:
            after = self.ranks[rank].head.next
            if after is not None:
                return after
            rank += 1
        return None
