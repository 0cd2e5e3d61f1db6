"""Standard queues: first in, first out."""

from __future__ import annotations

from typing import Final, final

from broker.core.argument_rule import ArgumentRule, Arguments
from broker.core.entry import QueueEntry
from broker.core.entry_list import QueueEntryList
from broker.core.header_value import Headers
from broker.core.message import Message

INDEX: Final = "x-index"
ARGUMENTS: Final[dict[str, ArgumentRule]] = {INDEX: ArgumentRule("headers", high=16)}


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
