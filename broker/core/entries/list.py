"""The list of a queue's entries, which keeps their order; here first in, first out.

[Qpid: QueueEntryList]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64, mypyc_attr, trait

from broker.core.arguments.rule import Arguments
from broker.core.entries.entry import ACQUIRED, RANK_SHIFT, QueueEntry
from broker.core.message import NOWHERE, Message
from broker.core.message_view import Headers

ARRIVAL_MASK: Final[i64] = (1 << RANK_SHIFT) - 1


@trait
class EmptyListener:
    """The listener of an entry list that must know when the list becomes empty."""

    def look(self) -> None:
        """Note that the last entry has been unlinked."""
        raise NotImplementedError


class Latest:
    """The entries that replace one another in a list; `broker.core.entries.last_value` extends this class.

    `displaced`: the entry whose place the latest arrival has taken. The code that takes it out sets it to
    None.
    `outdated`: recovered entries that a later message replaces; they are removed when the broker runs.
    `replaced` counts since the start.
    """

    def __init__(self) -> None:
        self.displaced: QueueEntry | None = None
        self.outdated: list[QueueEntry] = []
        self.replaced: i64 = 0

    def is_outdated(self, entry: QueueEntry) -> bool:
        """Whether a later message with the value of `entry` has arrived."""
        raise NotImplementedError

    def successor(self, entry: QueueEntry) -> QueueEntry | None:
        """Return the entry of the latest message with the value of an outdated `entry`.

        None if that has left.
        """
        raise NotImplementedError

    def holds(self, message: Message) -> bool:
        """Whether a message that `message` would replace is in the queue, acquired or not."""
        raise NotImplementedError

    def displaceable(self, message: Message) -> QueueEntry | None:
        """Return the entry whose place `message` would take."""
        raise NotImplementedError

    def set_aside(self, message: Message) -> None:
        """Mark the entry that the recovered `message` replaces as outdated.

        `message` itself goes to the end.
        """
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueEntryList:
    """A strict order of entries in which an entry never moves.

    Each links to the next and to the previous one.

    `head` is a sentinel before the first entry: never AVAILABLE and never unlinked. `tail` is the last entry,
    or `head`. `in_order`: an append can never put an entry before an existing one. `sequence`: the number of
    the latest arrival.
    `ranks`: how many ranks of urgency the entries may have; 1: all have the same. The rank of an entry is
    `order >> RANK_SHIFT`, and 0 is the most urgent.
    `latest`: the entries that replace others, in a last-value queue. `lifespan`: the listener to call when
    the list becomes empty.
    `annotations`: the annotations that consumers have added to the messages of some entries.
    `reads`: the cost of calls of `next` that read from disk, in the unit of `Cursor.effort`, until a
    cursor adds it to its own effort.
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
        """Apply the queue's effective arguments (`Queue.effective`) to later messages."""

    def append(self, message: Message) -> QueueEntry:
        """Make the entry of `message` and link it at its place."""
        raise NotImplementedError

    def unlink(self, entry: QueueEntry) -> None:
        """Take a linked `entry` out.

        Both its links are cut, so the caller must move cursors off the entry before.
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
        """Return the number of the entry's arrival: later entries have higher numbers, up to `sequence`."""
        return entry.order & ARRIVAL_MASK

    def mark(self, entry: QueueEntry) -> str:
        """Return a text that names the place of `entry`, also after `entry` has left the queue."""
        return str(int(entry.order))

    def placeholder(self, mark: str) -> QueueEntry:
        """Return an unlinked entry at the place that `mark` names. Raises ValueError."""
        return QueueEntry(self.head.message, _order(mark))

    def annotations_of(self, entry: QueueEntry) -> bytes:
        """Return the encoded annotations that consumers have added to the message of a linked entry.

        Empty: none.
        """
        return b"" if self.annotations is None else self.annotations.get(entry, b"")

    def __iter__(self) -> Iterator[QueueEntry]:
        """All entries in order; too slow for the hot path.

        The entry that the iteration stands on must stay linked.
        """
        entry = self.next(self.head)
        while entry is not None:
            yield entry
            entry = self.next(entry)

    # ---- where there are ranks; here there is one

    def rank_before(self, rank: i64) -> i64:
        """Return the last rank before this one that has entries, -1 if none has."""
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
    """Return the order in the mark of a place. Raises ValueError."""
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
        """Return the list for a queue with these arguments."""
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
