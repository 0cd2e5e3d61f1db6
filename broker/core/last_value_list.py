"""Last-value queues: of the messages with the same value of a header, the latest.

[Qpid last value queues; Artemis last-value queues]
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.argument_rule import ArgumentRule, Arguments
from broker.core.entry import ACQUIRED, QueueEntry
from broker.core.entry_list import QueueEntryList
from broker.core.header_value import Headers
from broker.core.latest import LastValueEntry, Latest
from broker.core.message import Message

LAST_VALUE_KEY: Final = "x-last-value-key"
ARGUMENTS: Final = {LAST_VALUE_KEY: ArgumentRule("header")}


@final
class LastValueEntryList(QueueEntryList):
    """First in, first out; but what replaces an entry that nobody has stands where that stood.

    The one that is replaced goes on standing right before it, until whoever has appended the new one takes
    it out: `Latest.displaced`.
    """

    def __init__(self, header: str, headers: Headers) -> None:
        super().__init__(False)
        self._values = Latest(header, headers)
        self.latest = self._values

    @staticmethod
    def of(arguments: Arguments, headers: Headers) -> QueueEntryList:
        """The list for a queue with these arguments."""
        header = arguments[LAST_VALUE_KEY]
        assert isinstance(header, str), "arguments are checked before a queue is made"
        return LastValueEntryList(header, headers)

    def append(self, message: Message) -> QueueEntry:
        """Link an entry at the place of the one that it replaces, or a new last one; O(1)."""
        self.sequence += 1
        values = self._values
        key = values.key(message)
        old = values.current.get(key) if key is not None else None
        if old is None or old.state == ACQUIRED:
            entry = LastValueEntry(message, self.sequence, self.sequence, key)
            self.link(entry, self.tail)
        else:
            entry = LastValueEntry(message, old.order, self.sequence, key)
            self.link(entry, old)
            values.displaced = old
        if key is not None:
            values.current[key] = entry
        return entry

    def unlink(self, entry: QueueEntry) -> None:
        """Take `entry` out and cut its links; if it was the latest of its value, there is none now."""
        self._values.forget(entry)
        super().unlink(entry)

    def arrival(self, entry: QueueEntry) -> i64:
        """When `entry` came (QueueEntryList)."""
        assert isinstance(entry, LastValueEntry), "the entries of a last-value list are such"
        return entry.number
