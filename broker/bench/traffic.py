"""The state that all publishers and consumers of a run share: limits, counts, order, latencies.

A *lane* is the messages of one publisher to one queue, numbered from 0 without gaps. The body has the number
as one unsigned 64-bit integer: lane << LANE_SHIFT | sequence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from broker.bench.plan import Plan

LANE_SHIFT: Final = 48
SEQUENCE_MASK: Final = (1 << LANE_SHIFT) - 1

_SUB_BITS: Final = 6  # 64 buckets per power of two: a bucket is at most 1.6 per cent wide


class Checker:
    """Counts losses, duplicates and messages out of order over all lanes.

    `expected` maps a lane to its next number, as long as all messages before have arrived in order and only
    one consumer reads the lane. A receiver of exactly this number may increment it itself. Every other number
    is passed to `see`.
    """

    def __init__(self, lanes: int, shared: bool = False) -> None:
        """Check `lanes` lanes; `shared`: several consumers read one queue, and each receives gaps."""
        self.expected: dict[int, int] = {} if shared else {lane: lane << LANE_SHIFT for lane in range(lanes)}
        self.duplicates = 0
        self.reordered = 0
        self.foreign = 0  # messages of no lane
        self._shared = shared
        self._next = [0] * lanes  # all numbers below have arrived; outdated while `expected` has the lane
        self._ahead: list[set[int]] = [set() for _ in range(lanes)]  # arrived before lower numbers

    def see(self, number: int, last: dict[int, int]) -> None:
        """Check `number` of a body; `last` is the receiver's own highest sequence of each lane."""
        lane, sequence = number >> LANE_SHIFT, number & SEQUENCE_MASK
        if lane >= len(self._next):
            self.foreign += 1
            return
        expected = self.expected.pop(lane, None)
        if expected is not None:
            self._next[lane] = expected & SEQUENCE_MASK
            last[lane] = self._next[lane] - 1
        ahead = self._ahead[lane]
        if sequence < self._next[lane] or sequence in ahead:
            self.duplicates += 1
        else:
            if sequence < last.get(lane, -1):
                self.reordered += 1
            else:
                last[lane] = sequence
            ahead.add(sequence)
        self._advance(lane)

    def received(self, lane: int) -> int:
        """Return how many different messages of `lane` have arrived."""
        expected = self.expected.get(lane)
        if expected is not None:
            return expected & SEQUENCE_MASK
        return self._next[lane] + len(self._ahead[lane])

    def lost(self, published: list[int]) -> int:
        """Return how many of the messages published on each lane have not arrived."""
        return sum(count - self.received(lane) for lane, count in enumerate(published))

    def _advance(self, lane: int) -> None:
        ahead, sequence = self._ahead[lane], self._next[lane]
        while sequence in ahead:
            ahead.remove(sequence)
            sequence += 1
        self._next[lane] = sequence
        if not ahead and not self._shared:
            self.expected[lane] = lane << LANE_SHIFT | sequence


class Histogram:
    """Counts non-negative integers (nanoseconds here) in buckets that grow with the value."""

    def __init__(self) -> None:
        self.count = 0
        self.greatest = 0
        self._buckets: dict[int, int] = {}

    def add(self, value: int, times: int = 1) -> None:
        """Count `value` `times` times. A negative value, of a clock that was set back, counts as 0."""
        value = max(value, 0)
        shift = max(value.bit_length() - _SUB_BITS - 1, 0)
        bucket = (shift << _SUB_BITS) + (value >> shift)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + times
        self.count += times
        self.greatest = max(self.greatest, value)

    def percentile(self, percent: float) -> int:
        """Return the value that `percent` per cent of all values do not exceed, within a bucket's width."""
        wanted = self.count * percent / 100
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(_upper_bound(bucket), self.greatest)
        return self.greatest


def _upper_bound(bucket: int) -> int:
    shift = max((bucket >> _SUB_BITS) - 1, 0)
    return ((bucket - (shift << _SUB_BITS) + 1) << shift) - 1


class Traffic:
    """The counts of a run, and the publishers that wait for progress. Latencies are in nanoseconds."""

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
        self.last_change = 0  # monotonic nanoseconds of the last receipt or confirm
        self.settled = asyncio.Event()  # all messages have arrived, or a connection failed
        self._count = plan.count
        self._in_flight = plan.bounded_in_flight
        self._expects_receipts = plan.consumers > 0
        self._expects_confirms = plan.confirm > 0
        self._waiting: set[Callable[[], None]] = set()

    @property
    def counts(self) -> tuple[int, int, int]:
        """Return the published, confirmed and received messages; the run continues while these change."""
        return self.published, self.confirmed, self.received

    def allowance(self) -> int:
        """Return how many messages a publisher may publish now."""
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
        """Count `count` received messages."""
        self.received += count
        self.last_change = now
        if self._waiting and self.publishing:
            waiting, self._waiting = self._waiting, set()
            for resume in waiting:
                resume()
        elif not self.publishing:
            self._check_settled()

    def confirmed_more(self, count: int, now: int) -> None:
        """Count `count` more confirms of the broker."""
        self.confirmed += count
        self.last_change = now
        if not self.publishing:
            self._check_settled()

    def stop(self) -> None:
        """Stop publishing; the published messages are still awaited."""
        self.publishing = False
        self._check_settled()

    def _check_settled(self) -> None:
        received = not self._expects_receipts or self.received >= self.published
        confirmed = not self._expects_confirms or self.confirmed >= self.published
        if received and confirmed:
            self.settled.set()
