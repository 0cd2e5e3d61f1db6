"""Leases: the time limit after which an unsettled delivery is taken back. [RabbitMQ consumer_timeout]

Unlike in RabbitMQ, only the delivery ends: its message is requeued. The consumer and its session continue,
and a late settle is no error.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.arguments.queue import CONSUMER_TIMEOUT
from broker.core.queues.state import QueueState
from broker.core.schedule import Chore, Schedule

SLICE: Final[i64] = 1000  # leases that end in one turn: about a millisecond
TRIM: Final = 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class LeaseHolder:
    """The holder of deliveries on lease, each with a number: a session and its delivery tags."""

    def is_unsettled(self, number: i64) -> bool:
        """Whether this delivery is still to be settled."""
        raise NotImplementedError

    def on_leases_ended(self, numbers: list[i64]) -> None:
        """Release these deliveries, oldest first and all unsettled."""
        raise NotImplementedError


@final
class Lease(Chore):
    """The deliveries of one holder with the same time limit, `milliseconds`.

    Leases end in the order in which they began, so one task for the first lease is enough. Settling costs
    nothing: settled deliveries are skipped when their time has come, or swept when there are too many.
    """

    def __init__(self, schedule: Schedule, holder: LeaseHolder, milliseconds: i64) -> None:
        super().__init__(schedule, SLICE)
        self.milliseconds = milliseconds
        self._holder = holder
        self._ends: deque[tuple[i64, i64]] = deque()  # time and number
        self._trim_at: i64 = TRIM

    def begin(self, number: i64) -> None:
        """Begin the lease of a delivery, whose number is higher than all before it."""
        ends = self._ends
        if len(ends) >= self._trim_at:
            self._trim()
            ends = self._ends
        end = self.schedule.after(self.milliseconds)
        ends.append((end, number))
        if self.due == 0:
            self.schedule.set(self, end)

    def step(self, budget: i64) -> bool:
        """End up to `budget` of the leases whose time is over."""
        ends = self._ends
        holder = self._holder
        now = self.schedule.now()
        ended: list[i64] = []
        while ends and len(ended) < budget:
            end, number = ends[0]
            unsettled = holder.is_unsettled(number)
            if unsettled and end > now:
                break
            ends.popleft()
            if unsettled:
                ended.append(number)
        if ends:
            self.schedule.set(self, ends[0][0])
        if ended:
            holder.on_leases_ended(ended)
        return False

    def is_idle(self) -> bool:
        """Whether no delivery is on lease any more."""
        return all(not self._holder.is_unsettled(number) for _, number in self._ends)

    def stop(self) -> None:
        """Forget all leases: the holder has settled or released everything."""
        self.schedule.cancel(self)
        self._ends.clear()

    def _trim(self) -> None:
        """Forget settled deliveries; O(1) amortised, because it is done when their number has doubled."""
        holder = self._holder
        self._ends = deque([pair for pair in self._ends if holder.is_unsettled(pair[1])])
        self._trim_at = 2 * len(self._ends) + TRIM


def lease_milliseconds(queue: QueueState, asked: object, otherwise: i64) -> i64:
    """Return the time limit for deliveries of `queue`; 0: none.

    The consumer's own limit, `asked` (None: none), comes first. Then the queue's arguments and policies
    apply, and then the broker's limit, `otherwise`.
    """
    value = queue.effective.get(CONSUMER_TIMEOUT) if asked is None else asked
    if value is None:
        return otherwise
    assert isinstance(value, int), "arguments are checked before they are used"
    milliseconds: int = value
    return milliseconds
