"""Declarations: clients declare, delete and purge queues and exchanges; refusals use RabbitMQ's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.core.arguments.equivalence import (
    assert_same_exchange_arguments,
    assert_same_field,
    assert_same_queue_arguments,
)
from broker.core.arguments.queue import (
    check_exchange_arguments,
    check_lasting,
    check_queue_arguments,
    strategy_warning,
)
from broker.core.chance import Chance
from broker.core.counters import Counters
from broker.core.errors import AccessRefused, LimitReached, NotFound, PreconditionFailed, locked
from broker.core.names import check_name, is_predeclared, refuse_default
from broker.core.policies.policy import typed
from broker.core.ports import MessageStore
from broker.core.publishing.delay import delayed_in
from broker.core.publishing.publisher import Publishing
from broker.core.queues.death import LetterWriter, bare_letter
from broker.core.queues.hooks import QUEUE_DELETED
from broker.core.queues.host import ignore_report
from broker.core.queues.limits import touch
from broker.core.queues.purge import Purge, purge
from broker.core.queues.queue import Queue
from broker.core.queues.state import QueueState
from broker.core.routing.graph import Exchange
from broker.core.routing.kinds import check_kind, new_exchange
from broker.core.routing.topology import QueueNumbers
from broker.core.schedule import Schedule
from broker.core.streams.stream import open_stream
from broker.core.vhosts.changes import exchange_change, exchange_deleted, queue_change, queue_deleted
from broker.core.vhosts.deletion import Dependents, Vacating
from broker.core.vhosts.policies import Policies
from broker.core.view import Views

_GENERATED_PREFIX: Final = "amq.gen-"


class Declarations(Publishing):
    """The requests of clients. `owner` is the requesting connection; only it may use its exclusive queues."""

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
    ) -> None:
        super().__init__(
            name, store, counters, numbers, schedule, Chance(names), views, write_letter, trouble
        )
        self._names = names
        self.policies = Policies(self)
        self.dependents = Dependents(schedule)

    def cover_queue(self, queue: Queue) -> None:
        """Apply the policies that match a queue (Topology)."""
        self.policies.cover_queue(queue)

    def cover_exchange(self, exchange: Exchange) -> None:
        """Apply the policies that match an exchange (Topology)."""
        self.policies.cover_exchange(exchange)

    def removed(self, node: Queue | Exchange) -> None:
        """Inform dependent objects that a queue or an exchange has been deleted (Topology)."""
        self.dependents.cut_off(node)

    def vacate(self) -> Vacating:
        """Drop everything, because the virtual host is deleted.

        The caller disposes of the returned contents.
        """
        self.policies.stop()
        for settlement in list(self.settlements):
            settlement.drop_all()
        vacating = Vacating(self, self.dependents, self.queues, self.exchanges)
        self.queues = {}
        self.exchanges = {}
        self._owned = {}
        self.changed()
        return vacating

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
        refuse_default(name)
        where = self._exchange_text(name)
        found = self.exchanges.get(name)
        if found is not None:
            assert_same_field("type", found.kind, kind, where)
            assert_same_field("durable", found.durable, durable, where)
            assert_same_field("auto_delete", found.auto_delete, auto_delete, where)
            assert_same_field("internal", found.internal, internal, where)
            assert_same_exchange_arguments(found.arguments, arguments, where)
            return found
        check_name("exchange", name)
        check_exchange_arguments(arguments, where)
        if durable:
            self.store.require()
        exchange = new_exchange(name, kind, durable, auto_delete, internal, arguments)
        self.add_exchange(exchange, self.numbers.take() if durable and exchange.keeps else 0)
        if durable:
            self.store.append_definition(exchange_change(self.name, exchange))
        elif self.journal.on:
            self.journal.changed(exchange_change(self.name, exchange))
        return exchange

    def exchange(self, name: str) -> Exchange:
        """Find an exchange (a passive declaration).

        Raises:
            NotFound: no exchange has this name.
            AccessRefused: the default exchange.
        """
        refuse_default(name)
        return self.existing_exchange(name)

    def delete_exchange(self, name: str, if_unused: bool) -> None:
        """Delete an exchange with its bindings; an absent exchange counts as deleted.

        Raises:
            AccessRefused: the default exchange, or a predeclared one.
            PreconditionFailed: the exchange has bindings and `if_unused` is set.
            StoreFailed: the exchange is durable and the log has stopped.
        """
        refuse_default(name)
        if is_predeclared(name):
            raise AccessRefused(f"deletion of system {self._exchange_text(name)} not allowed")
        exchange = self.exchanges.get(name)
        if exchange is None:
            return
        if if_unused and exchange.outgoing:
            raise PreconditionFailed(f"{self._exchange_text(name)} in use")
        if exchange.durable:
            self.store.require()
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
        """Make a queue, or find an existing one with the same properties; the empty name asks for a new one.

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
        found = self.queues.get(name)
        if self.default_queue_type is not None and durable and not auto_delete:
            arguments = typed(arguments, self.default_queue_type, found.arguments if found else None)
        if found is not None:
            if found.exclusive_owner is not exclusive_owner:
                raise locked(self._queue_text(name))
            assert_same_field("durable", found.durable, durable, where)
            assert_same_field("auto_delete", found.auto_delete, auto_delete, where)
            assert_same_queue_arguments(found.arguments, arguments, where)
            touch(found)
            return found
        check_queue_arguments(arguments, where)
        if self.queues_max is not None and len(self.queues) >= self.queues_max:
            raise LimitReached(
                f"cannot declare queue '{name}': "
                f"queue limit in vhost '{self.name}' ({self.queues_max}) is reached"
            )
        check_lasting(arguments, durable, exclusive_owner is not None, auto_delete, where)
        if durable:
            self.store.require()
        number = self.numbers.take(arguments) if durable else 0
        queue = self.add_queue(name, durable, exclusive_owner, auto_delete, arguments, number)
        open_stream(queue, self)
        if durable:
            self.store.append_definition(queue_change(self.name, queue))
        warning = strategy_warning(queue.effective, arguments)
        if warning:
            self.warn(f"{where}: {warning}")
        return queue

    def generate_name(self) -> str:
        """Return a name that no queue has."""
        name = ""
        while not name or name in self.queues:
            name = _GENERATED_PREFIX + self._names()
        return name

    def queue(self, name: str, owner: object | None = None) -> Queue:
        """Find a queue (a passive declaration, and every other use).

        Raises:
            NotFound: no queue has this name.
            ResourceLocked: the queue is exclusive to another connection.
        """
        queue = self.queues.get(name)
        if queue is None:
            raise NotFound(f"no {self._queue_text(name)}")
        self.check_owner(queue, owner)
        return queue

    def delete_queue(self, name: str, if_unused: bool, if_empty: bool, owner: object | None = None) -> int:
        """Delete a queue. Return how many messages were ready. An absent queue counts as deleted.

        Raises:
            ResourceLocked: the queue is exclusive to another connection.
            PreconditionFailed: it has consumers and `if_unused` is set, or messages and `if_empty`.
            StoreFailed: the queue is durable and the log has stopped.
        """
        queue = self.queues.get(name)
        if queue is None:
            return 0
        self.check_owner(queue, owner)
        ready = queue.ready
        if if_empty and (ready + queue.held + queue.dead + delayed_in(queue) or queue.manager.returns):
            raise PreconditionFailed(f"{self._queue_text(name)} not empty")
        if if_unused and queue.consumer_count:
            raise PreconditionFailed(f"{self._queue_text(name)} in use")
        if queue.durable:
            self.store.require()
        self._delete_queue(queue)
        return ready

    def delete_exclusive_queues(self, owner: object) -> None:
        """Delete the exclusive queues of a connection that has ended."""
        for queue in self.owned_by(owner):
            self._delete_queue(queue)

    def consumer_gone(self, queue: Queue) -> None:
        """Delete an auto-delete queue if its last consumer was cancelled or lost."""
        if queue.auto_delete and not queue.consumer_count and self.queues.get(queue.name) is queue:
            self._delete_queue(queue)
        self.dependents.left(queue)

    def purge_queue(self, name: str, owner: object | None = None) -> Purge:
        """Drop the ready messages of a queue, in slices if they are many.

        Raises:
            NotFound: no queue has this name.
            ResourceLocked: the queue is exclusive to another connection.
            Unsupported: the queue is a stream.
        """
        return purge(self.queue(name, owner), self.schedule)

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
            if self.exchanges.get(exchange.name) is exchange:
                if exchange.durable:  # first, because this record lets the store forget its kept messages
                    self.store.append_definition(exchange_deleted(self.name, exchange))
                elif self.journal.on:
                    self.journal.changed(exchange_deleted(self.name, exchange))
                pending += self.remove_exchange(exchange)

    def queue_unused(self, queue: QueueState) -> None:
        """Delete a queue that was unused for as long as its arguments say (QueueHost)."""
        found = self.queues.get(queue.name)
        if found is queue and found is not None:
            self._delete_queue(found)

    def note_queue(self, queue: QueueState) -> None:
        """Append the queue's definition, which contains the change (QueueHost)."""
        found = self.queues.get(queue.name)
        if found is queue and found is not None:
            self.store.append_definition(queue_change(self.name, found))

    def _delete_queue(self, queue: Queue) -> None:
        if queue.unacked > 0:
            for settlement in list(self.settlements):
                settlement.finish_before_deletion(queue)
        if queue.manager.discards is not None:
            queue.manager.discards.finish()
        if queue.rules is not None and queue.rules.starts_dead_lettering(QUEUE_DELETED):
            return  # it is deleted after its messages
        if queue.durable:  # first, because this record lets the store forget its messages
            self.store.append_definition(queue_deleted(self.name, queue))
        self.delete_exchanges(self.remove_queue(queue))

    def _queue_text(self, name: str) -> str:
        return f"queue '{name}' in vhost '{self.name}'"

    def _exchange_text(self, name: str) -> str:
        return f"exchange '{name}' in vhost '{self.name}'"
