"""The order that a queue keeps its entries in; first in, first out.

[Qpid: QueueEntryList]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64, mypyc_attr, trait

from broker.core.arguments.rule import Arguments
from broker.core.entries.entry import ACQUIRED, RANK_SHIFT, QueueEntry
from broker.core.message import NOWHERE, Message
from broker.core.view import Headers

ARRIVAL_MASK: Final[i64] = (1 << RANK_SHIFT) - 1


@trait
class EmptyListener:
    """The listener of an entry list that must know when the list becomes empty."""

    def look(self) -> None:
        """The last entry has been unlinked."""
        raise NotImplementedError


class Latest:
    """What a list knows of entries that replace one another; `broker.core.entries.last_value` extends it.

    `displaced`: the entry whose place the latest arrival has taken; whoever takes it out sets it to None.
    `outdated`: what recovery brought back and a later message replaces; it goes when the broker runs.
    `replaced` counts since start.
    """

    def __init__(self) -> None:
        self.displaced: QueueEntry | None = None
        self.outdated: list[QueueEntry] = []
        self.replaced: i64 = 0

    def is_outdated(self, entry: QueueEntry) -> bool:
        """Whether a later message than that of `entry` has come."""
        raise NotImplementedError

    def successor(self, entry: QueueEntry) -> QueueEntry | None:
        """The entry of the latest message with the value of an outdated `entry`; None if that has gone."""
        raise NotImplementedError

    def holds(self, message: Message) -> bool:
        """Whether a message that `message` would replace is in the queue, with a consumer or not."""
        raise NotImplementedError

    def displaceable(self, message: Message) -> QueueEntry | None:
        """The entry whose place `message` would take."""
        raise NotImplementedError

    def set_aside(self, message: Message) -> None:
        """`message` is brought back by recovery: it stands at the end, and what it replaces is outdated."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueEntryList:
    """A strict order of entries in which an entry never moves: each is linked to the next and the one before.

    `head` stands before the first entry, is never AVAILABLE and never unlinked; `tail` is the last entry, or
    `head`. `in_order`: an append can never land before an entry that is there. `sequence`: the number of the
    latest arrival.
    `ranks`: how many ranks of urgency the entries may have; 1: all have the same. The rank of an entry is
    `order >> RANK_SHIFT`, and 0 is the most urgent.
    `latest`: what entries are replaced by, if they are. `lifespan`: who is to hear that none is left.
    `annotations`: what consumers have added to the messages of some entries.
    `reads`: what `next` has cost that had to read from disk, as `QueueContext.effort` counts, until a cursor
    counts that as its own.
    """

    def __init__(self, in_order: bool, ranks: i64 = 1) -> None:
        head = QueueEntry(Message(NOWHERE, b"", 0, False, 0), 0)
        head.state = ACQUIRED
        self.head: QueueEntry = head
        self.tail: QueueEntry = head
        self.in_order = in_order
        self.ranks = ranks
        self.sequence: i64 = 0
        self.latest: Latest | None = None
        self.lifespan: EmptyListener | None = None
        self.annotations: dict[QueueEntry, bytes] | None = None
        self.reads: i64 = 0

    def apply(self, arguments: dict[str, object]) -> None:
        """Apply the arguments that hold for the queue (`Queue.effective`) to messages to come."""

    def append(self, message: Message) -> QueueEntry:
        """Make `message`'s entry and link it at its place."""
        raise NotImplementedError

    def unlink(self, entry: QueueEntry) -> None:
        """Take a linked `entry` out.

        Both its links are cut: cursors must have been moved off it before.
        """
        before = entry.prev
        after = entry.next
        assert before is not None, "only a linked entry can be unlinked"
        before.next = after
        if after is None:
            self.tail = before
            if self.lifespan is not None and before is self.head:
                self.lifespan.look()
        else:
            after.prev = before
            entry.next = None
        entry.prev = None
        if self.annotations is not None:
            self.annotations.pop(entry, None)

    def next(self, entry: QueueEntry) -> QueueEntry | None:
        """The entry after a linked one (or after `head`); None at the end."""
        return entry.next

    def before(self, entry: QueueEntry) -> QueueEntry:
        """The entry before a linked one; `head` before the first."""
        before = entry.prev
        assert before is not None, "only a linked entry has one before it"
        return before

    def arrival(self, entry: QueueEntry) -> i64:
        """When `entry` came: those that came later have higher numbers, up to `sequence`."""
        return entry.order & ARRIVAL_MASK

    def mark(self, entry: QueueEntry) -> str:
        """A text that names the place of `entry`, also when the entry has gone."""
        return str(int(entry.order))

    def stand_in(self, mark: str) -> QueueEntry:
        """An entry that is not linked, with the place that `mark` has named. Raises ValueError."""
        return QueueEntry(self.head.message, _order(mark))

    def annotations_of(self, entry: QueueEntry) -> bytes:
        """What consumers have added to the message of a linked entry, encoded; empty: nothing."""
        return b"" if self.annotations is None else self.annotations.get(entry, b"")

    def __iter__(self) -> Iterator[QueueEntry]:
        """All entries in order, for cold use. The one that the iteration stands on must stay linked."""
        entry = self.next(self.head)
        while entry is not None:
            yield entry
            entry = self.next(entry)

    # ---- where there are ranks; here there is one

    def rank_before(self, rank: i64) -> i64:
        """The last rank before this one that has entries, -1 if none has."""
        return 0 if rank > 0 and self.head.next is not None else -1

    def first_of(self, rank: i64) -> QueueEntry | None:
        """The first entry of a rank that has entries."""
        return self.head.next

    # ---- for subclasses

    def link(self, entry: QueueEntry, before: QueueEntry) -> None:
        """Put a new `entry` behind `before`, which is linked or `head`."""
        after = before.next
        entry.prev = before
        entry.next = after
        before.next = entry
        if after is None:
            self.tail = entry
        else:
            after.prev = entry


def _order(mark: str) -> i64:
    """The order that a mark of a place has. Raises ValueError."""
    order = int(mark)
    if not 0 <= order < 1 << 63:
        raise ValueError(f"{mark} is not from 0 to {(1 << 63) - 1}")
    return order


@final
class FifoEntryList(QueueEntryList):
    """First in, first out."""

    def __init__(self) -> None:
        super().__init__(True)

    @staticmethod
    def of(arguments: Arguments, headers: Headers) -> QueueEntryList:
        """The list for a queue with these arguments."""
        return FifoEntryList()

    def append(self, message: Message) -> QueueEntry:
        """Link a new last entry, O(1)."""
        self.sequence += 1
        entry = QueueEntry(message, self.sequence)
        tail = self.tail
        entry.prev = tail
        tail.next = entry
        self.tail = entry
        return entry
