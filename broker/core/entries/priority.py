"""Priority queues: the higher priority first, first in first out within one priority.

[RabbitMQ x-max-priority]
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from broker.core.arguments.queue import AMQP, HIGHEST, LEVELS_MAX, MAX_PRIORITY, NORMAL, PRIORITY_MAPPING
from broker.core.arguments.rule import Arguments
from broker.core.entries.entry import RANK_SHIFT, QueueEntry
from broker.core.entries.list import FifoEntryList, QueueEntryList
from broker.core.message import Message
from broker.core.message_view import Headers


@final
class PriorityEntryList(QueueEntryList):
    """Higher priority first, first in first out within one priority.

    [Qpid: PriorityQueueList, a list for each priority]

    `levels` is the number of distinct priorities, 1..256: x-max-priority + 1. A message's level is its
    priority, capped at the highest one. Where the queue's argument or policy asks for a mapping,
    `mapped_level` gives the level. Rank 0 is the highest level. An entry keeps its level when the mapping
    changes.

    All ranks are in one list. Each rank that has entries is a stretch of this list, so walking over them
    follows links only. The list knows the last entry of each rank, and `_filled` has a bit for each rank with
    entries. So the place for an entry is found without a look at empty ranks, which cost nothing.
    """

    def __init__(self, levels: i64, headers: Headers | None = None) -> None:
        if levels < 1 or levels > LEVELS_MAX:
            raise ValueError("a priority queue has 1 to 256 levels")
        super().__init__(False, levels)
        self._filled: int = 0  # has more bits than an i64
        self._last: dict[int, QueueEntry] = {}  # by rank
        self._mapped = False
        self._headers = headers

    @staticmethod
    def of(arguments: Arguments, headers: Headers) -> QueueEntryList:
        """Return the list for a queue with these arguments."""
        highest = arguments.get(MAX_PRIORITY, HIGHEST)
        assert isinstance(highest, int), "arguments are checked before a queue is made"
        return PriorityEntryList(highest + 1, headers) if highest > 0 else FifoEntryList()

    def apply(self, arguments: Arguments) -> None:
        """Map or cap the priorities of later messages."""
        self._mapped = arguments.get(PRIORITY_MAPPING) == AMQP

    def append(self, message: Message) -> QueueEntry:
        """Link a new last entry of the message's level."""
        level = message.priority
        if self._mapped:
            if level == 0 and (self._headers is None or not self._headers.has_priority(message)):
                level = NORMAL
            level = mapped_level(level, self.ranks)
        elif level >= self.ranks:
            level = self.ranks - 1
        rank = self.ranks - 1 - level
        self.sequence += 1
        entry = QueueEntry(message, rank << RANK_SHIFT | self.sequence)
        before = self._last.get(rank)
        if before is None:
            before = self._end_before(rank)
            self._filled |= _bit(rank)
        self._last[rank] = entry
        self.link(entry, before)
        return entry

    def unlink(self, entry: QueueEntry) -> None:
        """Take `entry` out and cut its links."""
        rank = entry.order >> RANK_SHIFT
        if self._last[rank] is entry:
            before = entry.prev
            assert before is not None, "only a linked entry can be unlinked"
            if before is not self.head and before.order >> RANK_SHIFT == rank:
                self._last[rank] = before
            else:
                del self._last[rank]
                self._filled ^= _bit(rank)
        super().unlink(entry)

    def rank_before(self, rank: i64) -> i64:
        """The last rank before this one that has entries, -1 if none has."""
        return (self._filled & (_bit(rank) - 1)).bit_length() - 1

    def first_of(self, rank: i64) -> QueueEntry | None:
        """The first entry of a rank that has entries."""
        return self._end_before(rank).next

    def _end_before(self, rank: i64) -> QueueEntry:
        """Return the last entry of the ranks before this one; `head` if they have none."""
        filled = self.rank_before(rank)
        return self.head if filled < 0 else self._last[filled]


def mapped_level(priority: i64, levels: i64) -> i64:
    """Return the level of a priority where the ten of JMS and AMQP 1.0 are mapped onto `levels` levels.

    With fewer than ten levels, each middle level has one priority. The lowest and the highest level take the
    priorities that are left on either side. More than ten levels are capped. [amqp-1.0 3.2.1, AMQP 0-10]
    """
    lowest: i64 = 0
    highest = levels - 1
    if levels < HIGHEST + 1:
        lowest = 5 - (levels + 1) // 2
        highest = 4 + levels // 2
    return min(max(priority, lowest), highest) - lowest


def _bit(rank: int) -> int:
    return 1 << rank
