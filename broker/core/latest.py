"""Which entry of a queue has the latest message of each value of a header."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64, mypyc_attr

from broker.core.entry import ACQUIRED, QueueEntry
from broker.core.header_value import Headers, identity
from broker.core.message import Message


@final
@mypyc_attr(acyclic=True)
class LastValueEntry(QueueEntry):
    """An entry with the `number` of its arrival, as its place may be that of an earlier one.

    `key`: what it has in common with those that it replaces, and that replace it; None: it has no such value.
    """

    def __init__(self, message: Message, order: i64, number: i64, key: object | None) -> None:
        super().__init__(message, order)
        self.number = number
        self.key = key


@final
class Latest:
    """What a last-value queue knows of its entries; `QueueEntryList.latest` is None for all others.

    `current`: by value, the entry of the message that came last.
    `displaced`: the entry whose place the latest arrival has taken; whoever takes it out sets it to None.
    `outdated`: what recovery brought back and a later message replaces; it goes when the broker runs.
    `replaced` counts since start.
    """

    def __init__(self, header: str, headers: Headers) -> None:
        self.current: dict[object, QueueEntry] = {}
        self.displaced: QueueEntry | None = None
        self.outdated: list[QueueEntry] = []
        self.replaced: i64 = 0
        self._header = header
        self._headers = headers

    def key(self, message: Message) -> object | None:
        """What messages have in common that replace each other; None: it replaces none."""
        value = self._headers.value(message, self._header)
        return None if value is None else identity(value)

    def forget(self, entry: QueueEntry) -> None:
        """`entry` leaves the queue."""
        key = _key_of(entry)
        if key is not None and self.current.get(key) is entry:
            del self.current[key]

    def is_outdated(self, entry: QueueEntry) -> bool:
        """Whether a later message than that of `entry` has come."""
        key = _key_of(entry)
        return key is not None and self.current.get(key) is not entry

    def successor(self, entry: QueueEntry) -> QueueEntry | None:
        """The entry of the latest message with the value of an outdated `entry`; None if that has gone."""
        return self.current.get(_key_of(entry))

    def holds(self, message: Message) -> bool:
        """Whether a message that `message` would replace is in the queue, with a consumer or not."""
        return self.key(message) in self.current

    def displaceable(self, message: Message) -> QueueEntry | None:
        """The entry whose place `message` would take."""
        entry = self.current.get(self.key(message))
        return None if entry is None or entry.state == ACQUIRED else entry

    def set_aside(self, message: Message) -> None:
        """`message` is brought back by recovery: it stands at the end, and what it replaces is outdated."""
        old = self.current.pop(self.key(message), None)
        if old is not None:
            self.outdated.append(old)


def _key_of(entry: QueueEntry) -> object | None:
    assert isinstance(entry, LastValueEntry), "the entries of a last-value queue are such"
    return entry.key
