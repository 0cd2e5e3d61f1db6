"""The extent of a browser: the entry at which it begins, and whether it ends.

[Qpid and RabbitMQ streams know such offsets: first, last, next, a number, a time]
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.consumer import FIRST, LAST, NEXT, NO_TIME, BrowseRange
from broker.core.entries.cursor import SCAN_BUDGET, Cursor
from broker.core.entries.entry import AVAILABLE, EntryFilter, QueueEntry
from broker.core.entries.list import QueueEntryList
from broker.core.message_view import Views, bare_view
from broker.core.ports import MessageStore
from broker.core.queues.queue import Queue, open_browser_context

ACQUIRED_MAX: Final[i64] = 10 * SCAN_BUDGET  # entries to look at for the last AVAILABLE one


def browser_cursor(queue: Queue, extent: BrowseRange, entry_filter: EntryFilter | None) -> Cursor:
    """Return the cursor of a browser that is being attached to `queue` and sees this extent of it."""
    entries = queue.entries
    if extent.snapshot or extent.skip > 0 or extent.since != NO_TIME:
        views = bare_view if queue.host is None else queue.host.views
        entry_filter = PartFilter(extent, entries, entry_filter, views, queue.store)
    elif extent.beginning == FIRST:
        return open_browser_context(queue, entry_filter)
    context = Cursor(entries, entry_filter)
    if extent.beginning == NEXT:
        context.last = entries.tail
        context.newest = entries.sequence
    elif extent.beginning == LAST:
        context.last = _before_last_ready(entries)
        first = entries.next(context.last)
        context.newest = entries.sequence if first is None else entries.arrival(first) - 1
    return context


def _before_last_ready(entries: QueueEntryList) -> QueueEntry:
    """Return the entry before the last AVAILABLE one; the end if there is none near."""
    entry = entries.tail
    for _ in range(ACQUIRED_MAX):
        before = entry.prev
        if before is None:
            break
        if entry.state == AVAILABLE:
            return before
        entry = before
    return entries.tail


@final
class PartFilter(EntryFilter):
    """The filter of one browser's extent, combined with another filter.

    The cursor asks it in the order of the queue about ready entries, and perhaps twice about one that passes.
    """

    def __init__(
        self,
        extent: BrowseRange,
        entries: QueueEntryList,
        entry_filter: EntryFilter | None,
        views: Views,
        store: MessageStore,
    ) -> None:
        super().__init__("")
        self._entries = entries
        self._filter = entry_filter
        self._views = views
        self._store = store
        self._skip = extent.skip
        self._since: int = extent.since  # no i64, as the property `timestamp` may be more than one holds
        self._snapshot = extent.snapshot
        self._newest: i64 = entries.sequence

    def passes(self, entry: QueueEntry) -> bool:
        """Whether the entry is within the extent, and the other filter agrees."""
        is_new = self._entries.arrival(entry) > self._newest
        if is_new and self._snapshot:
            return False
        if self._skip > 0:
            self._skip -= 1
            return False
        if self._since != NO_TIME:
            if not is_new and self._time(entry) < self._since:
                return False
            self._since = NO_TIME
        return self._filter is None or self._filter.passes(entry)

    def _time(self, entry: QueueEntry) -> int:
        message = entry.message
        if message.date > 0:
            return message.date
        time = self._views(message, self._store).property("timestamp")
        return time if isinstance(time, int) else NO_TIME
