"""What is to happen when: one heap for the whole broker, woken by one timer of whoever runs it.

The core has no clock. It is told the time by two functions: `clock` counts nanoseconds and never goes back
(what is left of a wait is measured by it), `calendar` gives nanoseconds since 1970 (what is written down
for clients, or for after a restart, is a date). The core itself counts in whole milliseconds that are over; a
wait that must not be too short begins with the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.allowance import Allowance

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
