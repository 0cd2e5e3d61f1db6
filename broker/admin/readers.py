"""The progress of programs that read in bulk, as they report it: kept in memory for a while, and limited."""

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

READERS_MAX: Final = 1000
KEPT_S: Final = 600.0
"""Seconds for which a report is kept without a newer report."""


class Position(NamedTuple):
    """A partition: the reader reads the offset `next` next, and `end` is behind the last message."""

    queue: str
    partition: int
    next: int
    end: int

    @property
    def lag(self) -> int:
        """The number of messages that the reader has not read yet."""
        return max(self.end - self.next, 0)


class Report(NamedTuple):
    """A reader's report, and the time of its arrival; `user` sent the report."""

    vhost: str
    name: str
    user: str
    positions: Sequence[Position]
    at: float

    @property
    def lag(self) -> int:
        """The lag of all partitions together."""
        return sum(each.lag for each in self.positions)


class Readers:
    """The last report of each reader, by virtual host and name."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reports: dict[tuple[str, str], Report] = {}

    def take(self, vhost: str, name: str, user: str, positions: Sequence[Position]) -> bool:
        """Replace the last report of this name; False if there are too many readers."""
        self._drop_old()
        if (vhost, name) not in self._reports and len(self._reports) >= READERS_MAX:
            return False
        self._reports[vhost, name] = Report(vhost, name, user, positions, self._clock())
        return True

    def find(self, vhost: str, name: str) -> Report | None:
        """Return the report of a reader; None without one."""
        self._drop_old()
        return self._reports.get((vhost, name))

    def forget(self, report: Report) -> None:
        """Drop a report."""
        self._reports.pop((report.vhost, report.name), None)

    def all(self) -> list[Report]:
        """All reports."""
        self._drop_old()
        return list(self._reports.values())

    def age(self, report: Report) -> float:
        """Return the age of a report in seconds."""
        return self._clock() - report.at

    def _drop_old(self) -> None:
        now = self._clock()
        for key in [key for key, each in self._reports.items() if now - each.at > KEPT_S]:
            del self._reports[key]
