"""A latency histogram of fixed relative precision and small, bounded memory."""

from typing import Final

_SUB_BITS: Final = 6  # 64 buckets per power of two: a bucket is at most 1.6 per cent wide


class Histogram:
    """Counts non-negative integers (nanoseconds here) in buckets that grow with the value."""

    def __init__(self) -> None:
        self.count = 0
        self.greatest = 0
        self._buckets: dict[int, int] = {}

    def add(self, value: int, times: int = 1) -> None:
        """Count `value` `times` times; a clock that stepped back counts as 0."""
        value = max(value, 0)
        shift = max(value.bit_length() - _SUB_BITS - 1, 0)
        bucket = (shift << _SUB_BITS) + (value >> shift)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + times
        self.count += times
        self.greatest = max(self.greatest, value)

    def percentile(self, percent: float) -> int:
        """The value, within a bucket's width, that `percent` per cent of all values do not exceed."""
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
