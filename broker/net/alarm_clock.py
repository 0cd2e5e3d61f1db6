"""The event loop's side of a Schedule: it tells the time and calls when something is due."""

from __future__ import annotations

import asyncio
import time
from typing import final

from broker.core.schedule import Schedule


@final
class AlarmClock:
    """Drives the `schedule` that it makes with one timer of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self.schedule = Schedule(self._now, _date, self._wake)

    def _now(self) -> int:
        # not the loop's own time, which stands still during a turn
        return time.monotonic_ns() // 1_000_000

    def _wake(self, due: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0, due - self._now()) / 1000, self._run)

    def _run(self) -> None:
        self._timer = None
        self.schedule.run()


def _date() -> int:
    return time.time_ns() // 1_000_000
