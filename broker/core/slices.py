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

    def reach(self, first: i64) -> i64:
        """Where the slice ends that begins with the entry at `first`."""
        return first + self._most

    def take(self, entries: list[QueueEntry]) -> None:
        """Do it to these."""
        raise NotImplementedError

    def begin(self) -> None:
        """Do the first slice."""
        self.ring()

    def is_over(self) -> bool:
        """Whether every slice has had its turn, or has it now."""
        return self._done >= len(self._entries)

    def rest(self) -> list[QueueEntry]:
        """Those whose turn is to come; it does not come any more."""
        rest = self._entries[self._done :]
        self._done = len(self._entries)
        self._schedule.cancel(self)
        return rest

    def ring(self) -> None:
        """Do another slice (Alarm)."""
        first = self._done
        self._done = self.reach(first)
        if not self.is_over():
            self._schedule.set(self, self._schedule.now())
        self.take(self._entries[first : self._done])
