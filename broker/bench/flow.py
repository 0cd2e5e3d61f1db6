"""What all publishers and consumers of a run share: how much may still be sent, and what has come."""

import asyncio
from collections.abc import Callable

from broker.bench.checker import Checker
from broker.bench.histogram import Histogram
from broker.bench.plan import Plan


class Flow:
    """Counts of the run, and who waits for them to move. Latencies are in nanoseconds."""

    def __init__(self, plan: Plan) -> None:
        lanes = plan.lanes
        self.checker = Checker(len(lanes), shared=plan.consumers > plan.queues)
        self.receipt = Histogram()  # publish to receipt
        self.confirmation = Histogram()  # publish to confirm
        self.published = 0
        self.confirmed = 0
        self.received = 0
        self.sequences = [0] * len(lanes)  # next number of each lane
        self.publishing = True
        self.last_change = 0  # monotonic nanoseconds: when something was last received or confirmed
        self.settled = asyncio.Event()  # publishing is over and all has come, or a connection failed
        self._count = plan.count
        self._in_flight = plan.bounded_in_flight
        self._expects_receipts = plan.consumers > 0
        self._expects_confirms = plan.confirm > 0
        self._waiting: set[Callable[[], None]] = set()

    @property
    def counts(self) -> tuple[int, int, int]:
        """What has been published, confirmed and received: while this changes, the run goes on."""
        return self.published, self.confirmed, self.received

    def allowance(self) -> int:
        """How many messages may be published now by whoever asks."""
        if not self.publishing:
            return 0
        allowed = 1 << 30
        if self._count is not None:
            allowed = self._count - self.published
            if allowed <= 0:
                self.stop()
                return 0
        if self._in_flight:
            allowed = min(allowed, self._in_flight - self.published + self.received)
        return allowed

    def wait(self, resume: Callable[[], None]) -> None:
        """Call `resume` once when messages have been received and more may be published."""
        self._waiting.add(resume)

    def took(self, count: int, now: int) -> None:
        """`count` messages were received."""
        self.received += count
        self.last_change = now
        if self._waiting and self.publishing:
            waiting, self._waiting = self._waiting, set()
            for resume in waiting:
                resume()
        elif not self.publishing:
            self._check_settled()

    def confirmed_more(self, count: int, now: int) -> None:
        """The broker confirmed `count` messages more."""
        self.confirmed += count
        self.last_change = now
        if not self.publishing:
            self._check_settled()

    def stop(self) -> None:
        """No more publishing; what was published is still awaited."""
        self.publishing = False
        self._check_settled()

    def _check_settled(self) -> None:
        received = not self._expects_receipts or self.received >= self.published
        confirmed = not self._expects_confirms or self.confirmed >= self.published
        if received and confirmed:
            self.settled.set()
