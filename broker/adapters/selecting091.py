"""What a selector lets pass, asked of content as it is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from broker.adapters.view091 import ContentView, marks
from broker.core.entry import QueueEntry
from broker.core.entry_filter import EntryFilter
from broker.core.message import Message
from broker.core.ports import MessageStore
from broker.core.selector.selector import Selector
from protocol.amqp091.content import header_frame_bytes
from protocol.amqp091.lookup import NO_INTEGER, integer_at

_SHORT: Final = 1024  # bytes of content that are searched faster than it is found out where the header ends


@final
class SelectorFilter(EntryFilter):
    """The entries whose messages a selector is true for.

    If it asks for an equality, most others are told by what is not in the header: a name with a string, or
    with an integer.

    `trouble`: who is told, once, that content cannot be read. That is unknown then, and does not pass: the
    look may be on behalf of somebody else, whose connection it must not close. None: who asks gets an error.
    """

    def __init__(
        self, selector: Selector, store: MessageStore, trouble: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(selector.canonical)
        self.selector = selector
        self.demands = selector.demands
        self._store = store
        self._trouble = trouble
        self._told = False
        self._mark = b""
        self._named = b""  # the name of a header that must be `_number`
        self._number: i64 = 0
        for name, value in selector.demands:
            mark = marks(name, value)
            if isinstance(value, str):
                self._mark = max(self._mark, mark, key=len)
            elif mark and -(1 << 63) <= value < 1 << 63:
                self._named = mark
                self._number = value

    def passes(self, entry: QueueEntry) -> bool:
        """Whether the selector is true for the message (EntryFilter).

        Raises what the store raises, if nobody else is told of trouble.
        """
        content = entry.message.content
        if content is None:
            content = self._load(entry.message)
            if content is None:
                return False
        end: i64 = len(content)
        if end > _SHORT:
            end = header_frame_bytes(content)
        if self._mark:
            if content.find(self._mark, 0, end) < 0:
                return False
        elif self._named and self._has_other_number(content, end):
            return False
        return self.selector.matches(ContentView(content))

    def _load(self, message: Message) -> bytes | None:
        trouble = self._trouble
        if trouble is None:
            return self._store.load(message)
        try:
            return self._store.load(message)
        except Exception as error:  # the disk does not give it back, or not now
            if not self._told:
                self._told = True
                trouble(
                    f"a selector passes by what cannot be read: '{self.key}', message {message.sequence}: "
                    f"{type(error).__name__}: {error}"
                )
            return None

    def _has_other_number(self, content: bytes, end: i64) -> bool:
        """Whether the header that must be there is not, or is certainly another number."""
        named = self._named
        at: i64 = content.find(named, 0, end)
        if at < 0:
            return True
        start = at + len(named)
        if start + 9 > end or content.find(named, at + 1, end) >= 0:
            return False  # which of them is the header, if it is not a value that looks like one?
        value = integer_at(content, start)
        if value == NO_INTEGER:
            return False
        return value != self._number
