"""The bindings of a virtual host, by destination; bindings of deleted objects are removed in slices."""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from broker.core.queues.queue import Queue
from broker.core.routing.graph import Binding, Exchange, Parallel, Resolution
from broker.core.schedule import BINDING, Chore, Schedule

NO_LOCAL: Final = "x-no-local"
"""The argument of a binding that excludes a publisher, by name: its messages never reach the queue."""


@final
class NoLocal:
    """The queues of one virtual host that do not receive their own connection's messages (no-local).

    The queues are removed when a publisher's route is resolved, so that no message is inspected. The newest
    binding of a queue with the argument `x-no-local` counts. The effect ends when all such bindings of the
    queue are deleted.
    """

    def __init__(self) -> None:
        self._bindings: dict[Queue, list[Binding]] = {}

    def add(self, binding: Binding) -> None:
        """Exclude the publisher that a new binding names, if it names one."""
        queue = binding.queue
        if queue is not None and isinstance(binding.arguments.get(NO_LOCAL), str):
            self._bindings.setdefault(queue, []).append(binding)

    def remove(self, binding: Binding) -> None:
        """End the effect of a deleted binding."""
        queue = binding.queue
        bindings = None if queue is None else self._bindings.get(queue)
        if queue is not None and bindings is not None and binding in bindings:
            bindings.remove(binding)
            if not bindings:
                del self._bindings[queue]

    def forget_queue(self, queue: Queue) -> None:
        """Forget a deleted queue."""
        self._bindings.pop(queue, None)

    def remove_queues(self, resolution: Resolution, publisher: tuple[str, ...]) -> None:
        """Remove the queues that must not receive the messages of a publisher with these names."""
        if not publisher or not self._bindings:
            return
        for queue in list(resolution.queues):
            if queue in self._bindings and self._excluded_publisher(queue) in publisher:
                del resolution.queues[queue]

    def _excluded_publisher(self, queue: Queue) -> object:
        """Return the name of the publisher whose messages the queue must not receive, None without one.

        Bindings of deleted exchanges are forgotten here, because they are unlinked in slices.
        """
        bindings = [binding for binding in self._bindings[queue] if not binding.source.deleted]
        if not bindings:
            del self._bindings[queue]
            return None
        self._bindings[queue] = bindings
        return bindings[-1].arguments.get(NO_LOCAL)


SLICE: Final[i64] = 1000  # deleted bindings unlinked in one turn: one or two milliseconds


@final
class Bindings(Chore):
    """The index of all bindings from both ends: by source in `Exchange.outgoing`, and here by destination.

    The two indexes share one dict of the bindings between the same two objects. So a deleted destination
    takes one step for each of its sources, and a deleted source takes one step. After the step the bindings
    are deleted to clients and to recovery: no list has them, and no message is routed to a deleted object.
    The exchanges unlink the bindings in slices, because there may be a hundred thousand.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule, SLICE)
        self._by_destination: dict[Queue | Exchange, dict[Exchange, Parallel]] = {}
        self._deleted: deque[tuple[Exchange, dict[Queue | Exchange, Parallel]]] = deque()

    def bindings_to(self, destination: Queue | Exchange) -> list[Binding]:
        """Return the bindings that lead to a queue or exchange, without the one of the default exchange."""
        bindings: list[Binding] = []
        for source, parallel in self._by_destination.get(destination, {}).items():
            if not source.deleted:
                bindings.extend(parallel.values())
        return bindings

    def add(self, binding: Binding) -> bool:
        """Add a binding between existing objects; False: the binding exists already."""
        source = binding.source
        destination = binding.destination
        parallel = source.outgoing.get(destination)
        if parallel is None:
            parallel = {}
            source.outgoing[destination] = parallel
            self._by_destination.setdefault(destination, {})[source] = parallel
        elif binding.key in parallel:
            return False
        parallel[binding.key] = binding
        source.link(binding)
        source.on_bindings_changed()
        for watcher in source.watchers or ():
            watcher.on_bound(binding)
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
        source.on_bindings_changed()
        for watcher in source.watchers or ():
            watcher.on_unbound(binding)

    def note_renamed(self, queue: Queue) -> None:
        """Inform the sources of a queue's bindings that the queue has another name."""
        for source in self._by_destination.get(queue, {}):
            source.on_bindings_changed()

    def remove_node(self, deleted: Queue | Exchange) -> list[Exchange]:
        """Remove the bindings of a deleted queue or exchange. Return the exchanges that have none left."""
        if isinstance(deleted, Exchange) and deleted.outgoing:
            self._deleted.append((deleted, deleted.outgoing))
            deleted.outgoing = {}
        left: list[Exchange] = []
        for source, parallel in self._by_destination.pop(deleted, {}).items():
            if source.deleted:
                continue  # the bindings of the exchange are deleted with it
            del source.outgoing[deleted]
            source.on_bindings_changed()
            for watcher in source.watchers or ():
                for binding in parallel.values():
                    watcher.on_unbound(binding)
            self._deleted.append((source, {deleted: parallel}))
            if not source.outgoing:
                left.append(source)
        if self.due == 0:
            self.do_due_work()
        return left

    def has_deleted(self) -> bool:
        """Whether deleted bindings are left to unlink."""
        return bool(self._deleted)

    def step(self, budget: i64) -> bool:
        """Unlink up to `budget` deleted bindings."""
        room = budget
        while self._deleted and room > 0:
            source, outgoing = self._deleted[0]
            room = self._unlink(source, outgoing, room)
            if not outgoing:
                self._deleted.popleft()
        self.schedule.allowance.use(BINDING * (budget - room))
        return bool(self._deleted)

    def _unlink(self, source: Exchange, outgoing: dict[Queue | Exchange, Parallel], room: i64) -> i64:
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
        """Forget a pair without bindings."""
        sources = self._by_destination.get(destination)
        if sources is not None:
            sources.pop(source, None)
            if not sources:
                del self._by_destination[destination]
