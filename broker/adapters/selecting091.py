"""What a selector lets pass, asked of content as it is kept."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.view091 import ContentView, marks
from broker.core.entry import QueueEntry
from broker.core.entry_filter import EntryFilter
from broker.core.ports import MessageStore
from broker.core.selector.selector import Selector
from protocol.amqp091.content import header_frame_bytes

_SHORT: Final = 1024  # bytes of content that are searched faster than it is found out where the header ends


@final
class SelectorFilter(EntryFilter):
    """The entries whose messages a selector is true for.

    If it asks for an equality, most others are told by bytes that are not in the header.
    """

    def __init__(self, selector: Selector, store: MessageStore) -> None:
        super().__init__(selector.canonical)
        self.selector = selector
        self._store = store
        self._mark = max([marks(name, value) for name, value in selector.demands], key=len, default=b"")

    def passes(self, entry: QueueEntry) -> bool:
        """Whether the selector is true for the message (EntryFilter). Raises what the store raises."""
        content = entry.message.content
        if content is None:
            content = self._store.load(entry.message)
        mark = self._mark
        if mark:
            end: i64 = len(content)
            if end > _SHORT:
                end = header_frame_bytes(content)
            if content.find(mark, 0, end) < 0:
                return False
        return self.selector.matches(ContentView(content))
