"""Which consumers of a queue share a cursor: those that see the same entries; and all the cursors it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.core.context import QueueContext
from broker.core.entry import QueueEntry
from broker.core.entry_filter import EntryFilter
from broker.core.errors import PreconditionFailed

if TYPE_CHECKING:
    from broker.core.queue import Queue

FILTERS_MAX: Final = 64  # of one queue: each is asked about each message


def join(queue: Queue, entry_filter: EntryFilter | None) -> QueueContext:
    """The context for one more acquiring consumer with this filter.

    Raises:
        PreconditionFailed: the consumers of the queue have too many different filters.
    """
    if entry_filter is None:
        return queue.context
    for context in queue.filtered:
        assert context.filter is not None, "the context without a filter is not among them"
        if context.filter.key == entry_filter.key:
            context.users += 1
            return context
    if len(queue.filtered) >= FILTERS_MAX:
        raise PreconditionFailed(
            f"queue '{queue.name}' in vhost '{queue.vhost}' has consumers with {FILTERS_MAX} different "
            "selectors, and no more are allowed"
        )
    context = QueueContext(queue.entries, entry_filter)
    context.users = 1
    queue.filtered.append(context)
    queue.alike = False
    return context


def leave(queue: Queue, context: QueueContext) -> None:
    """A consumer that shared `context` has gone."""
    if context is queue.context:
        return
    context.users -= 1
    if context.users == 0:
        queue.filtered.remove(context)
        queue.alike = not queue.filtered and queue.discipline is None


def offer_everywhere(queue: Queue, entry: QueueEntry) -> None:
    """Show cursors an entry that may have been linked behind them."""
    depth = queue.depth
    queue.context.offer(entry, depth)
    for context in queue.filtered:
        context.offer(entry, depth)
    if queue.browsers is not None:
        queue.browsers.offer(entry, depth)


def forget_everywhere(queue: Queue, entry: QueueEntry) -> None:
    """A DEQUEUED entry, no longer counted, is about to be unlinked: no cursor may stand on it."""
    depth = queue.depth
    queue.context.forget(entry, depth)
    for context in queue.filtered:
        context.forget(entry, depth)
    if queue.browsers is not None:
        queue.browsers.forget(entry, depth)
