"""The publisher of a virtual host: it routes messages and puts them into their queues."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.delivery.journal import QUEUE_FULL
from broker.core.message import AWAITS_REMOTE, DELAYED, TELLS_ARRIVAL, Address, Message
from broker.core.message_view import NO_READER, MessageView, Origin
from broker.core.names import check_length
from broker.core.partitions.partitioned import Partitioned, spread
from broker.core.publishing.dead_letters import DeadLetters
from broker.core.publishing.delay import delay
from broker.core.publishing.receipts import Receipts
from broker.core.publishing.routed_message import (
    RoutedMessage,
    find_full_queue,
    refuse_if_full,
    set_date,
    unlogged_copy,
)
from broker.core.queues.duplicates import memory_of, new_mark
from broker.core.queues.immediate import enqueue_immediate
from broker.core.queues.queue import Queue
from broker.core.queues.source import BROKER, DELAY_SOURCE, Source
from broker.core.queues.stops import check_enqueue
from broker.core.remotes.remote import RemoteWait, hold_for_remotes
from broker.core.routing.graph import NO_QUEUES, Binding, Exchange, Resolution, Route
from broker.core.routing.routes import open_exchange, refresh_route, resolve_route
from broker.core.routing.topology import Topology
from broker.core.schedule import FAN_OUT, PROPERTIES, QUEUES


@final
class Outcome:
    """The outcome of a publish: one of the constants of this module, compared with `is`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


ROUTED: Final = Outcome("routed")  # a queue or a delayed exchange has the message
UNROUTED: Final = Outcome("unrouted")  # no queue is bound for the message
NO_CONSUMER: Final = Outcome("no consumer")  # no consumer could get the immediate message at once
REFUSED: Final = Outcome("refused")  # a queue is full, or lacks the predecessor; no queue has it
DUPLICATE: Final = Outcome("duplicate")  # all queues had the message before


