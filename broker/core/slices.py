"""Work on very many entries, which goes in slices so that no turn takes long."""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from broker.core.entry import QueueEntry
from broker.core.schedule import Alarm, Schedule


@mypyc_attr(allow_interpreted_subclasses=True)
class Slices(Alarm):
    """A subclass does what is to be done to `entries`, `most` of them in one turn, in `take`.

    `begin` does the first slice at once; the others have turns to come.
    """

    def __init__(self, entries: list[QueueEntry], most: i64, schedule: Schedule) -> None:
        super().__init__()
        self._entries = entries
        self._most = most
        self._schedule = schedule
        self._done: i64 = 0

    def take(self, entries: list[QueueEntry]) -> None:
        """Do it to these."""
        raise NotImplementedError

    def begin(self) -> None:
        """Do the first slice."""
        self.ring()

    def ring(self) -> None:
        """Do another slice (Alarm)."""
        first = self._done
        self._done += self._most
        if self._done < len(self._entries):
            self._schedule.set(self, self._schedule.now())
        self.take(self._entries[first : self._done])
