"""The event loop's side of a Schedule: provides the time, and runs the schedule when an alarm is due."""

from __future__ import annotations

import asyncio
import time
from contextvars import Context
from typing import final

from broker.core.schedule import NS_PER_MS, Schedule


@final
class AlarmClock:
    """The clock of a `schedule`, which the clock creates and drives by a single timer of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._context = Context()  # alarms are not part of the request that sets the first of them
        self.schedule = Schedule(time.monotonic_ns, time.time_ns, self._wake)

    def stop(self) -> None:
        """Ring no alarm any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self, due: int) -> None:
        if self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        # not by the loop's own time, which stands still during a turn
        wait = max(0, due * NS_PER_MS - time.monotonic_ns())
        self._timer = self._loop.call_later(
            -(-wait // NS_PER_MS) / 1000, self._run, context=self._context
        )  # rounded up, because the loop may round down

    def _run(self) -> None:
        self._timer = None
        self.schedule.run()
