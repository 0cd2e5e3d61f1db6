"""A virtual host that is deleted: gone at once, and let go of in slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.clearing import burden, cut_off, dispose
from broker.core.exchange import Exchange
from broker.core.queue import Queue
from broker.core.schedule import Alarm

if TYPE_CHECKING:
    from broker.core.topology import Topology

SLICE: Final[i64] = 5000  # entries that leave in one turn: one or two milliseconds
QUEUE: Final[i64] = 25  # as many entries as a queue or an exchange, and each consumer


@final
class Vacating(Alarm):
    """The queues and exchanges of a deleted virtual host, which have turns to come.

    Nobody finds them any more, and nothing happens in them, neither in time nor by their clients: that is so
    from the start, for all of them. To the log the virtual host is gone as a whole.
    """

    def __init__(self, topology: Topology, queues: dict[str, Queue], exchanges: dict[str, Exchange]) -> None:
        super().__init__()
        self._topology = topology
        self._queues = queues
        self._exchanges = exchanges
        self._done: Callable[[], None] | None = None
        self._by = topology.journal.who()
        schedule = topology.schedule
        for queue in queues.values():
            cut_off(queue, schedule)
        for exchange in exchanges.values():
            exchange.deleted = True
            if exchange.kept is not None:
                cut_off(exchange.kept, schedule)

    def begin(self, done: Callable[[], None]) -> None:
        """Let go of a first slice; `done` is called when all of it has gone."""
        self._done = done
        self.ring()

    def finish(self) -> None:
        """Let go of all the rest now: nobody waits for a turn."""
        while self._queues or self._exchanges:
            self._let_go(SLICE)
        self._topology.bindings.finish()
        self._topology.schedule.cancel(self)

    def ring(self) -> None:
        """Let go of a slice (Alarm)."""
        self._let_go(SLICE)
        if self._queues or self._exchanges:
            schedule = self._topology.schedule
            schedule.set(self, schedule.now())
        elif self._done is not None:
            self._done()

    def _let_go(self, room: i64) -> None:
        """Let go of exchanges, then of queues, until there is no room left."""
        topology = self._topology
        journal = topology.journal
        before = journal.actor
        journal.actor = self._by
        try:
            self._dispose_some(topology, room)
        finally:
            journal.actor = before

    def _dispose_some(self, topology: Topology, room: i64) -> None:
        schedule = topology.schedule
        schedule.set(topology.bindings, schedule.now())  # they have turns of their own
        while self._exchanges and room > 0:
            exchange = self._exchanges.popitem()[1]
            topology.bindings.cut_off(exchange)
            topology.dependents.cut_off(exchange)
            room -= QUEUE
            if exchange.kept is not None:
                room -= self._dispose(exchange.kept)
        while self._queues and room > 0:
            queue = self._queues.popitem()[1]
            topology.bindings.cut_off(queue)
            room -= self._dispose(queue)

    def _dispose(self, queue: Queue) -> i64:
        """Let go of a queue; returns what that has cost."""
        cost = QUEUE * (1 + len(queue.manager.all)) + burden(queue)
        topology = self._topology
        topology.numbers.queues.pop(queue.number, None)
        dispose(queue, topology.schedule)
        topology.dependents.cut_off(queue)
        return cost
