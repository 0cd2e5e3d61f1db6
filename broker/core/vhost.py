"""A virtual host: its bindings on request."""

from __future__ import annotations

from typing import final

from broker.core.binding import Binding, binding_key
from broker.core.definitions import binding_change, binding_deleted
from broker.core.exchange import Exchange
from broker.core.names import check_length, refuse_default
from broker.core.publishing import Publishing
from broker.core.queue import Queue


@final
class VirtualHost(Publishing):
    """A name space of exchanges and queues.

    `epoch` grows with every change of them; a `Route` of an older epoch is stale. `names` gives the random
    part of the names of queues that the broker names, `numbers` those of logged queues.
    """

    def bind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str,
        arguments: dict[str, object],
        owner: object | None = None,
    ) -> None:
        """Bind a queue to an exchange; a binding that is there already stays the only one.

        Raises:
            AccessRefused: the default exchange.
            NotFound: the exchange or the queue does not exist.
            ResourceLocked: the queue is exclusive to another.
            PreconditionFailed: the exchange cannot do what the arguments ask.
            StoreFailed: both ends are durable and the log has stopped.
        """
        refuse_default(exchange)
        source = self.existing_exchange(exchange)
        self._bind(source, self.queue(queue, owner), routing_key, arguments)

    def unbind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str,
        arguments: dict[str, object],
        owner: object | None = None,
    ) -> None:
        """Remove a binding to a queue; one that is absent is removed already.

        Raises:
            AccessRefused: the default exchange.
            ResourceLocked: the queue is exclusive to another.
            StoreFailed: the binding is durable and the log has stopped.
        """
        refuse_default(exchange)
        found = self.queues.get(queue)
        if found is not None:
            self.check_owner(found, owner)
        self._unbind(exchange, found, routing_key, arguments)

    def bind_exchange(
        self, destination: str, source: str, routing_key: str, arguments: dict[str, object]
    ) -> None:
        """Bind an exchange to another: what matches goes on to `destination`. Cycles are allowed.

        Raises:
            AccessRefused: the default exchange on either side.
            NotFound: one of them does not exist.
            PreconditionFailed: the source cannot do what the arguments ask.
            StoreFailed: both ends are durable and the log has stopped.
        """
        refuse_default(destination)
        refuse_default(source)
        start = self.existing_exchange(source)
        self._bind(start, self.existing_exchange(destination), routing_key, arguments)

    def unbind_exchange(
        self, destination: str, source: str, routing_key: str, arguments: dict[str, object]
    ) -> None:
        """Remove a binding to an exchange; one that is absent is removed already.

        Raises:
            AccessRefused: the default exchange on either side.
            StoreFailed: the binding is durable and the log has stopped.
        """
        refuse_default(destination)
        refuse_default(source)
        self._unbind(source, self.exchanges.get(destination), routing_key, arguments)

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
            self.store.require()
        if binding.durable:
            self.store.append_definition(binding_change(self.name, binding))
        elif self.journal.on:
            self.journal.changed(binding_change(self.name, binding))
        self.add_binding(binding)
        if history is not None:
            for message in history.messages(self.schedule.date()):
                self.replay(message, binding)

    def _unbind(
        self,
        exchange: str,
        destination: Queue | Exchange | None,
        routing_key: str,
        arguments: dict[str, object],
    ) -> None:
        source = self.exchanges.get(exchange)
        if source is None or destination is None:
            return
        binding = source.binding(destination, binding_key(routing_key, arguments))
        if binding is None:
            return
        if binding.durable:
            self.store.require()
            self.store.append_definition(binding_deleted(self.name, binding))
        elif self.journal.on:
            self.journal.changed(binding_deleted(self.name, binding))
        self.delete_exchanges(self.remove_binding(binding))
