"""A virtual host: clients declare, bind and alter its objects, and publish to it.

[Bernstein and Newcomer, Principles of Transaction Processing 4.5: modify a queue's attributes]
"""

from __future__ import annotations

from typing import Final, final

from broker.core.arguments.queue import check_queue_arguments, kind_of
from broker.core.arguments.rule import Arguments
from broker.core.errors import PreconditionFailed
from broker.core.names import check_length, check_name, refuse_default
from broker.core.policies.policy import ARGUMENT_PREFIX, QUEUE_KEYS, WITHOUT_EFFECT
from broker.core.queues.election import set_stopped, stopped
from broker.core.queues.queue import Queue
from broker.core.routing.graph import Binding, Exchange, binding_key
from broker.core.vhosts.changes import binding_change, binding_deleted, queue_change
from broker.core.vhosts.declarations import Declarations


@final
class VirtualHost(Declarations):
    """A name space of exchanges and queues.

    `epoch` grows with every change of them; a `Route` of an older epoch is stale. `names` returns the random
    part of the queue names that the broker generates, `numbers` the numbers of logged queues.
    """

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
        """Remove a binding to a queue; an absent one counts as removed.

        Raises:
            AccessRefused: the default exchange.
            ResourceLocked: the queue is exclusive to another connection.
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
        """Bind an exchange to another: matching messages are routed on to `destination`. Cycles are allowed.

        Raises:
            AccessRefused: the default exchange on either side.
            NotFound: one of them does not exist.
            PreconditionFailed: the source does not support the arguments.
            StoreFailed: both ends are durable and the log has stopped.
        """
        refuse_default(destination)
        refuse_default(source)
        start = self.existing_exchange(source)
        self._bind(start, self.existing_exchange(destination), routing_key, arguments)

    def unbind_exchange(
        self, destination: str, source: str, routing_key: str, arguments: dict[str, object]
    ) -> None:
        """Remove a binding to an exchange; an absent one counts as removed.

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


ALTERABLE: Final = frozenset(ARGUMENT_PREFIX + key for key in QUEUE_KEYS - WITHOUT_EFFECT)
"""The alterable arguments: policies can set them too, so every queue supports a change of them."""


def stop_queue(topology: VirtualHost, queue: Queue, names: list[str]) -> None:
    """Switch off exactly these operations, `election.ENQUEUE` and `DEQUEUE`.

    Raises:
        StoreFailed: the queue is durable and the log has stopped.
    """
    if stopped(queue) == names:
        return
    if queue.durable:
        topology.store.require()
    set_stopped(queue, names)
    _append(topology, queue)


def altered_arguments(queue: Queue, changes: Arguments) -> Arguments:
    """Return the arguments of `queue` with `changes`; None removes an argument.

    Raises:
        PreconditionFailed: an argument cannot be altered, or not to that value.
    """
    where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    for name in changes:
        if name not in ALTERABLE:
            raise PreconditionFailed(
                f"arg '{name}' of {where} cannot be altered, others can: {', '.join(sorted(ALTERABLE))}"
            )
    altered = {name: value for name, value in (queue.arguments | changes).items() if value is not None}
    check_queue_arguments(altered, where)
    kind, changed = kind_of(queue.arguments), kind_of(altered)
    if changed != kind:
        names = ", ".join(f"'{name}'" for name in sorted(changes))
        raise PreconditionFailed(
            f"arg {names} of {where} cannot be altered so: the queue would be of the kind '{changed}' "
            f"and is of the kind '{kind}'"
        )
    return altered


def alter_queue(topology: VirtualHost, queue: Queue, name: str, arguments: Arguments, shared: bool) -> None:
    """Rename `queue` to `name` and set these arguments, which `altered_arguments` has checked.

    Its messages, its consumers and its bindings stay. `shared`: an exclusive queue becomes usable by all
    connections, and is not deleted with its connection.

    Raises:
        AccessRefused: the new name begins with `amq.`.
        PreconditionFailed: there is a queue of that name, or it is too long.
        StoreFailed: the queue is durable and the log has stopped.
    """
    renamed = name != queue.name
    if renamed:
        check_name("queue", name)
        if name in topology.queues:
            raise PreconditionFailed(
                f"queue '{queue.name}' cannot be called '{name}': there is such a queue in vhost "
                f"'{topology.name}'"
            )
    if queue.durable:
        topology.store.require()
    queue.arguments = arguments
    if renamed:
        topology.rename_queue(queue, name)
    topology.cover_queue(queue)
    if shared:
        topology.share_queue(queue)
    _append(topology, queue)


def _append(topology: VirtualHost, queue: Queue) -> None:
    if topology.journal.on:
        topology.journal.changed(queue_change(topology.name, queue))
    if queue.durable:
        topology.store.append_definition(queue_change(topology.name, queue))
