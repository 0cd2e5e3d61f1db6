"""What is ready in a queue, passed by one after the other."""

from collections.abc import AsyncGenerator

from broker.admin.api.slices import Slices
from broker.core import browsers
from broker.core.contexts import browsing
from broker.core.entry import QueueEntry
from broker.core.entry_filter import EntryFilter
from broker.core.operation import is_over
from broker.core.queue import Queue


async def ready_entries(queue: Queue, sieve: EntryFilter | None) -> AsyncGenerator[QueueEntry]:
    """The entries that are ready now, one after the other, others having their turn in between.

    To be closed. It ends where the queue is deleted.
    """
    slices = Slices()
    newest = queue.entries.sequence
    cursor = browsing(queue, sieve)
    browsers.begin(queue, cursor)
    try:
        while True:
            await slices.breathe()
            if queue.deleted:
                break
            entry = cursor.get_next_available_entry()
            if entry is not None:
                cursor.passed(entry)
                if queue.entries.arrival(entry) > newest:
                    if queue.entries.in_order:
                        break
                elif not is_over(queue, entry):
                    yield entry
            elif not cursor.more:
                break
    finally:
        browsers.end(queue, cursor)
