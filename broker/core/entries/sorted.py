"""Sorted queues: ascending by the value of a header. [Qpid sorted queues, whose keys are strings]"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.arguments.queue import SORT_KEY
from broker.core.arguments.rule import Arguments
from broker.core.entries.entry import QueueEntry
from broker.core.entries.list import QueueEntryList
from broker.core.message import Message
from broker.core.message_view import Headers, SortKey, key_of_text, key_text, sort_key

BLOCK: Final[i64] = 512  # entries of a block at most


@final
@mypyc_attr(acyclic=True)
class SortedEntry(QueueEntry):
    """An entry whose place depends on `key`: the value of the header, and the number of its arrival."""

    def __init__(self, message: Message, order: i64, key: SortKey) -> None:
        super().__init__(message, order)
        number: int = order
        self.key: Any = (key[0], key[1], number)

    def precedes(self, other: QueueEntry) -> bool:
        """Whether the entry's key is smaller; no entry is before the head of a list."""
        if not isinstance(other, SortedEntry):
            return False
        before: bool = self.key < other.key
        return before


@final
class SortedBlock:
    """A few hundred neighbours with their keys in a list beside them, so that a search makes no calls."""

    def __init__(self, entries: list[QueueEntry], keys: list[Any]) -> None:
        self.entries = entries
        self.keys = keys


@final
class SortedEntryList(QueueEntryList):
    """Ascending by the value of a header, equal values first in first out.

    The entries are linked in their order, as in every list. Blocks serve to find the place of a new entry; a
    list has the last key of each block. Both are searched by bisection. So finding a place, and leaving it,
    cost O(log n), apart from moving the pointers of one block.
    """

    def __init__(self, header: str, headers: Headers) -> None:
        super().__init__(False)
        self.block: i64 = BLOCK
        self._header = header
        self._headers = headers
        self._blocks: list[SortedBlock] = []
        self._ends: list[Any] = []  # the last key of each block

    @staticmethod
    def of(arguments: Arguments, headers: Headers) -> QueueEntryList:
        """Return the list for a queue with these arguments."""
        header = arguments[SORT_KEY]
        assert isinstance(header, str), "arguments are checked before a queue is made"
        return SortedEntryList(header, headers)

    def append(self, message: Message) -> QueueEntry:
        """Link an entry behind those whose value is not greater; O(log n)."""
        self.sequence += 1
        entry = SortedEntry(message, self.sequence, sort_key(self._headers.value(message, self._header)))
        key = entry.key
        at: i64 = bisect_left(self._ends, key)
        if at == len(self._ends):
            self._add_last(entry)
            self.link(entry, self.tail)
            return entry
        block = self._blocks[at]
        index: i64 = bisect_left(block.keys, key)
        before = block.entries[index].prev
        assert before is not None, "an entry in a block is linked"
        block.entries.insert(index, entry)
        block.keys.insert(index, key)
        self.link(entry, before)
        if len(block.keys) > self.block:
            self._split(at)
        return entry

    def unlink(self, entry: QueueEntry) -> None:
        """Take `entry` out and cut its links; O(log n)."""
        assert isinstance(entry, SortedEntry), "sorted lists have SortedEntry only"
        key = entry.key
        at: i64 = bisect_left(self._ends, key)
        assert at < len(self._ends), "only a linked entry can be unlinked"
        block = self._blocks[at]
        index: i64 = bisect_left(block.keys, key)
        assert block.entries[index] is entry, "only a linked entry can be unlinked"
        del block.entries[index]
        del block.keys[index]
        if not block.keys:
            del self._blocks[at]
            del self._ends[at]
        elif index == len(block.keys):
            self._ends[at] = block.keys[index - 1]
        super().unlink(entry)

    def mark(self, entry: QueueEntry) -> str:
        """The text for the place of `entry`: its number, and the value of its header."""
        assert isinstance(entry, SortedEntry), "sorted lists have SortedEntry only"
        key = entry.key
        return f"{key[2]} {key_text((key[0], key[1]))}"

    def placeholder(self, mark: str) -> QueueEntry:
        """An unlinked entry at the place that `mark` names. Raises ValueError."""
        number, _, key = mark.partition(" ")
        return SortedEntry(self.head.message, super().placeholder(number).order, key_of_text(key))

    def _add_last(self, entry: SortedEntry) -> None:
        """Append an entry to the last block, or to a new block if the last one is full."""
        if self._blocks and len(self._blocks[-1].keys) < self.block:
            block = self._blocks[-1]
            block.entries.append(entry)
            block.keys.append(entry.key)
            self._ends[-1] = entry.key
        else:
            self._blocks.append(SortedBlock([entry], [entry.key]))
            self._ends.append(entry.key)

    def _split(self, at: i64) -> None:
        """Make a separate block of the first half of a block."""
        block = self._blocks[at]
        middle = len(block.keys) >> 1
        self._blocks.insert(at, SortedBlock(block.entries[:middle], block.keys[:middle]))
        self._ends.insert(at, block.keys[middle - 1])
        del block.entries[:middle]
        del block.keys[:middle]
