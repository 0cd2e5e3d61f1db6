"""The times at which a queue's entries expire, whatever their order in the queue.

Adding, removing and finding the first are O(1) where times come in order, as with one time to live for the
whole queue, and O(log n) at worst where they do not. What is removed leaves nothing behind, so nothing has to
be swept up later, and no step takes longer than another.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from broker.core.entries.entry import IN_LANE, STOPPED, QueueEntry, Timer


@final
class Timers:
    """The running timers of one queue: a lane of those that came in the order of their times, and a heap."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self._heap: list[Timer] = []
        self._lane: Timer | None = None  # the first of it,
        self._lane_end: Timer | None = None  # and the last
        self._back: Timer | None = None  # the last that came back into it; it may have been stopped since

    def start(self, timer: Timer, entry: QueueEntry, in_turn: bool) -> None:
        """Have a stopped timer run for `entry`. `in_turn`: those after it will hardly be due before it."""
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
        """Have the stopped timers of `entries` run, which have come back, in the order of the queue.

        They are mostly due before all that run, one after the other: so they come first in the lane, behind
        those that came back before them, and neither they nor those that stop them pay for a heap.
        """
        before = self._back  # what has come into the lane last
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
        """Whether `timer` is in the lane still, and that of the first of `entries` is not to be before it."""
        entry = timer.entry
        first = entries[0].timer if entries else None
        if entry is None or timer.place != IN_LANE or first is None:
            return False
        return entry.precedes(entries[0]) and timer.due <= first.due

    def _link(self, timer: Timer, before: Timer | None, after: Timer | None) -> None:
        """Put `timer` into the lane, between these two."""
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
        """Have a timer stop; nothing happens if it does not run."""
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
        """The one that is due first, None if none runs."""
        lane = self._lane
        heap = self._heap
        if not heap:
            return lane
        return heap[0] if lane is None or _is_sooner(heap[0], lane) else lane

    def _take_from_heap(self, place: i64) -> None:
        heap = self._heap
        last = heap.pop()
        if place < len(heap):  # it was not the last itself
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
    """Whether `timer` is to ring before `other`: of two that are due together, that of the earlier entry."""
    if timer.due != other.due:
        return timer.due < other.due
    entry, that = timer.entry, other.entry
    return entry is not None and that is not None and entry.precedes(that)
