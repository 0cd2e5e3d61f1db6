"""The times at which a queue's entries expire, whatever their order in the queue.

Adding a timer, removing one and finding the first cost O(1) where times come in order, as with one time to
live for the whole queue. Otherwise they cost O(log n) at worst. A removed timer leaves nothing behind, so no
sweep is needed later, and no step takes longer than another.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from broker.core.entries.entry import IN_LANE, STOPPED, QueueEntry, Timer


@final
class Timers:
    """The running timers of one queue: a lane for times that come in order, and a heap for others."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self._heap: list[Timer] = []
        self._lane: Timer | None = None  # the first timer of the lane,
        self._lane_end: Timer | None = None  # and the last
        self._back: Timer | None = None  # the last requeued timer in the lane; it may be stopped

    def start(self, timer: Timer, entry: QueueEntry, in_turn: bool) -> None:
        """Start a stopped timer for `entry`.

        `in_turn`: timers that start later will hardly be due before this one.
        """
        timer.entry = entry
        self.count += 1
        end = self._lane_end
        if in_turn and (end is None or end.due <= timer.due):
            self._link(timer, end, None)
        else:
            heap = self._heap
            heap.append(timer)
            self._rise(timer, len(heap) - 1)

    def start_again(self, entries: list[QueueEntry]) -> None:
        """Start the stopped timers of `entries`, which were requeued and are in the order of the queue.

        Mostly they are due before all running timers, and in this order. So they go to the front of the lane,
        behind those of earlier requeues. Neither starting nor stopping them costs a heap operation.
        """
        before = self._back
        if before is not None and not self._is_before(before, entries):
            before = None
        for entry in entries:
            timer = entry.timer
            if timer is None or timer.entry is not None:
                continue
            after = self._lane if before is None else before.after
            follows = before is None or before.due <= timer.due
            if entry.own_time or not follows or (after is not None and after.due < timer.due):
                self.start(timer, entry, not entry.own_time)
                continue
            timer.entry = entry
            self.count += 1
            self._link(timer, before, after)
            before = self._back = timer

    def _is_before(self, timer: Timer, entries: list[QueueEntry]) -> bool:
        """Whether `timer` is still in the lane and may stay before the timers of `entries`."""
        entry = timer.entry
        first = entries[0].timer if entries else None
        if entry is None or timer.place != IN_LANE or first is None:
            return False
        return entry.precedes(entries[0]) and timer.due <= first.due

    def _link(self, timer: Timer, before: Timer | None, after: Timer | None) -> None:
        """Put `timer` into the lane, between `before` and `after`."""
        timer.place = IN_LANE
        timer.before = before
        timer.after = after
        if before is None:
            self._lane = timer
        else:
            before.after = timer
        if after is None:
            self._lane_end = timer
        else:
            after.before = timer

    def stop(self, timer: Timer) -> None:
        """Stop a timer; nothing happens if the timer does not run."""
        place = timer.place
        if place == STOPPED:
            return
        timer.entry = None
        timer.place = STOPPED
        self.count -= 1
        if place != IN_LANE:
            self._take_from_heap(place)
            return
        before = timer.before
        after = timer.after
        if before is None:
            self._lane = after
        else:
            before.after = after
        if after is None:
            self._lane_end = before
        else:
            after.before = before
        timer.before = None
        timer.after = None

    def first(self) -> Timer | None:
        """Return the timer that is due first, None if none runs."""
        lane = self._lane
        heap = self._heap
        if not heap:
            return lane
        return heap[0] if lane is None or _is_sooner(heap[0], lane) else lane

    def _take_from_heap(self, place: i64) -> None:
        heap = self._heap
        last = heap.pop()
        if place < len(heap):  # else the timer itself was the last
            if place > 0 and _is_sooner(last, heap[(place - 1) >> 1]):
                self._rise(last, place)
            else:
                self._sink(last, place)

    def _rise(self, timer: Timer, place: i64) -> None:
        """Put `timer` in a free place, or nearer to the top."""
        heap = self._heap
        while place > 0:
            above = (place - 1) >> 1
            other = heap[above]
            if not _is_sooner(timer, other):
                break
            heap[place] = other
            other.place = place
            place = above
        heap[place] = timer
        timer.place = place

    def _sink(self, timer: Timer, place: i64) -> None:
        """Put `timer` in a free place, or farther from the top."""
        heap = self._heap
        size: i64 = len(heap)
        below = 2 * place + 1
        while below < size:
            other = heap[below]
            if below + 1 < size and _is_sooner(heap[below + 1], other):
                below += 1
                other = heap[below]
            if not _is_sooner(other, timer):
                break
            heap[place] = other
            other.place = place
            place = below
            below = 2 * place + 1
        heap[place] = timer
        timer.place = place


def _is_sooner(timer: Timer, other: Timer) -> bool:
    """Whether `timer` ends before `other`; the earlier entry decides between two that are due together."""
    if timer.due != other.due:
        return timer.due < other.due
    entry, that = timer.entry, other.entry
    return entry is not None and that is not None and entry.precedes(that)
