"""The bindings of a virtual host, by destination; bindings of deleted objects are removed in slices."""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from broker.core.queues.queue import Queue
from broker.core.routing.graph import Binding, Exchange, Parallel, Resolution
from broker.core.schedule import BINDING, Chore, Schedule

NO_LOCAL: Final = "x-no-local"
"""The argument of a binding that names the publisher whose messages its queue never gets, on any route."""


@final
class NoLocal:
    """The queues of one virtual host that do not receive their own connection's messages (no-local).

    They are left out when a publisher's route is resolved, so that no message has to be inspected.
    """

    def __init__(self) -> None:
        self._shunned: dict[Queue, str] = {}

    def bound(self, binding: Binding) -> None:
        """Note the publisher that a new binding excludes from its queue, if it does."""
        publisher = binding.arguments.get(NO_LOCAL)
        if binding.queue is not None and isinstance(publisher, str):
            self._shunned[binding.queue] = publisher

    def forget(self, queue: Queue) -> None:
        """Forget a deleted queue."""
        self._shunned.pop(queue, None)

    def leave_out(self, found: Resolution, publisher: tuple[str, ...]) -> None:
        """Remove the queues that must not receive the messages of a publisher with these names."""
        if not publisher or not self._shunned:
            return
        for queue in list(found.queues):
            shunned = self._shunned.get(queue)
            if shunned is not None and shunned in publisher:
                del found.queues[queue]


SLICE: Final[i64] = 1000  # deleted bindings unlinked in one turn: one or two milliseconds


@final
class Bindings(Chore):
    """The index of all bindings from both ends: by source in `Exchange.outgoing`, and here by destination.

    Both share one dict of the bindings between the same two objects. So a destination with any number of
    bindings is cut off in one step for each of its sources, and a source in one step. To clients and to
    recovery the bindings are deleted with that: no list has them, and no message is routed to a deleted
    object. The exchanges unlink them in slices, because there may be a hundred thousand.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule, SLICE)
        self._leading: dict[Queue | Exchange, dict[Exchange, Parallel]] = {}
        self._leaving: deque[tuple[Exchange, dict[Queue | Exchange, Parallel]]] = deque()

    def to(self, destination: Queue | Exchange) -> list[Binding]:
        """Return the bindings that lead to a queue or exchange, without the one of the default exchange."""
        found: list[Binding] = []
        for source, parallel in self._leading.get(destination, {}).items():
            if not source.deleted:
                found.extend(parallel.values())
        return found

    def add(self, binding: Binding) -> bool:
        """Add a binding between existing objects; False: the binding exists already."""
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
        """Remove an existing binding."""
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
        """Note that a queue has another name."""
        for source in self._leading.get(queue, {}):
            source.changed()

    def cut_off(self, deleted: Queue | Exchange) -> list[Exchange]:
        """Remove the bindings of a deleted queue or exchange. Return the exchanges that have none left."""
        if isinstance(deleted, Exchange) and deleted.outgoing:
            self._leaving.append((deleted, deleted.outgoing))
            deleted.outgoing = {}
        left: list[Exchange] = []
        for source, parallel in self._leading.pop(deleted, {}).items():
            if source.deleted:
                continue  # its bindings leave with it
            del source.outgoing[deleted]
            source.changed()
            self._leaving.append((source, {deleted: parallel}))
            if not source.outgoing:
                left.append(source)
        if self.due == 0:
            self.do_due_work()
        return left

    def leaving(self) -> bool:
        """Whether deleted bindings are left to unlink."""
        return bool(self._leaving)

    def step(self, budget: i64) -> bool:
        """Unlink up to `budget` deleted bindings."""
        room = budget
        while self._leaving and room > 0:
            source, outgoing = self._leaving[0]
            room = self._unlink_some(source, outgoing, room)
            if not outgoing:
                self._leaving.popleft()
        self.schedule.allowance.use(BINDING * (budget - room))
        return bool(self._leaving)

    def _unlink_some(self, source: Exchange, outgoing: dict[Queue | Exchange, Parallel], room: i64) -> i64:
        """Unlink up to `room` bindings of a source. Return the room that is left."""
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
        """Forget the pair: `source` has no binding to `destination` any more."""
        sources = self._leading.get(destination)
        if sources is not None:
            sources.pop(source, None)
            if not sources:
                del self._leading[destination]
