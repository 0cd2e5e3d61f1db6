"""Alarms in order of time, work in slices, and what one peer may cost in a turn.

A piece of what a client sends may carry thousands of requests. Publishing and settling ordinary messages is
cheap, and is bounded by the size of the piece. All that costs more says so here, and when it comes to more
than a turn may cost, whoever works for the peer goes on with the next request in another turn.

The core has no clock. It is told the time by two functions: `clock` counts nanoseconds and never goes back
(what is left of a wait is measured by it), `calendar` gives nanoseconds since 1970 (what is written down
for clients, or for after a restart, is a date). The core itself counts in whole milliseconds that are over; a
wait that must not be too short begins with the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, merge
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.message import BY_CLOCK, Message

# all in microseconds, as compiled modules on an ordinary machine take them
TURN: Final[i64] = 2000
METHOD: Final[i64] = 10  # most of it to decode a small one
PAYLOAD: Final[i64] = 16  # bytes of it for each of which it is a microsecond more
PROPERTIES: Final[i64] = 10  # of a message, to decode them and route by them
REQUEST: Final[i64] = 50  # over AMQP 1.0, to the node of management: to decode and to answer it
DELIVERY: Final[i64] = 5  # of a message to a consumer, before the request that waits for it
RECEIPT: Final[i64] = 10
LETTER: Final[i64] = 20
MODIFICATION: Final[i64] = 5  # of a message to which something is added
BINDING: Final[i64] = 1  # to let go of one
ENTRIES: Final[i64] = 4  # that can be let go of in a microsecond
QUEUES: Final[i64] = 4  # that a message can be put into in one
FAN_OUT: Final[i64] = 16  # queues of one message that are not worth counting


@mypyc_attr(allow_interpreted_subclasses=True)
class Worker:
    """Does in turns what a peer asks for."""

    def give_way(self) -> None:
        """Begin nothing more in this turn."""
        raise NotImplementedError


@final
class Allowance:
    """The one for the turn that is under way. Costs count while a worker has begun one, else for nothing."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._left: i64 = 0

    def begin(self, worker: Worker) -> Worker | None:
        """A turn of `worker` begins; returns whose turn it is within, for `end`."""
        before = self._worker
        self._worker = worker
        self._left = TURN
        return before

    def end(self, before: Worker | None) -> None:
        """It is over."""
        self._worker = before

    def use(self, cost: i64) -> None:
        """Something is about to be done, or has been done, that takes so many microseconds."""
        self._left -= cost
        worker = self._worker
        if self._left < 0 and worker is not None:
            self._worker = None
            worker.give_way()


RUN_MS: Final = 5  # how long alarms ring in one call of `run`: then others have their turn
STALE_MIN: Final = 64  # so many dead marks are not worth sweeping
JITTER_MS: Final[i64] = 1  # by so much two clocks seem to move that are read one after the other
NS_PER_MS: Final[i64] = 1_000_000  # nanoseconds in a millisecond


@mypyc_attr(allow_interpreted_subclasses=True)
class Alarm:
    """Something with a time. `due`: when it rings, on the schedule's clock; 0: it is not set."""

    def __init__(self) -> None:
        self.due: i64 = 0

    def ring(self) -> None:
        """It is time. May set itself again; must not take long: what is a lot of work is done in slices."""
        raise NotImplementedError


@final
class Schedule:
    """The alarms that are set.

    `wake` asks for a call of `run` at a time of the clock, instead of any call that was asked for before.
    Setting, moving and cancelling an alarm cost O(log n) amortised, however many there are. `allowance`: what
    may still be done in the turn that is under way.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        calendar: Callable[[], int],
        wake: Callable[[int], None],
    ) -> None:
        self.allowance = Allowance()
        self._clock = clock
        self._calendar = calendar
        self._wake = wake
        self._woken: i64 = 0  # when `run` will be called; 0: nobody was asked
        self._marks: list[tuple[int, int, Alarm]] = []  # due, number of the mark, alarm; some are dead
        self._numbers: i64 = 0
        self._set: i64 = 0  # alarms that are set
        self._offset: i64 = calendar() // NS_PER_MS - clock() // NS_PER_MS  # from the clock to the calendar

    def now(self) -> i64:
        """The time on the clock, in milliseconds."""
        return self._clock() // NS_PER_MS

    def after(self, wait: i64) -> i64:
        """The first time on the clock when no less than `wait` ms have passed."""
        return (self._clock() + NS_PER_MS - 1) // NS_PER_MS + wait

    def date(self) -> i64:
        """The time of day, in milliseconds since 1970."""
        return self._calendar() // NS_PER_MS

    def date_after(self, wait: i64) -> i64:
        """The time of day when no less than `wait` ms have passed, unless the calendar is set meanwhile.

        `due_at` knows when on the clock that is, which does not change then.
        """
        now = self._clock()
        offset = self._calendar() // NS_PER_MS - now // NS_PER_MS
        if not -JITTER_MS <= offset - self._offset <= JITTER_MS:
            self._offset = offset
        return (now + NS_PER_MS - 1) // NS_PER_MS + wait + self._offset

    def due_at(self, date: i64) -> i64:
        """When on the clock a date comes that `date_after` has given, or was in the log at the start."""
        return date - self._offset

    def set(self, alarm: Alarm, due: i64) -> None:
        """Have `alarm` ring at `due`, or at once if that is past, instead of when it would have rung."""
        due = max(due, 1)
        if alarm.due == due:
            return
        if alarm.due == 0:
            self._set += 1
        alarm.due = due
        self._numbers += 1
        marks = self._marks
        heappush(marks, (due, self._numbers, alarm))
        if len(marks) > 2 * self._set + STALE_MIN:
            self._marks = [mark for mark in marks if mark[2].due == mark[0]]
            heapify(self._marks)
        if self._woken == 0 or due < self._woken:
            self._woken = due
            self._wake(due)

    def cancel(self, alarm: Alarm) -> None:
        """`alarm` is not to ring."""
        if alarm.due != 0:
            alarm.due = 0
            self._set -= 1

    def run(self) -> None:
        """Ring what is due, some milliseconds long; what is left rings the next time, which is at once.

        What is set meanwhile rings the next time too, however early it is due.
        """
        self._woken = 0
        now = self.now()
        last = self._numbers
        later: list[tuple[int, int, Alarm]] = []
        try:
            while self._marks and self._marks[0][0] <= now:
                mark = heappop(self._marks)
                alarm = mark[2]
                if alarm.due != mark[0]:
                    continue
                if mark[1] > last:
                    later.append(mark)
                    continue
                alarm.due = 0
                self._set -= 1
                alarm.ring()
                if self.now() - now >= RUN_MS:
                    break
        finally:  # one that fails must not stop the others for good
            for mark in later:
                heappush(self._marks, mark)
            if self._marks and (self._woken == 0 or self._marks[0][0] < self._woken):
                self._woken = self._marks[0][0]
                self._wake(self._marks[0][0])


SLICE: Final = 64  # messages released in one turn: one or two milliseconds
LOOK_MS: Final = 60_000  # the calendar is looked at as often, in case somebody sets it
RETRY_MS: Final = 1000  # after a release that was not possible
STALE_DATES_MIN: Final = 64  # so many places of cancelled messages are not worth sweeping


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
        if len(self._by_clock) + len(self._by_calendar) > 2 * self.count + STALE_DATES_MIN:
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
