"""Declarations: clients declare, bind, delete and purge queues and exchanges.

Refusals use RabbitMQ's words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from broker.core.arguments.equivalence import (
    assert_same_exchange_arguments,
    assert_same_field,
    assert_same_queue_arguments,
)
from broker.core.arguments.queue import (
    QUEUE_RULES,
    check_exchange_arguments,
    check_lifetime,
    check_queue_arguments,
    is_partitioned,
    strategy_warning,
)
from broker.core.arguments.rule import REMOTE
from broker.core.errors import AccessRefused, LimitReached, NotFound, PreconditionFailed, locked
from broker.core.names import check_length, check_name, is_predeclared, refuse_default_exchange
from broker.core.partitions.partitioned import partitions_of, totals_of
from broker.core.policies.policy import with_queue_type
from broker.core.publishing.delay import count_delayed
from broker.core.publishing.publisher import Publisher
from broker.core.queues.hooks import QUEUE_DELETED
from broker.core.queues.limits import touch
from broker.core.queues.purge import Purge, purge
from broker.core.queues.queue import Queue
from broker.core.remotes.remote import remote_of
from broker.core.routing.graph import Binding, Exchange, binding_key
from broker.core.routing.kinds import EXCHANGE_NAMES, check_kind, new_exchange
from broker.core.routing.topology import Topology
from broker.core.streams.stream import open_stream
from broker.core.vhosts.changes import (
    binding_change,
    binding_deleted,
    exchange_change,
    exchange_deleted,
    queue_change,
    queue_deleted,
)
from broker.core.vhosts.deletion import Dependents
from broker.core.vhosts.members import check_members, declare_elsewhere, link_elsewhere

_GENERATED_PREFIX: Final = "amq.gen-"


@final
class Declarations:
    """The objects of one virtual host as clients declare, bind and delete them.

    `owner` of the methods is the requesting connection; only it may use its exclusive queues.
    """

    def __init__(
        self, topology: Topology, publisher: Publisher, dependents: Dependents, names: Callable[[], str]
    ) -> None:
        self._topology = topology
        self._host = topology.host
        self._publisher = publisher
        self._dependents = dependents
        self._names = names

    def declare_exchange(
        self,
        name: str,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, object],
    ) -> Exchange:
        """Make an exchange, or find an existing one with the same properties.

        Raises:
            AccessRefused: the default exchange, or a name that begins with `amq.`.
            PreconditionFailed: there is no such kind, or an argument is malformed.
            Inequivalent: the exchange exists with another property.
            StoreFailed: the exchange is durable and the log has stopped.
        """
        check_kind(kind)
        refuse_default_exchange(name)
        where = self._exchange_text(name)
        existing = self._topology.exchanges.get(name)
        if existing is not None:
            assert_same_field("type", existing.kind, kind, where)
            assert_same_field("durable", existing.durable, durable, where)
            assert_same_field("auto_delete", existing.auto_delete, auto_delete, where)
            assert_same_field("internal", existing.internal, internal, where)
            assert_same_exchange_arguments(existing.arguments, arguments, where)
            return existing
        check_name("exchange", name)
        check_exchange_arguments(arguments, where)
        if durable:
            self._host.store.require()
        exchange = new_exchange(name, kind, durable, auto_delete, internal, arguments)
        self._topology.add_exchange(
            exchange, self._topology.numbers.take() if durable and exchange.keeps else 0
        )
        if durable:
            self._host.store.append_definition(exchange_change(self._host.name, exchange))
        elif self._host.journal.on:
            self._host.journal.changed(exchange_change(self._host.name, exchange))
        self._host.warn_of_unknown(arguments, EXCHANGE_NAMES, where)
        return exchange

    def find_exchange(self, name: str) -> Exchange:
        """Find an exchange (a passive declaration).

        Raises:
            NotFound: no exchange has this name.
            AccessRefused: the default exchange.
        """
        refuse_default_exchange(name)
        return self._topology.existing_exchange(name)

    def delete_exchange(self, name: str, if_unused: bool) -> None:
        """Delete an exchange with its bindings; an absent exchange counts as deleted.

        Raises:
            AccessRefused: the default exchange, or a predeclared one.
            PreconditionFailed: the exchange has bindings and `if_unused` is set.
            StoreFailed: the exchange is durable and the log has stopped.
        """
        refuse_default_exchange(name)
        if is_predeclared(name):
            raise AccessRefused(f"deletion of system {self._exchange_text(name)} not allowed")
        exchange = self._topology.exchanges.get(name)
        if exchange is None:
            return
        if if_unused and exchange.outgoing:
            raise PreconditionFailed(f"{self._exchange_text(name)} in use")
        if exchange.durable:
            self._host.store.require()
        self.delete_exchanges([exchange])

    def declare_queue(
        self,
        name: str,
        durable: bool,
        exclusive_owner: object | None,
        auto_delete: bool,
        arguments: dict[str, object],
        generated: bool = False,
    ) -> Queue:
        """Make a queue, or find an existing queue with the same properties.

        The broker replaces an empty name by a new name.

        `exclusive_owner` is the connection that declares the queue exclusive, else None. An exclusive queue
        is deleted with its connection, so it is never durable. `generated`: the name came from
        `generate_name`.

        Raises:
            AccessRefused: the name begins with `amq.`.
            ResourceLocked: it exists and is exclusive to another connection, or differs in being exclusive.
            PreconditionFailed: an argument is malformed, or does not go with the rest.
            Inequivalent: the queue exists with another property.
            LimitReached: there are too many queues.
            StoreFailed: the queue is durable and the log has stopped.
        """
        if not name:
            name = self.generate_name()
        elif not generated:
            check_name("queue", name)
        durable = durable and exclusive_owner is None
        where = self._queue_text(name)
        existing = self._topology.queues.get(name)
        if self._host.default_queue_type is not None and durable and not auto_delete:
            arguments = with_queue_type(
                arguments, self._host.default_queue_type, existing.arguments if existing else None
            )
        if existing is not None:
            self._check_same(existing, durable, exclusive_owner, auto_delete, arguments)
            return existing
        check_queue_arguments(arguments, where)
        if self._host.queues_max is not None and len(self._topology.queues) >= self._host.queues_max:
            raise LimitReached(
                f"cannot declare queue '{name}': "
                f"queue limit in vhost '{self._host.name}' ({self._host.queues_max}) is reached"
            )
        check_lifetime(arguments, durable, exclusive_owner is not None, auto_delete, where)
        if REMOTE in arguments:
            self._host.remote_links().check(arguments[REMOTE], self._host.name, name, REMOTE)
        mapping = (
            check_members(self._topology, arguments, name, durable, None)
            if is_partitioned(arguments)
            else None
        )
        if durable:
            self._host.store.require()
        unlinked = [] if mapping is None else declare_elsewhere(self._topology, name, mapping)
        number = self._topology.numbers.take(arguments) if durable else 0
        queue = self._topology.add_queue(name, durable, exclusive_owner, auto_delete, arguments, number)
        open_stream(queue, self._host)
        partitions = partitions_of(queue)
        if partitions is not None:
            partitions.open(self._topology.queues)
        if durable:
            self._host.store.append_definition(queue_change(self._host.name, queue))
        remote = remote_of(queue)
        if remote is not None:
            self._host.remote_links().open(remote)
        link_elsewhere(self._topology, unlinked)
        warning = strategy_warning(queue.effective, arguments)
        if warning:
            self._host.warn(f"{where}: {warning}")
        self._host.warn_of_unknown(arguments, QUEUE_RULES, where)
        self._host.counters.queues_declared += 1
        self._host.counters.queues_created += 1
        return queue

    def _check_same(
        self,
        queue: Queue,
        durable: bool,
        exclusive_owner: object | None,
        auto_delete: bool,
        arguments: dict[str, object],
    ) -> None:
        """Check and count the declaration of a queue that exists. Raises ResourceLocked, Inequivalent."""
        where = self._queue_text(queue.name)
        if queue.exclusive_owner is not exclusive_owner:
            raise locked(where)
        assert_same_field("durable", queue.durable, durable, where)
        assert_same_field("auto_delete", queue.auto_delete, auto_delete, where)
        assert_same_queue_arguments(queue.arguments, arguments, where)
        touch(queue)
        self._host.counters.queues_declared += 1

    def generate_name(self) -> str:
        """Return a name that no queue has."""
        name = ""
        while not name or name in self._topology.queues:
            name = _GENERATED_PREFIX + self._names()
        return name

    def find_queue(self, name: str, owner: object | None = None) -> Queue:
        """Find a queue (a passive declaration, and every other use).

        Raises:
            NotFound: no queue has this name.
            ResourceLocked: the queue is exclusive to another connection.
        """
        queue = self._topology.queues.get(name)
        if queue is None:
            raise NotFound(f"no {self._queue_text(name)}")
        self.check_owner(queue, owner)
        return queue

    def delete_queue(self, name: str, if_unused: bool, if_empty: bool, owner: object | None = None) -> int:
        """Delete a queue. Return how many messages were ready. An absent queue counts as deleted.

        Raises:
            ResourceLocked: the queue is exclusive to another connection.
            PreconditionFailed: it has consumers and `if_unused` is set, or messages and `if_empty`, or is a
                member of a partitioned queue.
            StoreFailed: the queue is durable and the log has stopped.
        """
        queue = self._topology.queues.get(name)
        if queue is None:
            return 0
        self.check_owner(queue, owner)
        if queue.member is not None and not queue.member.is_leaving:
            raise PreconditionFailed(
                f"{self._queue_text(name)} is a member of partitioned queue '{queue.member.front_name}': "
                "remove it there first"
            )
        ready = queue.ready
        totals = totals_of(queue)
        waiting = totals.ready + totals.held + totals.dead + count_delayed(queue)
        if if_empty and (waiting or queue.manager.returns):
            raise PreconditionFailed(f"{self._queue_text(name)} not empty")
        if if_unused and queue.consumer_count:
            raise PreconditionFailed(f"{self._queue_text(name)} in use")
        if queue.durable:
            self._host.store.require()
        self.force_delete(queue)
        return ready

    def delete_exclusive_queues(self, owner: object) -> None:
        """Delete the exclusive queues of a connection that has ended."""
        for queue in self._topology.owned_by(owner):
            self.force_delete(queue)

    def delete_if_unused(self, queue: Queue) -> None:
        """Delete an auto-delete queue if its last consumer was cancelled or lost."""
        if queue.auto_delete and not queue.consumer_count and self._topology.queues.get(queue.name) is queue:
            self.force_delete(queue)
        self._dependents.check_lifespan(queue)

    def purge_queue(self, name: str, owner: object | None = None) -> Purge:
        """Drop the ready messages of a queue, in slices if they are many.

        Raises:
            NotFound: no queue has this name.
            ResourceLocked: the queue is exclusive to another connection.
            Unsupported: the queue is a stream.
        """
        return purge(self.find_queue(name, owner), self._host.schedule)

    def check_owner(self, queue: Queue, owner: object | None) -> None:
        """Refuse a queue that is exclusive to another connection.

        Raises:
            ResourceLocked: the queue is exclusive to another connection.
        """
        if queue.exclusive_owner is not None and queue.exclusive_owner is not owner:
            raise locked(self._queue_text(queue.name))

    def delete_exchanges(self, exchanges: list[Exchange]) -> None:
        """Delete exchanges, and auto-delete exchanges that lose their last binding with them."""
        pending = exchanges
        while pending:
            exchange = pending.pop()
            if self._topology.exchanges.get(exchange.name) is exchange:
                if exchange.durable:  # first, because this record lets the store forget its kept messages
                    self._host.store.append_definition(exchange_deleted(self._host.name, exchange))
                elif self._host.journal.on:
                    self._host.journal.changed(exchange_deleted(self._host.name, exchange))
                pending += self._topology.remove_exchange(exchange)

    def force_delete(self, queue: Queue) -> None:
        """Delete a queue, also if it is in use, and append the deletion."""
        if queue.unacked > 0:
            for settlement in list(self._host.settlements):
                settlement.finish_before_deletion(queue)
        if queue.manager.discards is not None:
            queue.manager.discards.finish()
        if queue.limits is not None and queue.limits.starts_dead_lettering(QUEUE_DELETED):
            return  # the queue is deleted after its messages
        if queue.durable:  # first, because this record lets the store forget its messages
            self._host.store.append_definition(queue_deleted(self._host.name, queue))
        self._host.counters.queues_deleted += 1
        self.delete_exchanges(self._topology.remove_queue(queue))

    def bind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str,
        arguments: dict[str, object],
        owner: object | None = None,
    ) -> None:
        """Bind a queue to an exchange; an existing equal binding stays the only one.

        Raises:
            AccessRefused: the default exchange.
            NotFound: the exchange or the queue does not exist.
            ResourceLocked: the queue is exclusive to another connection.
            PreconditionFailed: the exchange does not support the arguments.
            StoreFailed: both ends are durable and the log has stopped.
        """
        refuse_default_exchange(exchange)
        source = self._topology.existing_exchange(exchange)
        self._bind(source, self.find_queue(queue, owner), routing_key, arguments)

    def unbind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str,
        arguments: dict[str, object],
        owner: object | None = None,
    ) -> None:
        """Remove a binding to a queue; an absent one counts as removed.

        Raises:
            AccessRefused: the default exchange.
            ResourceLocked: the queue is exclusive to another connection.
            StoreFailed: the binding is durable and the log has stopped.
        """
        refuse_default_exchange(exchange)
        existing = self._topology.queues.get(queue)
        if existing is not None:
            self.check_owner(existing, owner)
        self._unbind(exchange, existing, routing_key, arguments)

    def bind_exchange(
        self, destination: str, source: str, routing_key: str, arguments: dict[str, object]
    ) -> None:
        """Bind an exchange to another: matching messages are routed on to `destination`. Cycles are allowed.

        Raises:
            AccessRefused: the default exchange on either side.
            NotFound: an exchange does not exist.
            PreconditionFailed: the source does not support the arguments.
            StoreFailed: both ends are durable and the log has stopped.
        """
        refuse_default_exchange(destination)
        refuse_default_exchange(source)
        start = self._topology.existing_exchange(source)
        self._bind(start, self._topology.existing_exchange(destination), routing_key, arguments)

    def unbind_exchange(
        self, destination: str, source: str, routing_key: str, arguments: dict[str, object]
    ) -> None:
        """Remove a binding to an exchange; an absent one counts as removed.

        Raises:
            AccessRefused: the default exchange on either side.
            StoreFailed: the binding is durable and the log has stopped.
        """
        refuse_default_exchange(destination)
        refuse_default_exchange(source)
        self._unbind(source, self._topology.exchanges.get(destination), routing_key, arguments)

    def _bind(
        self, source: Exchange, destination: Queue | Exchange, routing_key: str, arguments: dict[str, object]
    ) -> None:
        check_length("routing key", routing_key)
        binding = Binding(source, destination, routing_key, arguments)
        source.check(binding)
        if source.binding(destination, binding.key) is not None:
            return
        history = source.history
        if binding.durable or history is not None:
            self._host.store.require()
        if binding.durable:
            self._host.store.append_definition(binding_change(self._host.name, binding))
        elif self._host.journal.on:
            self._host.journal.changed(binding_change(self._host.name, binding))
        self._topology.add_binding(binding)
        if history is not None:
            for message in history.messages(self._host.schedule.date()):
                self._publisher.replay(message, binding)

    def _unbind(
        self,
        exchange: str,
        destination: Queue | Exchange | None,
        routing_key: str,
        arguments: dict[str, object],
    ) -> None:
        source = self._topology.exchanges.get(exchange)
        if source is None or destination is None:
            return
        binding = source.binding(destination, binding_key(routing_key, arguments))
        if binding is None:
            return
        if binding.durable:
            self._host.store.require()
            self._host.store.append_definition(binding_deleted(self._host.name, binding))
        elif self._host.journal.on:
            self._host.journal.changed(binding_deleted(self._host.name, binding))
        self.delete_exchanges(self._topology.remove_binding(binding))

    def _queue_text(self, name: str) -> str:
        return f"queue '{name}' in vhost '{self._host.name}'"

    def _exchange_text(self, name: str) -> str:
        return f"exchange '{name}' in vhost '{self._host.name}'"
