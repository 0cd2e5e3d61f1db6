"""The gate of a queue, shut until enough consumers are attached, and its dispatch order.

A consumer that waits behind the gate is NOT_INTERESTED, and is never notified.

[ActiveMQ consumersBeforeDispatchStarts, timeBeforeDispatchStarts, strictOrderDispatch]
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from broker.core.arguments.queue import (
    CONSUMERS_BEFORE_DISPATCH,
    DELAY_BEFORE_DISPATCH,
    DISPATCH,
    STRICT,
    number_argument,
)
from broker.core.queues.consumer import BLOCKED_BY_GATE
from broker.core.queues.consumers import clear_blocker
from broker.core.queues.hooks import GateHook
from broker.core.queues.queue import Queue
from broker.core.queues.virtual_host import QueueHost
from broker.core.schedule import Schedule


@final
class StartGate(GateHook):
    """A gate, shut until `wanted` acquiring consumers are attached, or `delay` ms after the first of them.

    `wanted` 0: the number of consumers does not open the gate. `delay` -1: time does not open the gate. The
    gate shuts again when no acquiring consumer is left. Browsers and basic.get do not count.
    """

    def __init__(self, queue: Queue, schedule: Schedule) -> None:
        super().__init__()
        self._queue = queue
        self._schedule = schedule
        self._wanted: i64 = 0
        self._delay: i64 = -1
        self._count: i64 = sum(1 for consumer in queue.manager.all if consumer.acquires)
        self.is_open: bool = self._count > 0  # attached consumers are served already

    def apply(self, wanted: i64, delay: i64) -> None:
        """Apply a new number and a new delay."""
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

    def note_attached(self) -> None:
        """Count a new acquiring consumer, which waits behind the gate if it is shut."""
        self._count += 1
        if self.is_open:
            return
        if 0 < self._wanted <= self._count:
            self.open()
        elif self._count == 1 and self._delay >= 0:
            self._schedule.set(self, self._schedule.now() + self._delay)

    def note_detached(self) -> None:
        """Uncount an acquiring consumer that was detached."""
        self._count -= 1
        if self._count == 0:
            self.is_open = False
            self._schedule.cancel(self)

    def do_due_work(self) -> None:
        """Open the gate: the first consumer has waited long enough."""
        self.open()

    def stop(self) -> None:
        """Cancel the task: the queue is deleted."""
        self._schedule.cancel(self)

    def open(self) -> None:
        """Open the gate: all waiting consumers are served."""
        self.is_open = True
        self._schedule.cancel(self)
        queue = self._queue
        clear_blocker(queue, queue.manager.acquiring_consumers(), BLOCKED_BY_GATE)


def _dispatch_arguments(queue: Queue) -> dict[str, object]:
    """Return the effective arguments that concern consumers, with those of the partitioned queue."""
    member = queue.member
    return queue.effective if member is None else member.arguments | queue.effective


def _apply_gate(queue: Queue, schedule: Schedule) -> None:
    """Set the gate by the queue's effective arguments; an open gate stays open."""
    manager = queue.manager
    arguments = _dispatch_arguments(queue)
    wanted = number_argument(arguments, CONSUMERS_BEFORE_DISPATCH, 0)
    delay = number_argument(arguments, DELAY_BEFORE_DISPATCH, -1)
    gate = manager.gate
    if wanted > 0 or delay >= 0:
        if gate is None:
            gate = manager.gate = StartGate(queue, schedule)
        gate.apply(wanted, delay)
    elif gate is not None:
        manager.gate = None
        if not gate.is_open:
            gate.open()


def apply(queue: Queue, host: QueueHost) -> None:
    """Apply the queue's effective arguments for its gate and its dispatch order.

    Consumers that are served already stay served. A new dispatch order takes effect when the queue has no
    acquiring consumer.
    """
    _apply_gate(queue, host.schedule)
    queue.manager.strict = _dispatch_arguments(queue).get(DISPATCH) == STRICT
