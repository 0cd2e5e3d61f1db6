"""Standard queues: first in, first out."""

from __future__ import annotations

from typing import final

from broker.core.entry import QueueEntry
from broker.core.entry_list import QueueEntryList
from broker.core.message import Message


@final
class FifoEntryList(QueueEntryList):
    """First in, first out."""

    def __init__(self) -> None:
        super().__init__(True)

    def append(self, message: Message) -> QueueEntry:
        """Link a new last entry, O(1)."""
        self.sequence += 1
        entry = QueueEntry(message, self.sequence)
        tail = self.tail
        entry.prev = tail
        tail.next = entry
        self.tail = entry
        return entry
