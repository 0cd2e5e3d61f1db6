"""Histograms of durations, in plain integers, and the stopwatches that time a part of what happens.

To time every message would cost two readings of the clock each. A stopwatch times one thing at a time, and of
SAMPLE numbered things at most one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

NS_PER_SECOND: Final = 1e9

# the annotation keeps mypyc from unboxing the tuple, which it then takes for unset
BOUNDS: Final[tuple[float, ...]] = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
)
"""For what the disk and the event loop do, in seconds."""

WAITS: Final[tuple[float, ...]] = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 86400.0)
"""For what clients and queues do, in seconds."""

SAMPLE: Final[i64] = 63
"""A thing is timed if its number has only the lowest one of these bits, so the first one is."""

GIVE_UP_NS: Final[i64] = 86_400_000_000_000
"""The time after which a stopwatch takes another thing, in nanoseconds."""


@final
class Latency:
    """A histogram of durations: `counts[i]` for at most `bounds[i]` seconds, the last slot for longer ones.

    The counts are per slot, not cumulative; `sum` is in seconds.
    """

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        slot = 0
        bounds = self.bounds
        while slot < len(bounds) and seconds > bounds[slot]:
            slot += 1
        self.counts[slot] += 1
        self.sum += seconds


@final
class Stopwatch:
    """Times things by their numbers, from 1 on, and counts the durations in a histogram.

    `number`: the thing that is timed now; 0: none. `clock` returns nanoseconds.
    """

    def __init__(self, durations: Latency, clock: Callable[[], int]) -> None:
        self.number: i64 = 0
        self._since: i64 = 0
        self._durations = durations
        self._clock = clock

    def start(self, number: i64) -> None:
        """Time the thing with this number, unless another one is being timed."""
        now: i64 = self._clock()
        if self.number == 0 or now - self._since > GIVE_UP_NS:
            self.number = number
            self._since = now

    def stop(self) -> None:
        """Count the duration of the thing that is being timed."""
        nanoseconds = self._clock() - int(self._since)
        self._durations.observe(nanoseconds / NS_PER_SECOND)
        self.number = 0

    def cancel(self) -> None:
        """Time nothing: what was being timed has ended in another way."""
        self.number = 0


SIZES: Final[tuple[float, ...]] = (100.0, 1e3, 1e4, 1e5, 1e6, 1e7, 5e7, 1e8)
"""The bounds of message sizes, in bytes. [RabbitMQ rabbit_msg_size_metrics]"""


@final
class MessageSizes:
    """A histogram of the sizes of messages, as `Latency` has durations, at the cost of a few comparisons."""

    def __init__(self) -> None:
        self.bounds = SIZES
        self.total: i64 = 0
        self._to_100: i64 = 0
        self._to_1k: i64 = 0
        self._to_10k: i64 = 0
        self._to_100k: i64 = 0
        self._larger = [0] * (len(SIZES) - 3)

    def observe(self, size: i64) -> None:
        """Count a message with a body of `size` bytes."""
        self.total += size
        if size <= 100:
            self._to_100 += 1
        elif size <= 1000:
            self._to_1k += 1
        elif size <= 10_000:
            self._to_10k += 1
        elif size <= 100_000:
            self._to_100k += 1
        else:
            self._larger[bisect_left(SIZES, int(size)) - 4] += 1

    @property
    def counts(self) -> list[int]:
        """The number of messages up to each bound, and of larger ones."""
        usual = (self._to_100, self._to_1k, self._to_10k, self._to_100k)
        return [*map(int, usual), *self._larger]

    @property
    def sum(self) -> float:
        """The sum of all sizes."""
        return float(self.total)
