"""Last-value queues: a new message replaces the earlier message with the same value of a header.

[Qpid last value queues; Artemis last-value queues]
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64, mypyc_attr

from broker.core.arguments.queue import LAST_VALUE_KEY
from broker.core.arguments.rule import Arguments
from broker.core.entries.entry import ACQUIRED, QueueEntry
from broker.core.entries.list import Latest, QueueEntryList
from broker.core.message import Message
from broker.core.message_view import Headers, identity


@final
@mypyc_attr(acyclic=True)
class LastValueEntry(QueueEntry):
    """An entry with the `number` of its arrival, because it may take the place of an earlier entry.

    `key`: the value that the entry shares with the entries that it replaces, and that replace it; None: no
    value.
    """

    def __init__(self, message: Message, order: i64, number: i64, key: object | None) -> None:
        super().__init__(message, order)
        self.number = number
        self.key = key


@final
class LatestValues(Latest):
    """The latest entry of each value in a last-value queue.

    `QueueEntryList.latest` is None for all other queues.

    `current`: by value, the entry of the message that came last.
    """

    def __init__(self, header: str, headers: Headers) -> None:
        super().__init__()
        self.current: dict[object, QueueEntry] = {}
        self._header = header
        self._headers = headers

    def key(self, message: Message) -> object | None:
        """Return the value by which messages replace each other; None: `message` replaces none."""
        value = self._headers.value(message, self._header)
        return None if value is None else identity(value)

    def forget(self, entry: QueueEntry) -> None:
        """Note that `entry` leaves the queue."""
        key = _key_of(entry)
        if key is not None and self.current.get(key) is entry:
            del self.current[key]

    def is_outdated(self, entry: QueueEntry) -> bool:
        """Whether a later message than the message of `entry` has arrived."""
        key = _key_of(entry)
        return key is not None and self.current.get(key) is not entry

    def successor(self, entry: QueueEntry) -> QueueEntry | None:
        """The entry of the latest message with the value of an outdated `entry`."""
        return self.current.get(_key_of(entry))

    def holds(self, message: Message) -> bool:
        """Whether a message that `message` would replace is in the queue."""
        return self.key(message) in self.current

    def displaceable(self, message: Message) -> QueueEntry | None:
        """The entry whose place `message` would take."""
        entry = self.current.get(self.key(message))
        return None if entry is None or entry.state == ACQUIRED else entry

    def set_aside(self, message: Message) -> None:
        """Mark the entry that the recovered `message` replaces as outdated."""
        old = self.current.pop(self.key(message), None)
        if old is not None:
            self.outdated.append(old)


def _key_of(entry: QueueEntry) -> object | None:
    assert isinstance(entry, LastValueEntry), "last-value queues have LastValueEntry only"
    return entry.key


@final
class LastValueEntryList(QueueEntryList):
    """First in, first out, except that a new entry takes the place of the one that it replaces.

    An acquired entry keeps its place; the new entry goes to the end then. A replaced entry stays linked right
    before the new one, until the code that appended the new entry takes it out: `Latest.displaced`.
    """

    def __init__(self, header: str, headers: Headers) -> None:
        super().__init__(False)
        self._values = LatestValues(header, headers)
        self.latest = self._values

    @staticmethod
    def of(arguments: Arguments, headers: Headers) -> QueueEntryList:
        """Return the list for a queue with these arguments."""
        header = arguments[LAST_VALUE_KEY]
        assert isinstance(header, str), "arguments are checked before a queue is made"
        return LastValueEntryList(header, headers)

    def append(self, message: Message) -> QueueEntry:
        """Link an entry at the place of the one that it replaces, or else at the end; O(1)."""
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
        """Take `entry` out and cut its links.

        If it was the latest of its value, the value has no latest entry now.
        """
        self._values.forget(entry)
        super().unlink(entry)

    def arrival(self, entry: QueueEntry) -> i64:
        """The number of the entry's arrival."""
        assert isinstance(entry, LastValueEntry), "last-value lists have LastValueEntry only"
        return entry.number
