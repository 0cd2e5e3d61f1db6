"""Groups that become free in slices: one consumer may have owned very many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.consumer import BLOCKED_BY_GROUPS
from broker.core.group import Group
from broker.core.schedule import Alarm
from broker.core.waiting import clear_blocker, suspend

if TYPE_CHECKING:
    from broker.core.groups import Groups

SLICE: Final[i64] = 2000  # groups that are looked at in one turn: a millisecond or two


def takes_time(groups: Groups, found: list[Group]) -> bool:
    """Have `found`, which may be free now, have turns to come if they are many; False: they are few.

    As long as it takes no attached consumer is served, so to them all are free at once and order is as ever.
    A basic.get may come between, and finds what is free by then.
    """
    later = groups.later
    if later is None:
        if len(found) <= groups.most:
            return False
        later = groups.later = FreedLater(groups)
        groups.pauses = True
        queue = groups.queue
        for consumer in queue.manager.takers():
            suspend(queue, consumer, BLOCKED_BY_GROUPS)  # nobody takes over
    later.add(found)
    return True


@final
class FreedLater(Alarm):
    """Groups that may be free, and have turns to come: until then each is its owner's, who gets nothing."""

    def __init__(self, groups: Groups) -> None:
        super().__init__()
        self._groups = groups
        self._waiting: list[Group] = []
        self._done: i64 = 0

    def add(self, groups: list[Group]) -> None:
        """Have these have their turns after the others."""
        self._waiting += groups
        self._set()

    def waits(self, group: Group) -> bool:
        """Whether `group` has a turn to come; looks at each that has."""
        return group in self._waiting[self._done :]

    def ring(self) -> None:
        """Look at another slice (Alarm)."""
        groups = self._groups
        queue = groups.queue
        first = self._done
        self._done += groups.most
        if not queue.deleted:
            groups.rest(self._waiting[first : self._done])
            if self._done < len(self._waiting):
                self._set()
                return
        groups.later = None
        groups.pauses = False
        clear_blocker(queue, queue.manager.takers(), BLOCKED_BY_GROUPS)

    def _set(self) -> None:
        schedule = self._groups.schedule
        schedule.set(self, schedule.now())
