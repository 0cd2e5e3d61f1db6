"""Time that is moved by hand."""

from __future__ import annotations

from collections.abc import Callable

from broker.core.schedule import NS_PER_MS, Schedule

RUNS_MAX = 100_000


class HandClock:
    """A clock, a calendar, and a schedule that they drive."""

    def __init__(self, now: int = 1_000, date: int = 1_700_000_000_000) -> None:
        self.now = now
        self.offset = date - now
        self.fraction = 0  # nanoseconds of the millisecond that has begun
        self.wakes: list[int] = []
        self.restart()

    def restart(self) -> None:
        """Have a new schedule."""
        self.wakes.clear()
        self.schedule = Schedule(
            lambda: self.now * NS_PER_MS + self.fraction,
            lambda: self.date() * NS_PER_MS + self.fraction,
            self.wakes.append,
        )

    def date(self) -> int:
        """Milliseconds since 1970."""
        return self.now + self.offset

    def advance(self, milliseconds: int, after_each: Callable[[], None] | None = None) -> None:
        """Let time pass; each due alarm rings at its own time. `after_each`: called after each schedule run.

        More than RUNS_MAX runs of the schedule at one time are a live-lock.
        """
        end = self.now + milliseconds
        runs = 0
        while self.wakes and self.wakes[-1] <= end:
            runs = runs + 1 if self.wakes[-1] <= self.now else 0
            assert runs < RUNS_MAX, "what is due does not come to an end"
            self.now = max(self.now, self.wakes[-1])
            self.wakes.clear()
            self.schedule.run()
            if after_each is not None:
                after_each()
        self.now = end
