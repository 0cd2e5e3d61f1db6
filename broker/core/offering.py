"""Entries that become AVAILABLE again where they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from broker.core.entry import AVAILABLE, QueueEntry
from broker.core.notifying import notify_one, wake_contexts
from broker.core.waiting import wake_for_earlier, wake_for_some

if TYPE_CHECKING:
    from broker.core.queue import Queue

TOLD_MAX: Final[i64] = 100  # entries about which every filter is asked now, and of the others in turns


def offer_again(queue: Queue, back: list[QueueEntry]) -> None:
    """`back` are AVAILABLE and counted: show them to cursors, limits and consumers, but not to browsers."""
    depth = queue.depth
    queue.counters.made_ready += len(back)
    if len(back) > 8:
        queue.context.offer_many(back, depth)
    else:
        for entry in back:
            queue.context.offer(entry, depth)
    for context in queue.filtered:
        context.offer_many(back, depth)
    if queue.index is not None:
        queue.index.offer(back, depth)
    if queue.rules is not None:
        queue.rules.returned(back)  # some may be gone after it
    if queue.waiting:
        if len(back) > TOLD_MAX:
            wake_for_some(queue, back)
        else:
            for entry in back:
                wake_for_earlier(queue, entry)
    if queue.election is not None:
        queue.election.delivery_ended()
    discipline = queue.discipline
    asks = not queue.alike and (discipline is None or not discipline.personal)
    told: i64 = 0
    for entry in back:
        if queue.manager.interested == 0:
            break
        if asks and told >= TOLD_MAX:
            wake_contexts(queue)
            break
        if entry.state == AVAILABLE:
            notify_one(queue, entry)
            told += 1
