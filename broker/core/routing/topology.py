"""The topology of a virtual host: its exchanges, queues and bindings, and the steps that change them."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.queue import (
    PARTITIONS,
    is_partitioned,
    is_stream,
    is_volatile,
    number_argument,
)
from broker.core.arguments.remote import is_remote
from broker.core.arguments.rule import Arguments
from broker.core.counters import Flows
from broker.core.entries.index import new_index
from broker.core.entries.list import FifoEntryList
from broker.core.errors import NotFound
from broker.core.names import DEFAULT_EXCHANGE
from broker.core.partitions.partitioned import Partitioned
from broker.core.queues.election import declared_election
from broker.core.queues.order import new_discipline
from broker.core.queues.purge import disposal_cost, dispose
from broker.core.queues.queue import Queue
from broker.core.queues.state import add_flows
from broker.core.queues.volatile import Volatile
from broker.core.remotes.remote import new_remote
from broker.core.routing.bindings import Bindings, NoLocal
from broker.core.routing.exchanges import DIRECT, FANOUT, HEADERS, TOPIC, DefaultExchange
from broker.core.routing.graph import Binding, Exchange
from broker.core.routing.kinds import DelayedExchange, new_exchange
from broker.core.routing.virtual_host import RoutingHost
from broker.core.schedule import ENTRIES
from broker.core.streams.list import new_entry_list


def last_number(number: i64, arguments: Arguments) -> i64:
    """Return the last number of a queue with this number and these arguments; each partition has its own."""
    return number + number_argument(arguments, PARTITIONS, 1) - 1


@final
class QueueNumbers:
    """The numbers of logged queues: one sequence for all virtual hosts.

    A number is never used twice, not even after a restart. The log names the queues of a message by their
    numbers, so a new queue with the number of a deleted one would inherit its messages.
    """

    def __init__(self) -> None:
        self.next: i64 = 1
        self.queues: dict[int, Queue] = {}

    def take(self, arguments: Arguments | None = None) -> i64:
        """Return an unused number. Further partitions of a queue with these arguments use the next ones."""
        number = self.next
        self.next = last_number(number, arguments or {}) + 1
        return number

    def reserve(self, number: i64) -> None:
        """Never use `number`, nor one before it, because a queue has had it."""
        if number >= self.next:
            self.next = number + 1


PREDECLARED: Final = (
    ("amq.direct", DIRECT),
    ("amq.fanout", FANOUT),
    ("amq.topic", TOPIC),
    ("amq.headers", HEADERS),
    ("amq.match", HEADERS),
)


@final
class Topology:
    """The exchanges, queues and bindings of one virtual host.

    Every step leaves the topology consistent, and makes routes that were resolved before stale. Nothing is
    refused here, and nothing is appended to the log. The callers do that: clients' requests (`Declarations`)
    and recovery (`definitions.apply_change`).

    `host`: the virtual host. `numbers`: the numbers of logged queues. `epoch`: grows with every change; a
    `Route` of an earlier epoch is stale. `past`: the counts of deleted queues.
    """

    def __init__(self, host: RoutingHost, numbers: QueueNumbers) -> None:
        self.host = host
        self.numbers = numbers
        self.epoch: i64 = 1
        self.queues: dict[str, Queue] = {}
        self.exchanges: dict[str, Exchange] = {DEFAULT_EXCHANGE: DefaultExchange(self.queues)}
        for exchange, kind in PREDECLARED:
            self.exchanges[exchange] = new_exchange(exchange, kind, True, False, False, {})
        self.bindings = Bindings(host.schedule)
        self.no_local = NoLocal()
        self.past = Flows()
        self._owned: dict[object, dict[Queue, None]] = {}

    def existing_exchange(self, name: str) -> Exchange:
        """Find an exchange, also the default one.

        Raises:
            NotFound: no exchange has this name.
        """
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise NotFound(f"no exchange '{name}' in vhost '{self.host.name}'")
        return exchange

    def bindings_to(self, destination: Queue | Exchange) -> list[Binding]:
        """Return the bindings that lead to a queue or exchange, without the one of the default exchange."""
        return self.bindings.bindings_to(destination)

    def owned_by(self, owner: object) -> list[Queue]:
        """Return the queues exclusive to `owner`."""
        return list(self._owned.get(owner, ()))

    def add_queue(
        self,
        name: str,
        durable: bool,
        exclusive_owner: object | None,
        auto_delete: bool,
        arguments: dict[str, object],
        number: i64,
    ) -> Queue:
        """Make a queue under a free name; `number` is 0 if the log need not know it."""
        volatile = is_volatile(arguments)
        partitioned = is_partitioned(arguments)
        queue = Queue(
            name,
            self.host.store,
            new_entry_list(arguments, self.host.headers),
            self.host.counters,
            durable=durable,
            logged=number > 0 and not volatile and not partitioned and not is_stream(arguments),
            number=number,
            vhost=self.host.name,
        )
        queue.exclusive_owner = exclusive_owner
        queue.auto_delete = auto_delete
        queue.arguments = arguments
        queue.set_discipline(new_discipline(queue, self.host.views, self.host.schedule))
        queue.index = new_index(self.host.store, arguments, self.host.views)
        if partitioned:
            queue.partitions = Partitioned(queue, self.host)
        self.host.cover_queue(queue)
        if is_remote(arguments):
            queue.remote = new_remote(queue, self.host)
        queue.election = None if partitioned else declared_election(queue)
        if number > 0 and volatile:
            queue.volatile = Volatile(queue, self.host)
        self.queues[name] = queue
        if number > 0:
            self.numbers.queues[number] = queue
        if exclusive_owner is not None:
            self._owned.setdefault(exclusive_owner, {})[queue] = None
        self.host.on_routes_changed()
        return queue

    def rename_queue(self, queue: Queue, name: str) -> None:
        """Rename a queue to a free name.

        Its bindings stay; the caller applies the policies of the new name.
        """
        before = queue.name
        del self.queues[before]
        queue.name = name
        self.queues[name] = queue
        self.bindings.note_renamed(queue)
        self.host.on_routes_changed()
        if queue.member is not None:
            queue.member.note_renamed(before)
        if queue.journal is not None:
            queue.journal.renamed()

    def share_queue(self, queue: Queue) -> None:
        """End the exclusive use of a queue."""
        owner = queue.exclusive_owner
        if owner is not None:
            queue.exclusive_owner = None
            self._disown(owner, queue)

    def remove_queue(self, queue: Queue) -> list[Exchange]:
        """Remove a queue with its bindings and entries. Return the exchanges that this leaves unused."""
        del self.queues[queue.name]
        add_flows(self.past, queue, 1)
        self.numbers.queues.pop(queue.number, None)
        owner = queue.exclusive_owner
        if owner is not None:
            self._disown(owner, queue)
        left = _auto_delete_exchanges(self.bindings.remove_node(queue))
        self.host.on_routes_changed()
        self.host.schedule.allowance.use(disposal_cost(queue) // ENTRIES + len(queue.manager.all))
        dispose(queue, self.host.schedule)
        self.host.on_node_removed(queue)
        self.no_local.forget_queue(queue)
        return left

    def add_exchange(self, exchange: Exchange, number: i64) -> None:
        """Add an exchange under a free name.

        `number`: the number in the log of the queue for its kept messages, 0: not logged.
        """
        if exchange.keeps:
            queue = Queue(
                "",
                self.host.store,
                FifoEntryList(),
                self.host.counters,
                durable=exchange.durable,
                logged=number > 0,
                number=number,
                vhost=self.host.name,
            )
            exchange.keep_in(queue)
            if isinstance(exchange, DelayedExchange):
                exchange.delays = self.host.new_delays(exchange, queue)
            if number > 0:
                self.numbers.queues[number] = queue
        self.exchanges[exchange.name] = exchange
        self.host.cover_exchange(exchange)
        self.host.on_routes_changed()

    def remove_exchange(self, exchange: Exchange) -> list[Exchange]:
        """Remove an exchange with its bindings, both ways. Return the exchanges that this leaves unused."""
        del self.exchanges[exchange.name]
        exchange.deleted = True
        left = _auto_delete_exchanges(self.bindings.remove_node(exchange))
        self.host.on_routes_changed()
        kept = exchange.kept
        if kept is not None:
            self.numbers.queues.pop(kept.number, None)
            dispose(kept, self.host.schedule)
            exchange.forget_keeper()
        self.host.on_node_removed(exchange)
        return left

    def add_binding(self, binding: Binding) -> None:
        """Add a binding between existing objects, unless it exists already."""
        if self.bindings.add(binding):
            self.no_local.add(binding)
            self.host.on_routes_changed()

    def remove_binding(self, binding: Binding) -> list[Exchange]:
        """Remove a binding. Return its source if this was the last binding of an auto-delete exchange."""
        self.bindings.remove(binding)
        self.no_local.remove(binding)
        self.host.on_routes_changed()
        return [] if binding.source.outgoing else _auto_delete_exchanges([binding.source])

    def _disown(self, owner: object, queue: Queue) -> None:
        owned = self._owned[owner]
        del owned[queue]
        if not owned:
            del self._owned[owner]

    def clear(self) -> None:
        """Forget all queues and exchanges: the virtual host is deleted."""
        self.queues = {}
        self.exchanges = {}
        self._owned = {}
        self.host.on_routes_changed()


def _auto_delete_exchanges(sources: list[Exchange]) -> list[Exchange]:
    """Return the auto-delete exchanges among `sources`, which have no bindings left."""
    return [source for source in sources if source.auto_delete]