@final
class Publisher:
    """Publishes the messages of clients, and of the broker, in one virtual host.

    `source` of the methods is the session that publishes a message, or `BROKER`.
    """

    def __init__(self, topology: Topology, dead_letters: DeadLetters, receipts: Receipts) -> None:
        host = topology.host
        self.topology = topology
        self.host = host
        self.dead_letters = dead_letters
        self.receipts = receipts
        self._store = host.store
        self._counters = host.counters
        self._schedule = host.schedule
        self._journal = host.journal
        self._remote_wait: RemoteWait | None = None  # the wait of the last message
        self._reader = NO_READER  # for the headers of forwarded messages
        self._origin = Origin()  # the origin of the last forwarded message

    # ---- routes

    def route(self, exchange: str, routing_key: str, publisher: tuple[str, ...] = ()) -> Route:
        """Resolve the queues of messages with this exchange and key. The caller keeps the route.

        `publisher`: see `Route`.

        Raises:
            NotFound: there is no such exchange.
            AccessRefused: the exchange is internal.
            PreconditionFailed: the routing key is longer than 255 bytes.
        """
        check_length("routing key", routing_key)
        source = open_exchange(self.topology, exchange)
        route = Route(Address(exchange, routing_key), source, publisher)
        resolve_route(self.topology, route)
        return route

    def refresh(self, route: Route) -> None:
        """Resolve the queues of a route again, if the topology has changed.

        Raises:
            NotFound: the exchange has been deleted; the route stays stale.
            AccessRefused: another exchange has its name now and is internal.
            ExchangeReplaced: another exchange has its name now, and the route is pinned.
        """
        if route.epoch != self.topology.epoch:
            refresh_route(self.topology, route)

    def resolve(self, route: Route, message: Message, keys: list[str], view: MessageView) -> Resolution:
        """Resolve the queues of one message of a route, and its delay. Raises the errors of `refresh`."""
        self.refresh(route)
        topology = self.topology
        resolution = Resolution(self.host.chance)
        resolution.resolve(route.exchange, keys, view, topology.exchanges)
        topology.no_local.remove_queues(resolution, route.publisher)
        resolution.delay_message(message, self._schedule)
        return resolution

    # ---- publishes

    def publish(
        self, route: Route, message: Message, source: Source = BROKER, immediate: bool = False
    ) -> Outcome:
        """Put a message into all queues of a route.

        `immediate`: a queue accepts the message only if a consumer can get it at once.

        Raises:
            PreconditionFailed: a queue deduplicates, and the message's identity is malformed.
            NotFound, AccessRefused, ExchangeReplaced: the route was stale, as for `refresh`.
            QueueStopped: a queue is stopped, and no queue has got the message.
            StoreFailed: the message is persistent, a queue is logged and the log has stopped.
        """
        if route.epoch != self.topology.epoch:
            refresh_route(self.topology, route)
        if route.careful:
            is_numbered = route.remembers and source.names_origins and not immediate
            if is_numbered and self._publish_next(route, message, source):
                return ROUTED
            if route.partitions is not None and not immediate:
                return self._publish_to_member(route.exchange, route.partitions, message, source)
            return self.publish_carefully(route, message, source, immediate)
        self._counters.count_publish(message.size)
        exchange = route.exchange
        exchange.published_in += 1
        if message.persistent and route.logged:
            self._append(message, route.logged)
        queues = route.queues
        if immediate:
            return self._find_outcome(
                message, queues, self._deliver_now(queues, message, message, source), source
            )
        for queue in queues:
            queue.enqueue(message, source)
        count: i64 = len(queues)
        exchange.published_out += count
        if count == 0:
            self._note_unrouted(message, queues, source)
            return UNROUTED
        if count > FAN_OUT:
            self._schedule.allowance.use(count // QUEUES)
        return ROUTED

    def _publish_next(self, route: Route, message: Message, source: Source) -> bool:
        """Put a forwarded message into the queue of its route if it is the next message of its origin.

        This is `publish_carefully` for the usual case. False: the message needs `publish_carefully`, and
        nothing has happened. Raises StoreFailed.
        """
        queue = route.queues[0]
        memory = memory_of(queue)
        if memory is None or memory.window > 0 or memory.producers_max == 0:
            return False
        if not message.persistent or message.marks != 0 or message.expiration >= 0:
            return False
        content = message.content
        if content is None:
            return False
        if self._reader is NO_READER:
            self._reader = self.host.views(message, self._store).reader()
        origin = self._origin
        if not self._reader.read_origin(content, origin):
            return False
        if not memory.is_next(origin.producer, origin.position, origin.preceding):
            return False
        self._counters.count_publish(message.size)
        route.exchange.published_in += 1
        route.exchange.published_out += 1
        self._append(message, route.logged)
        if memory.raise_mark(origin.producer, origin.position):
            queue.enqueue(message, source)
            return True
        mark = new_mark(origin.producer, origin.position, True, self._schedule.date())
        batch = self._store.batch
        self._append(mark, route.logged)
        queue.enqueue(message, source)
        memory.keep(mark, batch)
        return True

    def _publish_to_member(
        self, exchange: Exchange, partitions: Partitioned, message: Message, source: Source
    ) -> Outcome:
        """Put a message into a member of the only queue of its route. Raises the errors of `publish`."""
        queue = partitions.choose(message, None)
        if queue is None:
            return self._publish(exchange, RoutedMessage(message, NO_QUEUES, [], source), False)
        limits = queue.limits
        slow = queue.memory is not None or queue.stops is not None or queue.remote is not None
        if slow or (limits is not None and limits.careful):
            return self._publish(exchange, RoutedMessage(message, [queue], [], source), False)
        self._counters.count_publish(message.size)
        exchange.published_in += 1
        exchange.published_out += 1
        if message.persistent and queue.logged:
            self._append(message, [queue])
        queue.enqueue(message, source)
        return ROUTED

    def publish_carefully(
        self, route: Route, message: Message, source: Source = BROKER, immediate: bool = False
    ) -> Outcome:
        """Publish a message that itself needs the slow path; `publish` takes it for careful routes.

        Otherwise like `publish`.
        """
        self.refresh(route)
        if route.by_message:
            self._schedule.allowance.use(PROPERTIES)
            view = self.host.views(message, self._store)
            return self.publish_by_message(
                route, message, [route.address.routing_key], view, source, immediate
            )
        passage = RoutedMessage(message, route.queues, [], source)
        return self._publish(route.exchange, passage, immediate)

    def publish_by_message(
        self,
        route: Route,
        message: Message,
        keys: list[str],
        view: MessageView,
        source: Source = BROKER,
        immediate: bool = False,
    ) -> Outcome:
        """Put a message into the queues of all its routing keys, headers and other content, once into each.

        `keys` are the route's own and those that the publisher has added. Otherwise like `publish`.

        Raises the errors of `publish`.
        """
        resolution = self.resolve(route, message, keys, view)
        passage = RoutedMessage(message, list(resolution.queues), resolution.keepers, source, view)
        return self._publish(route.exchange, passage, immediate)

    def _publish(self, exchange: Exchange, passage: RoutedMessage, immediate: bool) -> Outcome:
        check_enqueue(passage.queues)
        passage.identify(self.host)
        self._counters.count_publish(passage.message.size)
        exchange.published_in += 1
        if passage.is_duplicate:
            return DUPLICATE
        message = passage.message
        if passage.has_gap:
            return REFUSED
        if not immediate and refuse_if_full(self.host, message, passage.queues):
            if self._journal.on:
                full = find_full_queue(message, passage.queues)
                self._journal.refused(passage.source, message.address, message, QUEUE_FULL, full)
            return REFUSED
        set_date(self.host, message, passage.queues)
        self._append_to(passage, not immediate)
        exchange.published_out += len(passage.queues)
        return self.put(passage, immediate)

    def put(self, passage: RoutedMessage, immediate: bool) -> Outcome:
        """Put a message that has been appended into its queues."""
        message = passage.message
        queues = passage.queues
        keepers = passage.keepers
        source = passage.source
        identity = passage.identity
        unlogged = unlogged_copy(message, queues, keepers)
        kept: i64 = 0
        for keeper in keepers:
            keeper.add(message if keeper.queue.logged else unlogged)
            kept += keeper.counts_as_routed
        takers = queues
        if immediate:
            takers = self._deliver_now(queues, message, unlogged, source)
        elif message.marks & DELAYED != 0:
            for queue in queues:
                delay(queue, self.host, message if queue.logged else unlogged, source)
        else:
            self._remote_wait = hold_for_remotes(message, queues)
            for queue in queues:
                queue.enqueue(message if queue.logged else unlogged, source)
            if len(queues) > FAN_OUT:
                self._schedule.allowance.use(len(queues) // QUEUES)
        if identity is not None:
            identity.keep(takers)
        if message.marks & (TELLS_ARRIVAL | DELAYED) == TELLS_ARRIVAL:  # else it is yet to arrive
            self.receipts.write_arrivals(message, takers)
        return ROUTED if kept > 0 else self._find_outcome(message, queues, takers, source)

    def take_remote_wait(self, message: Message) -> RemoteWait | None:
        """Return the wait for other brokers of a message that was published in this step; None: no wait."""
        if message.marks & AWAITS_REMOTE == 0:
            return None
        wait, self._remote_wait = self._remote_wait, None
        return wait

    # ---- messages that exchanges have kept

    def send_delayed(
        self, message: Message, source: Exchange, keys: list[str], held: Message, holder: Queue
    ) -> bool:
        """Route a message that an exchange has delayed, by the bindings as they are now."""
        host = self.host
        resolution = Resolution(host.chance)
        resolution.resolve(source, keys, host.views(message, self._store), self.topology.exchanges)
        passage = RoutedMessage(message, list(resolution.queues), resolution.keepers, DELAY_SOURCE)
        for queue in passage.queues:
            if queue.limits is not None and queue.limits.refuses(message) and not queue.limits.passes_on:
                return False
            if queue.stream is not None and self._store.failure:
                return False
        if not passage.queues:
            self._note_unrouted(message, passage.queues, BROKER)
        passage.identify_republished(host)
        set_date(host, message, passage.queues)
        self.dead_letters.put_delayed(passage, held if held.sequence != 0 else None, holder)
        return True

    def replay(self, message: Message, binding: Binding) -> None:
        """Send a message from an exchange's history along a new binding only."""
        host = self.host
        view = host.views(message, self._store)
        if not binding.applies(view):
            return
        resolution = Resolution(host.chance)
        resolution.add_binding(binding)
        resolution.visit_pending([message.address.routing_key], view, self.topology.exchanges)
        chosen = spread(list(resolution.queues), message, view)
        queues = [queue for queue in chosen if not refuse_if_full(host, message, [queue])]
        set_date(host, message, queues)
        resolution.delay_message(message, self._schedule)
        passage = RoutedMessage(message, queues, resolution.keepers, BROKER)
        passage.identify_republished(host)
        self._append_to(passage)
        if passage.queues or passage.keepers:
            self.put(passage, False)

    # ---- steps

    def find_refusal(self, message: Message, queues: list[Queue], immediate: bool) -> str:
        """Return why these queues would not accept a message, "" if they would."""
        store = self._store
        for queue in queues:
            kept = (message.persistent and queue.logged) or queue.stream is not None
            if kept and store.failure:
                return store.refusal
            if message.marks & DELAYED or immediate or queue.limits is None:
                continue
            if queue.limits.refuses(message):
                return f"queue '{queue.name}' in vhost '{self.host.name}' is full"
        return ""

    def _append_to(self, passage: RoutedMessage, is_kept: bool = False) -> None:
        """Append a message for its logged queues and keepers, before any of them has it.

        `is_kept`: see `DuplicateCheck.append`.
        """
        logged = passage.logged
        if logged:
            self._append(passage.message, logged)
        if passage.streams:
            self._store.require()
            passage.append_rows()
        passage.append_identity(self.host, is_kept)

    def _append(self, message: Message, logged: list[Queue]) -> None:
        """Append a persistent message once for all logged queues, before any of them has it."""
        self._store.require()
        self._counters.disk_writes += 1
        self._store.append_message(message, logged)

    def _deliver_now(
        self, queues: list[Queue], message: Message, unlogged: Message, source: Source
    ) -> list[Queue]:
        """Deliver a message to waiting consumers. Return the queues that had one.

        All other queues drop the message, in the log too.
        """
        return [
            queue
            for queue in queues
            if enqueue_immediate(queue, message if queue.logged else unlogged, source)
        ]

    def _find_outcome(
        self, message: Message, queues: list[Queue], takers: list[Queue], source: Source
    ) -> Outcome:
        """Return the outcome for a message that is routed to `queues`, of which `takers` have accepted it."""
        if takers:
            return ROUTED
        self._note_unrouted(message, queues, source)
        return NO_CONSUMER if queues else UNROUTED

    def _note_unrouted(self, message: Message, queues: list[Queue], source: Source) -> None:
        """Count a message that no queue has accepted, and record it in the journal if it has no queues."""
        self._counters.unroutable += 1
        if self._journal.on and not queues:
            self._journal.unroutable(message, source)
