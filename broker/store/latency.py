"""A latency histogram of plain integers, read by the metrics collector."""

from typing import Final, final

from mypy_extensions import i64

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


@final
class Latency:
    """A histogram of durations: `counts[i]` for at most `bounds[i]` seconds, the last slot for longer ones.

    The counts are per slot, not cumulative; `sum` is in seconds.
    """

    def __init__(self) -> None:
        self.bounds = BOUNDS
        self.counts = [0] * (len(BOUNDS) + 1)
        self.count: i64 = 0
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        slot = 0
        while slot < len(BOUNDS) and seconds > BOUNDS[slot]:
            slot += 1
        self.counts[slot] += 1
        self.count += 1
        self.sum += seconds
