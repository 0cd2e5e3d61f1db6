"""The consequences of deleting queues, exchanges and virtual hosts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.entries.list import EmptyListener
from broker.core.publishing.delay import count_delayed
from broker.core.queues.purge import cut_off, disposal_cost, dispose
from broker.core.queues.queue import Queue
from broker.core.queues.virtual_host import QueueHost
from broker.core.routing.graph import Exchange
from broker.core.routing.topology import Topology
from broker.core.schedule import Chore, Schedule, TimedTask


@final
class Lifespan(TimedTask, EmptyListener):
    """The lifespan of a queue that was made for a link, its maker.

    The maker counts as a link until it ends.
    `links`: the queue lasts as long as it has links, consumers and `Dependents`; otherwise only as long as
    its maker.
    `messages`: the queue lasts also as long as it has messages, acquired or not.
    After each departure, `look` checks the queue in a turn of its own, never inside the step of the
    departure.
    """

    def __init__(
        self, host: QueueHost, dependents: Dependents, queue: Queue, links: bool, messages: bool
    ) -> None:
        super().__init__()
        self.links = links
        self.messages = messages
        self._queue = queue
        self._host = host
        self._dependents = dependents
        self._has_maker = True
        dependents.lifespans[queue] = self
        if messages:
            queue.entries.lifespan = self

    def end_maker(self) -> None:
        """Note that the maker has ended."""
        self._has_maker = False
        self.look()

    def look(self) -> None:
        """Check the queue in a later turn, because a link, a consumer or a message has left."""
        if self.due == 0 and not self._has_maker:
            self._host.schedule.set(self, self._host.schedule.now())

    def do_due_work(self) -> None:
        """Delete the queue if nothing keeps it."""
        queue = self._queue
        if self.links and (queue.consumer_count or self._dependents.has_dependent(queue)):
            return
        if self.messages and (queue.messages + count_delayed(queue)):
            return
        self._host.delete_unused_queue(queue)


SLICE: Final[i64] = 50  # dependents notified in one turn, each of which may write a frame


@mypyc_attr(allow_interpreted_subclasses=True)
class Dependent:
    """An object that depends on a queue or exchange, its `node`, and must know of the node's deletion."""

    def __init__(self, node: Queue | Exchange) -> None:
        self.node = node

    def on_node_deleted(self) -> None:
        """Note that the node is deleted; called in a later turn, never inside the step that deletes it."""
        raise NotImplementedError


@final
class Dependents(Chore):
    """The dependents of one virtual host, by node, so that a deletion concerns only its own dependents.

    Dependents are notified in slices, because there may be a hundred thousand. `lifespans`: the lifespans of
    queues that end when no dependent is left.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule, SLICE)
        self.lifespans: dict[Queue | Exchange, Lifespan] = {}
        self._by_node: dict[Queue | Exchange, dict[Dependent, None]] = {}
        self._deleted: deque[Queue | Exchange] = deque()

    def add(self, dependent: Dependent) -> None:
        """Notify `dependent` when its node, which exists now, is deleted."""
        self._by_node.setdefault(dependent.node, {})[dependent] = None

    def remove(self, dependent: Dependent) -> None:
        """Forget a dependent, which has ended or was notified."""
        dependents = self._by_node.get(dependent.node)
        if dependents is not None:
            dependents.pop(dependent, None)
            if not dependents:
                del self._by_node[dependent.node]
                self.check_lifespan(dependent.node)

    def has_dependent(self, node: Queue | Exchange) -> bool:
        """Whether a dependent of the node exists."""
        return node in self._by_node

    def check_lifespan(self, node: Queue | Exchange) -> None:
        """Check the lifespan of a node that a consumer or a dependent has left."""
        lifespan = self.lifespans.get(node)
        if lifespan is not None:
            lifespan.look()

    def notify_soon(self, node: Queue | Exchange) -> None:
        """Schedule the notifications for a deleted node."""
        lifespan = self.lifespans.pop(node, None)
        if lifespan is not None:
            self.schedule.cancel(lifespan)
        if node in self._by_node:
            self._deleted.append(node)
            if self.due == 0:
                self.continue_soon()

    def step(self, budget: i64) -> bool:
        """Notify up to `budget` of the dependents."""
        while self._deleted and budget > 0:
            budget -= 1
            node = self._deleted[0]
            dependents = self._by_node.get(node)
            if dependents is None:  # all have left meanwhile
                self._deleted.popleft()
                continue
            dependent, _ = dependents.popitem()
            if not dependents:
                del self._by_node[node]
                self._deleted.popleft()
            dependent.on_node_deleted()
        return bool(self._deleted)


DISPOSAL_SLICE: Final[i64] = 5000  # entries that leave in one turn: one or two milliseconds
QUEUE: Final[i64] = 25  # the cost of a queue, an exchange or a consumer, in entries


@final
class Disposal(Chore):
    """The queues and exchanges of a deleted virtual host, which are disposed of in later turns.

    From the start no client finds any of them, and nothing happens in them, neither by timers nor by their
    clients. To the log the virtual host is deleted as a whole.
    """

    def __init__(self, topology: Topology, dependents: Dependents) -> None:
        super().__init__(topology.host.schedule, DISPOSAL_SLICE)
        self._topology = topology
        self._host = topology.host
        self._dependents = dependents
        self._queues = topology.queues
        self._exchanges = topology.exchanges
        self._done: Callable[[], None] | None = None
        self._by = topology.host.journal.current_actor()
        schedule = topology.host.schedule
        for queue in self._queues.values():
            cut_off(queue, schedule)
        for exchange in self._exchanges.values():
            exchange.deleted = True
            if exchange.kept is not None:
                cut_off(exchange.kept, schedule)

    def begin(self, done: Callable[[], None]) -> None:
        """Dispose of a first slice; `done` is called when everything is disposed of."""
        self._done = done
        self.do_due_work()

    def finish(self) -> None:
        """Dispose of the rest now, and do not report the end."""
        self._done = None
        super().finish()
        self._topology.bindings.finish()

    def step(self, budget: i64) -> bool:
        """Dispose of exchanges, then of queues, up to the cost `budget`."""
        self._dispose_as_actor(budget)
        if self._queues or self._exchanges:
            return True
        done, self._done = self._done, None
        if done is not None:
            done()
        return False

    def _dispose_as_actor(self, room: i64) -> None:
        """Dispose of objects up to the cost `room`; the journal names the actor of the deletion."""
        topology = self._topology
        journal = topology.host.journal
        before = journal.actor
        journal.actor = self._by
        try:
            self._dispose_some(topology, room)
        finally:
            journal.actor = before

    def _dispose_some(self, topology: Topology, room: i64) -> None:
        schedule = topology.host.schedule
        schedule.set(topology.bindings, schedule.now())  # bindings are removed in separate turns
        while self._exchanges and room > 0:
            exchange = self._exchanges.popitem()[1]
            topology.bindings.remove_node(exchange)
            self._dependents.notify_soon(exchange)
            room -= QUEUE
            if exchange.kept is not None:
                room -= self._dispose(exchange.kept)
                exchange.forget_keeper()
        while self._queues and room > 0:
            queue = self._queues.popitem()[1]
            topology.bindings.remove_node(queue)
            room -= self._dispose(queue)

    def _dispose(self, queue: Queue) -> i64:
        """Dispose of a queue. Return the cost."""
        cost = QUEUE * (1 + len(queue.manager.all)) + disposal_cost(queue)
        topology = self._topology
        topology.numbers.queues.pop(queue.number, None)
        dispose(queue, topology.host.schedule)
        self._dependents.notify_soon(queue)
        return cost
