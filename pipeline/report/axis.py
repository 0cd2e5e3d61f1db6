"""The axis of time that all plots of a page have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Final, NamedTuple

from pipeline.jobs.audit import Audit

BUCKETS: Final = 96
TICKS: Final = 8
DAY: Final = 86_400
STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, DAY)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Axis(NamedTuple):
    """`buckets` of `width` seconds; `first`: microseconds since 1970 where the first one begins."""

    first: int
    width: float
    buckets: int

    def time(self, place: float) -> datetime:
        """When a place is; whole numbers are where buckets begin."""
        return EPOCH + timedelta(microseconds=self.first + round(place * self.width * 1e6))

    def place(self, time: datetime) -> float:
        """Where a time is."""
        micros = (time - EPOCH) // timedelta(microseconds=1)
        return (micros - self.first) / 1e6 / self.width

    def ticks(self) -> list[tuple[float, str]]:
        """Places of round times, TICKS or fewer, and what is written there."""
        length = self.width * self.buckets
        step = next((each for each in STEPS if length / each <= TICKS), DAY * ceil(length / (DAY * TICKS)))
        at = -(-self.first // 1_000_000) // step * step
        ticks = []
        while (place := (at - self.first / 1e6) / self.width) < self.buckets:
            if place >= 0:
                ticks.append((place, _label(EPOCH + timedelta(seconds=at), step)))
            at += step
        return ticks


def axis_of(found: Audit) -> Axis | None:
    """BUCKETS buckets over the time of all events, or fewer of a second each; None: there are no events."""
    if found.first is None or found.last is None:
        return None
    width = max(1.0, (found.last - found.first + 1) / 1e6 / BUCKETS)
    return Axis(found.first, width, int((found.last - found.first) / 1e6 / width) + 1)


def _label(time: datetime, step: int) -> str:
    if time.hour == time.minute == time.second == 0:
        return f"{time.day} {time:%b}"
    return f"{time:%H:%M:%S}" if step < 60 else f"{time:%H:%M}"
