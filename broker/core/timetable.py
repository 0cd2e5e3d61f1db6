"""Messages that wait for their date, soonest first, with one alarm for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, merge
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.message import BY_CLOCK, Message
from broker.core.schedule import Alarm, Schedule

SLICE: Final = 64  # messages released in one turn: one or two milliseconds
LOOK_MS: Final = 60_000  # the calendar is looked at as often, in case somebody sets it
RETRY_MS: Final = 1000  # after a release that was not possible
STALE_MIN: Final = 64  # so many places of cancelled messages are not worth sweeping


@final
@mypyc_attr(acyclic=True)
class Held:
    """A message's place in a timetable; `message` is None once it is gone from there.

    `date`: when its message is due by the calendar. `due`: the same by the clock, if setting the calendar
    does not change that.
    """

    def __init__(self, message: Message, date: i64, due: i64, number: i64) -> None:
        self.message: Message | None = message
        self.date = date
        self.due = due
        self.number = number

    def __lt__(self, other: Held) -> bool:
        return self.due < other.due or (self.due == other.due and self.number < other.number)


@mypyc_attr(allow_interpreted_subclasses=True)
class Timetable(Alarm):
    """Releases messages at their `date`; those of one date in the order in which they were added.

    What waits for the end of a delay is released by the clock, as times to live end. What waits for a time of
    day is released by the calendar, which somebody may set.

    Two heaps of places: adding and releasing are O(log n), and nothing happens between two dates. What is
    already due is released in slices, so that a million messages of one date do not hold up everything else.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self.schedule = schedule
        self.count: i64 = 0
        self._by_clock: list[Held] = []
        self._by_calendar: list[Held] = []
        self._numbers: i64 = 0

    def waits_by_clock(self, message: Message) -> bool:
        """Whether `message` waits for the end of a delay, and not for a time of day."""
        return message.marks & BY_CLOCK != 0

    def release(self, message: Message) -> i64:
        """Send `message`, which is due, to where it belongs.

        Returns in how many ms to try again; 0: the message is gone. Only then the next message is released.
        """
        raise NotImplementedError

    def __len__(self) -> int:
        return self.count

    def places(self) -> list[list[Held]]:
        """Every place there is now, also of messages that are gone; see `soonest_first`."""
        return [list(self._by_clock), list(self._by_calendar)]

    def __iter__(self) -> Iterator[Message]:
        """The messages, soonest first, for cold use."""
        for held in merge(sorted(self._by_clock), sorted(self._by_calendar), key=_order):
            if held.message is not None:
                yield held.message

    def add(self, message: Message) -> Held:
        """Hold `message` until its date."""
        return self.hold(message, message.date, self.waits_by_clock(message))

    def hold(self, message: Message, date: i64, by_clock: bool) -> Held:
        """Hold `message` until this date. The message, which others may share, keeps its own."""
        self._numbers += 1
        heap = self._by_clock if by_clock else self._by_calendar
        held = Held(message, date, self.schedule.due_at(date) if by_clock else date, self._numbers)
        heappush(heap, held)
        self.count += 1
        if heap[0] is held:
            self._set_alarm(0)
        return held

    def cancel(self, held: Held) -> None:
        """Hold a message no longer, and do not release it either."""
        if held.message is None:
            return
        held.message = None
        self.count -= 1
        if len(self._by_clock) + len(self._by_calendar) > 2 * self.count + STALE_MIN:
            self._by_clock = [place for place in self._by_clock if place.message is not None]
            heapify(self._by_clock)
            self._by_calendar = [place for place in self._by_calendar if place.message is not None]
            heapify(self._by_calendar)

    def take(self, most: i64) -> list[Message]:
        """Hold up to `most` messages no longer, whichever, and do not release them either."""
        taken: list[Message] = []
        for heap in (self._by_clock, self._by_calendar):
            while heap and len(taken) < most:
                held = heap.pop()
                message = held.message
                if message is not None:
                    held.message = None
                    self.count -= 1
                    taken.append(message)
        return taken

    def ring(self) -> None:
        """Release what is due (Alarm), at most a slice of it."""
        wait: i64 = 0
        try:
            now = self.schedule.now()
            date = self.schedule.date()
            for _ in range(SLICE):
                heap = self._first_due(now, date)
                if wait > 0 or heap is None:
                    break
                wait = self._release_first(heap)
        finally:  # one that fails must not stop the others for good
            self._set_alarm(wait)

    def _first_due(self, now: i64, date: i64) -> list[Held] | None:
        """The heap with the message that is to be released next; None if none is due."""
        clock, calendar = self._by_clock, self._by_calendar
        if not clock or clock[0].due > now:
            return calendar if calendar and calendar[0].due <= date else None
        if not calendar or calendar[0].due > date:
            return clock
        return calendar if _order(calendar[0]) < _order(clock[0]) else clock

    def _release_first(self, heap: list[Held]) -> i64:
        held = heappop(heap)
        message = held.message
        if message is None:
            return 0
        held.message = None
        self.count -= 1
        wait = self.release(message)
        if wait > 0:
            held.message = message
            self.count += 1
            heappush(heap, held)
        return wait

    def _set_alarm(self, wait: i64) -> None:
        """Ring for the first message, but not before `wait` ms have passed."""
        clock, calendar = self._by_clock, self._by_calendar
        now = self.schedule.now()
        left: i64 = 0
        if clock:
            left = clock[0].due - now
        if calendar:
            until = min(calendar[0].due - self.schedule.date(), LOOK_MS)
            left = min(left, until) if clock else until
        if clock or calendar:
            self.schedule.set(self, now + max(wait, left))


def _order(held: Held) -> tuple[int, int]:
    """The place of a message among all, whichever heap it is in."""
    return held.date, held.number


def soonest_first(heaps: list[list[Held]]) -> Iterator[Held]:
    """The places of a timetable in order, found one by one: the first cost little however many follow."""
    waiting = [(heap[0].date, heap[0].number, which, 0) for which, heap in enumerate(heaps) if heap]
    heapify(waiting)
    while waiting:
        _, _, which, at = heappop(waiting)
        heap = heaps[which]
        for below in (2 * at + 1, 2 * at + 2):
            if below < len(heap):
                place = heap[below]
                heappush(waiting, (place.date, place.number, which, below))
        if heap[at].message is not None:
            yield heap[at]
