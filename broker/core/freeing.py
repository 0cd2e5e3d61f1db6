"""Groups that become free in slices: one consumer may have owned very many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.consumer import BLOCKED_BY_GROUPS, REMOVED, QueueConsumer
from broker.core.group import Group, Holding
from broker.core.schedule import Alarm
from broker.core.waiting import clear_blocker, suspend

if TYPE_CHECKING:
    from broker.core.groups import Groups

SLICE: Final[i64] = 2000  # groups that are looked at in one turn: a millisecond or two


def lets_go(groups: Groups, owner: QueueConsumer) -> bool:
    """Whether whatever `owner` has is to be free as soon as nothing of it is in flight."""
    if owner.state == REMOVED or owner.getting:
        return True
    holding = owner.holding
    return holding is not None and holding.moves != groups.moves


def let_go(groups: Groups, holdings: list[Holding | None]) -> None:
    """Shut all groups of `holdings`, and free each as soon as nothing of it is in flight.

    If they are many, they have turns to come.
    """
    count: i64 = 0
    for holding in holdings:
        if holding is not None:
            count += len(holding.groups)
    if count > groups.most or groups.later is not None:
        _later(groups).add_holdings(holdings)
        return
    shut: list[Group] = []
    for holding in holdings:
        if holding is not None:
            holding.moves = groups.moves
            shut += holding.let_go(groups.most)
    groups.rest(shut)


def takes_time(groups: Groups, calm: list[Group]) -> bool:
    """Have `calm`, which may be free now, have turns to come if they are many; False: they are few."""
    if len(calm) <= groups.most and groups.later is None:
        return False
    _later(groups).add(calm)
    return True


def _later(groups: Groups) -> FreedLater:
    """What has turns to come.

    As long as it takes no attached consumer is served, so to them all are free at once and order is as ever.
    A basic.get may come between, and finds what is free by then.
    """
    later = groups.later
    if later is None:
        later = groups.later = FreedLater(groups)
        groups.pauses = True
        queue = groups.queue
        for consumer in queue.manager.takers():
            suspend(queue, consumer, BLOCKED_BY_GROUPS)  # nobody takes over
    return later


@final
class FreedLater(Alarm):
    """Groups that may be free, and have turns to come: until then each is its owner's, who gets nothing.

    Nothing is done to each of them before its turn, and what had its turn is let go of at once: to count or
    mark all, or to let go of all, takes long too.
    """

    def __init__(self, groups: Groups) -> None:
        super().__init__()
        self._groups = groups
        self._holdings: dict[Holding, None] = {}  # all groups of which are to be shut
        self._calm: list[list[Group]] = []  # the last one first, and so in each of them

    def add(self, calm: list[Group]) -> None:
        """Have these, of which nothing is in flight, have their turns; the list is taken over."""
        if calm:
            calm.reverse()
            self._calm.insert(0, calm)
            self._set()

    def add_holdings(self, holdings: list[Holding | None]) -> None:
        """Have the groups of these have their turns."""
        for holding in holdings:
            if holding is not None:
                holding.moves = -1
                self._holdings[holding] = None
        self._set()

    def waits(self, group: Group) -> bool:
        """Whether `group` has a turn to come; looks at each that has."""
        if any(group in holding.groups for holding in self._holdings):
            return True
        return any(group in calm for calm in self._calm)

    def ring(self) -> None:
        """Look at another slice (Alarm)."""
        groups = self._groups
        queue = groups.queue
        found = self._shut(groups.most) if self._holdings else self._next(groups.most)
        if not queue.deleted:
            groups.rest(found)
        if self._holdings or self._calm:
            self._set()
            return
        groups.later = None
        groups.pauses = False
        clear_blocker(queue, queue.manager.takers(), BLOCKED_BY_GROUPS)

    def _shut(self, most: i64) -> list[Group]:
        """Shut so many."""
        shut: list[Group] = []
        while self._holdings and len(shut) < most:
            holding, _ = self._holdings.popitem()
            shut += holding.let_go(most - len(shut))
            if not holding.is_empty():
                self._holdings[holding] = None
                break
            holding.moves = self._groups.moves
        return shut

    def _next(self, most: i64) -> list[Group]:
        """So many of those of which nothing was in flight."""
        calm = self._calm[-1]
        found = calm[-most:]
        found.reverse()
        del calm[-most:]
        if not calm:
            self._calm.pop()
        return found

    def _set(self) -> None:
        schedule = self._groups.schedule
        schedule.set(self, schedule.now())
