"""Who publishes to one queue or exchange and is to hear when that is gone."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.schedule import Alarm, Schedule

if TYPE_CHECKING:
    from broker.core.exchange import Exchange
    from broker.core.lifespan import Lifespan
    from broker.core.queue import Queue

SLICE: Final[i64] = 50  # who is told in one turn, each of which may have a frame to write


@mypyc_attr(allow_interpreted_subclasses=True)
class Dependent:
    """Somebody whose node may go. `node`: it."""

    def __init__(self, node: Queue | Exchange) -> None:
        self.node = node

    def node_deleted(self) -> None:
        """It is deleted; in a turn of its own, never from inside the step that deletes it."""
        raise NotImplementedError


@final
class Dependents(Alarm):
    """Those of one virtual host, by what they depend on, so that a deletion concerns those alone.

    They hear of it in slices: there may be a hundred thousand. `lifespans`: of queues that in turn end when
    nobody depends on them.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._schedule = schedule
        self.lifespans: dict[Queue | Exchange, Lifespan] = {}
        self._by_node: dict[Queue | Exchange, dict[Dependent, None]] = {}
        self._gone: deque[Queue | Exchange] = deque()

    def add(self, dependent: Dependent) -> None:
        """Have it hear when its node is deleted, which is there now."""
        self._by_node.setdefault(dependent.node, {})[dependent] = None

    def remove(self, dependent: Dependent) -> None:
        """It does not want to hear of it any more, or has heard."""
        found = self._by_node.get(dependent.node)
        if found is not None:
            found.pop(dependent, None)
            if not found:
                del self._by_node[dependent.node]
                self.left(dependent.node)

    def has(self, node: Queue | Exchange) -> bool:
        """Whether somebody depends on it."""
        return node in self._by_node

    def left(self, node: Queue | Exchange) -> None:
        """One of those who use it has left."""
        lifespan = self.lifespans.get(node)
        if lifespan is not None:
            lifespan.look()

    def cut_off(self, node: Queue | Exchange) -> None:
        """A node is deleted."""
        lifespan = self.lifespans.pop(node, None)
        if lifespan is not None:
            self._schedule.cancel(lifespan)
        if node in self._by_node:
            self._gone.append(node)
            if self.due == 0:
                self._schedule.set(self, self._schedule.now())

    def ring(self) -> None:
        """Tell a slice (Alarm)."""
        room = SLICE
        while self._gone and room > 0:
            room -= 1
            node = self._gone[0]
            found = self._by_node.get(node)
            if found is None:  # they have left meanwhile
                self._gone.popleft()
                continue
            dependent, _ = found.popitem()
            if not found:
                del self._by_node[node]
                self._gone.popleft()
            dependent.node_deleted()
        if self._gone:
            self._schedule.set(self, self._schedule.now())
