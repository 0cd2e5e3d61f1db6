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

    def __init__(self, queue: Queue, schedule: Schedule) -> None:
        super().__init__()
        self._queue = queue
        self._schedule = schedule
        self._wanted: i64 = 0
        self._delay: i64 = -1
        self._count: i64 = sum(1 for consumer in queue.manager.all if consumer.acquires)
        self.is_open: bool = self._count > 0  # these are served

    def apply(self, wanted: i64, delay: i64) -> None:
        """Open for so many from now on, or after so long."""
        if wanted == self._wanted and delay == self._delay:
            return
        self._wanted = wanted
        self._delay = delay
        if self.is_open or self._count == 0:
            return
        if 0 < wanted <= self._count:
            self.open()
        elif delay >= 0:
            self._schedule.set(self, self._schedule.now() + delay)
        else:
            self._schedule.cancel(self)

    def attached(self) -> None:
        """One more that acquires is attached, behind the gate if it is shut."""
        self._count += 1
        if self.is_open:
            return
        if 0 < self._wanted <= self._count:
            self.open()
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
        self.open()

    def stop(self) -> None:
        """The queue is deleted."""
        self._schedule.cancel(self)

    def open(self) -> None:
        """Have everybody who waits be served."""
        self.is_open = True
        self._schedule.cancel(self)
        queue = self._queue
        clear_blocker(queue, queue.manager.takers(), BLOCKED_BY_GATE)


def apply_gate(queue: Queue, schedule: Schedule) -> None:
    """Have the gate be as the queue's arguments say now, `queue.effective`; it stays open if it is."""
    manager = queue.manager
    wanted = number_argument(queue.effective, CONSUMERS_BEFORE_DISPATCH, 0)
    delay = number_argument(queue.effective, DELAY_BEFORE_DISPATCH, -1)
    gate = manager.gate
    if wanted > 0 or delay >= 0:
        if gate is None:
            gate = manager.gate = StartGate(queue, schedule)
        gate.apply(wanted, delay)
    elif gate is not None:
        manager.gate = None
        if not gate.is_open:
            gate.open()
