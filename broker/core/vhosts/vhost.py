"""A virtual host: its topology, its publisher, its policies, and what clients may declare in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from broker.core.arguments.queue import DEFAULT_QUEUE_TYPE
from broker.core.counters import Counters
from broker.core.delivery.journal import SILENT, Journal
from broker.core.hashing import Chance
from broker.core.message import Message
from broker.core.message_view import Views
from broker.core.names import RESERVED_PREFIX
from broker.core.policies.pattern import NamePattern
from broker.core.ports import MessageStore
from broker.core.publishing.dead_letters import DeadLetters
from broker.core.publishing.delay import Delays
from broker.core.publishing.publisher import Publisher
from broker.core.publishing.receipts import Receipts
from broker.core.publishing.routed_message import RoutedMessage
from broker.core.queues.death import Death, LetterWriter, bare_letter
from broker.core.queues.hooks import BacklogHook
from broker.core.queues.queue import Queue
from broker.core.queues.source import DELAY_SOURCE
from broker.core.queues.state import QueueState
from broker.core.queues.virtual_host import ignore_report
from broker.core.routing.graph import Exchange, Keeper
from broker.core.routing.topology import QueueNumbers, Topology
from broker.core.routing.virtual_host import RoutingHost
from broker.core.schedule import Schedule
from broker.core.vhosts.changes import queue_change
from broker.core.vhosts.declarations import Declarations
from broker.core.vhosts.deletion import Dependents, Disposal
from broker.core.vhosts.parameters import VhostParameters
from broker.core.vhosts.policies import Policies


def _notify_nobody(node: Queue | Exchange) -> None:
    """Do nothing: no part of this process watches queues and exchanges."""


@final
class VirtualHost(RoutingHost):
    """A name space of exchanges and queues, with the parts that serve it.

    `topology`: its exchanges, queues and bindings. `declarations`: the requests of clients to change these.
    `publisher`: routes messages and puts them into queues. `dependents`: objects that end with a queue or an
    exchange. `parameters`: values of components that run beside the virtual host. `note_node`: called with
    a queue or exchange that is about to be added, has other policies, or was deleted.

    `names` returns the random part of the queue names that the broker generates, `numbers` the numbers of
    logged queues.
    """

    def __init__(
        self,
        name: str,
        store: MessageStore,
        counters: Counters,
        names: Callable[[], str],
        numbers: QueueNumbers,
        schedule: Schedule,
        views: Views,
        write_letter: LetterWriter = bare_letter,
        trouble: Callable[[str], None] = ignore_report,
        journal: Journal = SILENT,
    ) -> None:
        super().__init__(
            name, store, counters, journal, schedule, Chance(names), views, write_letter, trouble
        )
        self.topology = Topology(self, numbers)
        self.dead_letters = DeadLetters(self.topology)
        self.receipts = Receipts(self.topology)
        self.publisher = Publisher(self.topology, self.dead_letters, self.receipts)
        self.policies = Policies(self.topology)
        self.parameters = VhostParameters(name, store)
        self.note_node: Callable[[Queue | Exchange], None] = _notify_nobody
        self.dependents = Dependents(schedule)
        self.declarations = Declarations(self.topology, self.publisher, self.dependents, names)

    def dispose(self) -> Disposal:
        """Remove everything, because the virtual host is deleted.

        The caller disposes of the returned contents.
        """
        self.policies.stop()
        for settlement in list(self.settlements):
            settlement.drop_all()
        disposal = Disposal(self.topology, self.dependents)
        self.topology.clear()
        return disposal

    def finish_settlements(self) -> None:
        """Finish all settles and requeues of clients."""
        for settlement in list(self.settlements):
            settlement.finish()

    # ---- as queues see it

    def on_routes_changed(self) -> None:
        """Make resolved routes stale, and retry dead letters that wait for a route."""
        self.topology.epoch += 1
        self.dead_letters.retry_backlogs()

    def write_consumption_receipts(self, message: Message, queue: QueueState) -> None:
        """Write the receipts for a message that has been consumed from `queue`."""
        self.receipts.write_consumption(message, queue)

    def delete_unused_queue(self, queue: QueueState) -> None:
        """Delete a queue that was unused for as long as its arguments say."""
        existing = self.topology.queues.get(queue.name)
        if existing is queue and existing is not None:
            self.declarations.force_delete(existing)

    def note_queue(self, queue: QueueState) -> None:
        """Append the queue's definition, which contains the change."""
        existing = self.topology.queues.get(queue.name)
        if existing is queue and existing is not None:
            self.store.append_definition(queue_change(self.name, existing))

    def dead_letter(self, death: Death) -> None:
        """Dead-letter a message that has left its queue."""
        self.dead_letters.add(death)

    def try_again(self, death: Death) -> bool:
        """Dead-letter a message that waits in its backlog."""
        return self.dead_letters.try_again(death)

    def watch_backlog(self, backlog: BacklogHook) -> None:
        """Retry the messages of `backlog` when routes change."""
        self.dead_letters.backlogs[backlog] = None

    def forget_backlog(self, backlog: BacklogHook) -> None:
        """Forget `backlog`, in which no message waits any more."""
        self.dead_letters.backlogs.pop(backlog, None)

    # ---- as its parts see it

    def cover_queue(self, queue: Queue) -> None:
        """Apply the policies that match a queue."""
        self.policies.cover_queue(queue)

    def cover_exchange(self, exchange: Exchange) -> None:
        """Apply the policies that match an exchange."""
        self.policies.cover_exchange(exchange)

    def on_node_changed(self, node: Queue | Exchange) -> None:
        """Inform watchers that a queue or an exchange is about to be added, or has other policies."""
        self.note_node(node)

    def on_node_removed(self, node: Queue | Exchange) -> None:
        """Inform dependent objects that a queue or an exchange has been deleted."""
        self.dependents.notify_soon(node)
        self.note_node(node)

    def new_delays(self, exchange: Exchange, queue: Queue) -> Keeper:
        """Make the keeper of messages that `exchange` delays."""
        return Delays(exchange, queue, self)

    def send_delayed(
        self, message: Message, source: Exchange, keys: list[str], held: Message, holder: Queue
    ) -> bool:
        """Route a message that `source` has delayed."""
        return self.publisher.send_delayed(message, source, keys, held, holder)

    def put_delayed(self, message: Message, queue: Queue, held: Message | None) -> None:
        """Put a message that `queue` has delayed into `queue`."""
        self.dead_letters.put_delayed(RoutedMessage(message, [queue], [], DELAY_SOURCE), held, queue)

    def dead_letter_refused(self, queue: Queue, message: Message) -> None:
        """Dead-letter a message that `queue` refuses, if the queue does so."""
        self.dead_letters.add_refused(queue, message)

    def write_arrival_receipts(self, message: Message, queues: list[Queue]) -> None:
        """Write the receipts for the arrival of a message in `queues`."""
        self.receipts.write_arrivals(message, queues)


class AutoCreateError(Exception):
    """A pattern of the setting `auto_create` cannot be used; the text says which and why."""


@final
class AutoCreation:
    """The queues that a client may create by naming them. [RabbitMQ /queue/NAME, ActiveMQ autoCreateQueues]

    A policy with the key `auto-create` decides first. Otherwise some kinds of addresses always create their
    queues. Last, the patterns of the setting `auto_create` decide, which are for all virtual hosts.

    Raises AutoCreateError.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns: list[NamePattern] = []
        for text in patterns:
            pattern = NamePattern(text)
            if pattern.objection:
                raise AutoCreateError(f"auto_create: the pattern '{text}' {pattern.objection}")
            self._patterns.append(pattern)

    def allows(self, virtual_host: VirtualHost, name: str, always: bool) -> bool:
        """Whether a client may create a queue of this name by naming it.

        `always`: the client's kind of address creates queues unless a policy forbids it.
        """
        if not name or name.startswith(RESERVED_PREFIX):
            return False
        queue_type = virtual_host.default_queue_type or DEFAULT_QUEUE_TYPE
        allowed = virtual_host.policies.allow_creation(name, queue_type)
        if allowed is None:
            return always or any(pattern.matches(name) for pattern in self._patterns)
        return allowed
