"""The bindings of a virtual host by what they lead to; those of what is deleted leave in slices."""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from broker.core.queues.queue import Queue
from broker.core.routing.graph import Binding, Exchange, Parallel, Resolution
from broker.core.schedule import BINDING, Alarm, Schedule

NO_LOCAL: Final = "x-no-local"
"""The argument of a binding that says whose messages its queue is not to get, on whatever way."""


@final
class NoLocal:
    """Those of one virtual host, and whose messages each of them does not get.

    They are left out when a publisher's route is found, so that nothing has to be known of its messages.
    """

    def __init__(self) -> None:
        self._shunned: dict[Queue, str] = {}

    def bound(self, binding: Binding) -> None:
        """A binding is new, and may say so of its queue."""
        publisher = binding.arguments.get(NO_LOCAL)
        if binding.queue is not None and isinstance(publisher, str):
            self._shunned[binding.queue] = publisher

    def forget(self, queue: Queue) -> None:
        """A queue is gone."""
        self._shunned.pop(queue, None)

    def leave_out(self, found: Resolution, publisher: tuple[str, ...]) -> None:
        """Have none of what somebody with these names publishes go to queues that do not get it."""
        if not publisher or not self._shunned:
            return
        for queue in list(found.queues):
            shunned = self._shunned.get(queue)
            if shunned is not None and shunned in publisher:
                del found.queues[queue]


SLICE: Final[i64] = 1000  # bindings of what was deleted that go in one turn: one or two milliseconds


@final
class Bindings(Alarm):
    """Knows each binding from both ends: its source has it in `outgoing`, and here it is by its destination.

    Both share one dict of the bindings between the same two, so that a destination with any number of them is
    cut off in one step for each of its sources, and a source in one step. To clients the bindings are gone by
    that, and to recovery too: no list has them, and to a message what is deleted is not bound. The exchanges
    let go of them in slices, as there may be a hundred thousand.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._schedule = schedule
        self._leading: dict[Queue | Exchange, dict[Exchange, Parallel]] = {}
        self._leaving: deque[tuple[Exchange, dict[Queue | Exchange, Parallel]]] = deque()

    def to(self, destination: Queue | Exchange) -> list[Binding]:
        """The bindings that lead to a queue or exchange, without the one of the default exchange."""
        found: list[Binding] = []
        for source, parallel in self._leading.get(destination, {}).items():
            if not source.deleted:
                found.extend(parallel.values())
        return found

    def add(self, binding: Binding) -> bool:
        """Add a binding between what is there; False: it is there already."""
        source = binding.source
        destination = binding.destination
        parallel = source.outgoing.get(destination)
        if parallel is None:
            parallel = {}
            source.outgoing[destination] = parallel
            self._leading.setdefault(destination, {})[source] = parallel
        elif binding.key in parallel:
            return False
        parallel[binding.key] = binding
        source.link(binding)
        source.changed()
        return True

    def remove(self, binding: Binding) -> None:
        """Remove a binding that is there."""
        source = binding.source
        destination = binding.destination
        parallel = source.outgoing[destination]
        del parallel[binding.key]
        if not parallel:
            del source.outgoing[destination]
            self._forget(source, destination)
        source.unlink(binding)
        source.changed()

    def renamed(self, queue: Queue) -> None:
        """A queue has another name."""
        for source in self._leading.get(queue, {}):
            source.changed()

    def cut_off(self, deleted: Queue | Exchange) -> list[Exchange]:
        """A queue or exchange is gone with its bindings; returns the exchanges that have none left."""
        if isinstance(deleted, Exchange) and deleted.outgoing:
            self._leaving.append((deleted, deleted.outgoing))
            deleted.outgoing = {}
        left: list[Exchange] = []
        for source, parallel in self._leading.pop(deleted, {}).items():
            if source.deleted:
                continue  # they are leaving with it
            del source.outgoing[deleted]
            source.changed()
            self._leaving.append((source, {deleted: parallel}))
            if not source.outgoing:
                left.append(source)
        if self.due == 0:
            self.ring()
        return left

    def leaving(self) -> bool:
        """Whether there are bindings that were not let go of yet."""
        return bool(self._leaving)

    def finish(self) -> None:
        """Let go of all the rest now: nobody waits for a turn."""
        while self._leaving:
            self.ring()
        self._schedule.cancel(self)

    def ring(self) -> None:
        """Let go of a slice (Alarm)."""
        room: i64 = SLICE
        while self._leaving and room > 0:
            source, outgoing = self._leaving[0]
            room = self._let_go(source, outgoing, room)
            if not outgoing:
                self._leaving.popleft()
        self._schedule.allowance.use(BINDING * (SLICE - room))
        if self._leaving:
            self._schedule.set(self, self._schedule.now())

    def _let_go(self, source: Exchange, outgoing: dict[Queue | Exchange, Parallel], room: i64) -> i64:
        """Unlink bindings of a source until there is no room left; returns what is left of it."""
        while outgoing and room > 0:
            destination, parallel = outgoing.popitem()
            while parallel and room > 0:
                source.unlink(parallel.popitem()[1])
                room -= 1
            if parallel:
                outgoing[destination] = parallel
            else:
                self._forget(source, destination)
        return room

    def _forget(self, source: Exchange, destination: Queue | Exchange) -> None:
        """`source` has no binding to `destination` any more."""
        sources = self._leading.get(destination)
        if sources is not None:
            sources.pop(source, None)
            if not sources:
                del self._leading[destination]
