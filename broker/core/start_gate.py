"""Not serving anybody before there are enough consumers. [Artemis consumers-before-dispatch]"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from broker.core.arguments import CONSUMERS_BEFORE_DISPATCH, DELAY_BEFORE_DISPATCH, number_argument
from broker.core.consumer import BLOCKED_BY_GATE
from broker.core.schedule import Alarm, Schedule
from broker.core.waiting import clear_blocker

if TYPE_CHECKING:
    from broker.core.queue import Queue


@final
class StartGate(Alarm):
    """Shut until `wanted` acquiring consumers are attached, or `delay` ms after the first of them came.

    0: their number does not open it; -1: time does not. It is shut again when none of them is left. Browsers
    and basic.get are not concerned.
    """

    def __init__(self, queue: Queue, schedule: Schedule, wanted: i64, delay: i64) -> None:
        super().__init__()
        self.is_open: bool = False
        self._queue = queue
        self._schedule = schedule
        self._wanted = wanted
        self._delay = delay
        self._count: i64 = 0

    def attached(self) -> None:
        """One more that acquires is attached, behind the gate if it is shut."""
        self._count += 1
        if self.is_open:
            return
        if 0 < self._wanted <= self._count:
            self._open()
        elif self._count == 1 and self._delay >= 0:
            self._schedule.set(self, self._schedule.now() + self._delay)

    def detached(self) -> None:
        """One that acquired is gone."""
        self._count -= 1
        if self._count == 0:
            self.is_open = False
            self._schedule.cancel(self)

    def ring(self) -> None:
        """The first one has waited long enough (Alarm)."""
        self._open()

    def stop(self) -> None:
        """The queue is deleted."""
        self._schedule.cancel(self)

    def _open(self) -> None:
        self.is_open = True
        self._schedule.cancel(self)
        queue = self._queue
        clear_blocker(queue, queue.manager.takers(), BLOCKED_BY_GATE)


def declared_gate(queue: Queue, schedule: Schedule) -> StartGate | None:
    """The gate that the arguments of a new queue ask for."""
    wanted = number_argument(queue.arguments, CONSUMERS_BEFORE_DISPATCH, 0)
    delay = number_argument(queue.arguments, DELAY_BEFORE_DISPATCH, -1)
    return StartGate(queue, schedule, wanted, delay) if wanted > 0 or delay >= 0 else None
