"""The cursors of a queue, of which consumers that see the same entries share one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.core.context import QueueContext
from broker.core.entry import QueueEntry
from broker.core.entry_filter import EntryFilter
from broker.core.entry_list import QueueEntryList
from broker.core.errors import PreconditionFailed

if TYPE_CHECKING:
    from broker.core.index import Row
    from broker.core.queue import Queue

FILTERS_MAX: Final = 64  # of one queue, or one row of its index: each is asked about each message of that


def join(queue: Queue, entry_filter: EntryFilter | None) -> QueueContext:
    """The context for one more acquiring consumer with this filter.

    Raises:
        PreconditionFailed: the consumers of the queue have too many different filters.
    """
    if entry_filter is None:
        return queue.context
    row = None if queue.index is None else queue.index.row_for(entry_filter)
    contexts = queue.filtered if row is None else row.contexts
    for context in contexts:
        assert context.filter is not None, "the context without a filter is not among them"
        if context.filter.key == entry_filter.key:
            context.users += 1
            if row is not None and queue.index is not None:
                queue.index.release(row)  # each context is one that looks
            return context
    if len(contexts) >= FILTERS_MAX:
        if row is not None and queue.index is not None:
            queue.index.release(row)
        raise PreconditionFailed(
            f"queue '{queue.name}' in vhost '{queue.vhost}' has consumers with {FILTERS_MAX} different "
            "selectors, and no more are allowed"
        )
    context = QueueContext(_entries(queue, row), entry_filter)
    context.users = 1
    context.row = row
    contexts.append(context)
    if row is not None and queue.index is not None:
        queue.index.served[row] = None
    queue.alike = False
    return context


def browsing(queue: Queue, entry_filter: EntryFilter | None) -> QueueContext:
    """A cursor for somebody who looks at what a filter lets pass, from the first entry on."""
    row = None if queue.index is None else queue.index.row_for(entry_filter)
    context = QueueContext(_entries(queue, row), entry_filter)
    context.row = row
    return context


def leave(queue: Queue, context: QueueContext) -> None:
    """A consumer that shared `context` has gone."""
    if context is queue.context:
        return
    context.users -= 1
    if context.users > 0:
        return
    index = queue.index
    row = context.row
    if row is None or index is None:
        queue.filtered.remove(context)
    else:
        row.contexts.remove(context)
        if not row.contexts:
            del index.served[row]
        index.release(row)
    queue.alike = not queue.filtered and queue.discipline is None and (index is None or not index.served)


def _entries(queue: Queue, row: Row | None) -> QueueEntryList:
    return queue.entries if row is None or row.entries is None else row.entries


def offer_everywhere(queue: Queue, entry: QueueEntry) -> None:
    """Show cursors an entry that may have been linked behind them."""
    depth = queue.depth
    queue.context.offer(entry, depth)
    for context in queue.filtered:
        context.offer(entry, depth)
    if queue.browsers is not None:
        queue.browsers.offer(entry, depth)


def concerns_cursors(queue: Queue, entry: QueueEntry) -> bool:
    """Whether it matters to other cursors than the shared one, or to what is behind that, if `entry` goes."""
    if queue.context.has_behind or queue.filtered or queue.index is not None or queue.places is not None:
        return True
    browsers = queue.browsers
    return browsers is not None and (not queue.entries.in_order or entry.stood_on)


def forget_everywhere(queue: Queue, entry: QueueEntry) -> None:
    """A DEQUEUED entry, no longer counted, is about to be unlinked: no cursor may stand on it."""
    depth = queue.depth
    queue.context.forget(entry, depth)
    for context in queue.filtered:
        context.forget(entry, depth)
    if queue.browsers is not None:
        queue.browsers.forget(entry, depth)
    if queue.index is not None:
        queue.index.remove(entry, depth)
    if queue.places is not None:
        queue.places.unlinked(entry)
