"""Entries that leave a last-value queue because a later message has replaced theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contexts import offer_everywhere
from broker.core.entry import ACQUIRED, DEQUEUED, QueueEntry
from broker.core.latest import Latest
from broker.core.leaving import take_out
from broker.core.message import Message

if TYPE_CHECKING:
    from broker.core.queue import Queue


def placed(queue: Queue, entry: QueueEntry) -> None:
    """`entry` is new, and was linked where cursors may have passed, or the queue has an index.

    What it replaces goes first, so that cursors stand on what is before both.
    """
    if queue.index is not None:
        queue.index.add(entry)
        return  # it is the last one
    latest = queue.entries.latest
    if latest is not None and latest.displaced is not None:
        old = latest.displaced
        latest.displaced = None
        replace(queue, latest, old, entry.message)
    offer_everywhere(queue, entry)


def replace(queue: Queue, latest: Latest, old: QueueEntry, new: Message | None) -> None:
    """AVAILABLE, ACQUIRED or HELD → DEQUEUED of `old`, in whose place is `new`; None: that has gone already.

    It is not dead-lettered. The log holds it until `new` is durable, if that is to be.
    """
    latest.replaced += 1
    queue.counters.replaced += 1
    message = old.message
    if queue.journal is not None:
        queue.journal.replaced(old)
    if queue.logged and message.sequence != 0:
        if new is None:
            queue.store.append_settle(message, queue)
        else:
            queue.store.append_replacement(new, message, queue)
    take_out(queue, old)


def replace_outdated(queue: Queue, old: QueueEntry) -> None:
    """`old`, which is with a consumer that gives it back, or comes from before a restart, is outdated."""
    latest = queue.entries.latest
    assert latest is not None, "nothing is outdated where nothing is replaced"
    new = latest.successor(old)
    replace(queue, latest, old, None if new is None else new.message)


def drop_outdated(queue: Queue) -> None:
    """Recovery is over: what it brought back besides the latest messages goes, but for what readers have."""
    latest = queue.entries.latest
    if latest is None:
        return
    outdated = latest.outdated
    latest.outdated = []
    for old in outdated:
        if old.state not in (ACQUIRED, DEQUEUED):
            replace_outdated(queue, old)
