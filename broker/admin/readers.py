"""How far programs are that read in bulk, as they report it: kept in memory, for a while, and bounded."""

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

READERS_MAX: Final = 1000
KEPT_S: Final = 600.0
"""For how long a report is kept without another one."""


class Position(NamedTuple):
    """A partition: a reader goes on with the offset `next`, and `end` is behind the last message there."""

    queue: str
    partition: int
    next: int
    end: int

    @property
    def lag(self) -> int:
        """How many messages it has still to read."""
        return max(self.end - self.next, 0)


class Report(NamedTuple):
    """A reader's report, and the time of the clock when it came; `user`: its sender."""

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
        """Keep a report instead of the last one of this name; false: there are too many readers."""
        self._drop_old()
        if (vhost, name) not in self._reports and len(self._reports) >= READERS_MAX:
            return False
        self._reports[vhost, name] = Report(vhost, name, user, positions, self._clock())
        return True

    def find(self, vhost: str, name: str) -> Report | None:
        """The report of a reader."""
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
        """How many seconds ago it came."""
        return self._clock() - report.at

    def _drop_old(self) -> None:
        now = self._clock()
        for key in [key for key, each in self._reports.items() if now - each.at > KEPT_S]:
            del self._reports[key]
