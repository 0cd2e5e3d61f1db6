"""Which entries of a queue a consumer sees. [JMS 1.1, 3.8.1 message selectors]"""

from __future__ import annotations

from typing import final

from mypy_extensions import mypyc_attr

from broker.core.entry import QueueEntry
from broker.core.ports import MessageStore
from broker.core.selector.selector import Selector
from broker.core.view import Views


@mypyc_attr(allow_interpreted_subclasses=True)
class EntryFilter:
    """A condition that holds for an entry, or not, as long as it is in its queue.

    `key`: filters with the same key let the same entries pass.
    """

    def __init__(self, key: str) -> None:
        self.key = key

    def passes(self, entry: QueueEntry) -> bool:
        """Whether consumers with this filter see `entry`."""
        raise NotImplementedError


@final
class SelectorFilter(EntryFilter):
    """The entries whose messages a selector is true for."""

    def __init__(self, selector: Selector, views: Views, store: MessageStore) -> None:
        super().__init__(selector.canonical)
        self.selector = selector
        self._views = views
        self._store = store

    def passes(self, entry: QueueEntry) -> bool:
        """Whether the selector is true for the message (EntryFilter)."""
        return self.selector.matches(self._views(entry.message, self._store))
