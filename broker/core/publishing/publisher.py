"""Publishing: a virtual host resolves routes and puts messages into their queues."""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from broker.core.chance import Chance
from broker.core.counters import Counters
from broker.core.delivery.journal import QUEUE_FULL
from broker.core.errors import AccessRefused, ExchangeReplaced
from broker.core.message import DELAYED, TELLS_ARRIVAL, Address, Message
from broker.core.names import check_length
from broker.core.ports import MessageStore
from broker.core.publishing.dead_letters import DeadLetters
from broker.core.publishing.delay import Delays, delay
from broker.core.publishing.passage import (
    BY_MESSAGE,
    DUPLICATE,
    NOT_NOW,
    REFUSED,
    Passage,
    first_full,
    is_refused,
    set_date,
    unlogged_twin,
)
from broker.core.publishing.receipts import Receipts
from broker.core.queues.death import Death, LetterWriter, bare_letter
from broker.core.queues.election import check_enqueue, is_stopped
from broker.core.queues.hooks import BacklogHook
from broker.core.queues.host import ignore_report
from broker.core.queues.immediate import enqueue_immediate
from broker.core.queues.queue import Queue
from broker.core.queues.state import QueueState
from broker.core.routing.graph import NO_QUEUES, Binding, Exchange, Keeper, Resolution, Route
from broker.core.routing.topology import QueueNumbers, Topology
from broker.core.schedule import FAN_OUT, QUEUES, Schedule
from broker.core.view import MessageView, Views


class Publishing(Topology):
    """A virtual host's part that publishes messages, dead letters and receipts."""

    def __init__(
        self,
        name: str,
        store: MessageStore,
        counters: Counters,
        numbers: QueueNumbers,
        schedule: Schedule,
        chance: Chance,
        views: Views,
        write_letter: LetterWriter = bare_letter,
        trouble: Callable[[str], None] = ignore_report,
    ) -> None:
        super().__init__(name, store, counters, numbers, schedule, chance, views, write_letter, trouble)
        self.dead_letters = DeadLetters(self)
        self.receipts = Receipts(self)

    def changed(self) -> None:
        """Make resolved routes stale, and retry dead letters that wait for a route (QueueHost)."""
        super().changed()
        self.dead_letters.routes_changed()

    def dead_letter(self, death: Death) -> None:
        """Dead-letter a message that has left its queue (DeathHost)."""
        self.dead_letters.add(death)

    def try_again(self, death: Death) -> bool:
        """Dead-letter a message that waits in its backlog (DeathHost)."""
        return self.dead_letters.try_again(death)

    def backlog_began(self, backlog: BacklogHook) -> None:
        """Retry the messages of `backlog` when routes change (DeathHost)."""
        self.dead_letters.backlogs[backlog] = None

    def backlog_ended(self, backlog: BacklogHook) -> None:
        """Forget `backlog`, in which no message waits any more (DeathHost)."""
        self.dead_letters.backlogs.pop(backlog, None)

    def consumed(self, message: Message, queue: QueueState) -> None:
        """Write the receipts for a message that has been consumed from `queue` (QueueHost)."""
        self.receipts.consumed(message, queue)

    def pass_on(self, message: Message, queue: Queue, held: Message | None) -> None:
        """Put a message that `queue` has held until its date into `queue` (Topology)."""
        self.dead_letters.pass_on(Passage(message, [queue], []), held, queue)

    def refused(self, queue: Queue, message: Message) -> None:
        """Dead-letter a message that `queue` refuses, if the queue does so (Topology)."""
        self.dead_letters.add_refused(queue, message)

    def arrived(self, message: Message, queues: list[Queue]) -> None:
        """Write the receipts for the arrival of a message in `queues` (Topology)."""
        self.receipts.arrived(message, queues)

    def new_delays(self, exchange: Exchange, queue: Queue) -> Keeper:
        """Make the keeper of messages that `exchange` delays (Topology)."""
        return Delays(exchange, queue, self)

    def route(self, exchange: str, routing_key: str, publisher: tuple[str, ...] = ()) -> Route:
        """Resolve the queues of messages with this exchange and key. The caller keeps the route.

        `publisher`: see `Route`.

        Raises:
            NotFound: there is no such exchange.
            AccessRefused: the exchange is internal.
            PreconditionFailed: the routing key is longer than 255 bytes.
        """
        check_length("routing key", routing_key)
        source = self._publish_to(exchange)
        route = Route(Address(exchange, routing_key), source, publisher)
        self._resolve(route)
        return route

    def refresh(self, route: Route) -> None:
        """Resolve the queues of a route anew.

        Raises:
            NotFound: the exchange has been deleted; the route stays stale.
            AccessRefused: another exchange has its name now and is internal.
            ExchangeReplaced: another exchange has its name now, and the route is pinned.
        """
        route.epoch = 0
        exchange = self._publish_to(route.address.exchange)
        if route.pinned and exchange is not route.exchange:
            raise ExchangeReplaced(f"exchange '{exchange.name}' in vhost '{self.name}' is another one now")
        route.exchange = exchange
        self._resolve(route)

    def publish(self, route: Route, message: Message, immediate: bool = False) -> i64:
        """Put a message into all queues of a route; returns how many accepted it, 0: it is unroutable.

        `immediate`: a queue accepts the message only if a consumer can get it at once; `NOT_NOW` if no queue
        could.
        `BY_MESSAGE` is returned, and nothing done, if the route is `by_message`. `REFUSED` is returned if a
        queue is full; then no queue has got the message. `DUPLICATE` is returned if the message is a
        duplicate for all queues.

        Raises:
            PreconditionFailed: a queue deduplicates, and the message's identity is malformed.
            NotFound, AccessRefused, ExchangeReplaced: the route was stale, as for `refresh`.
            QueueStopped: a queue is stopped, and no queue has got the message.
            StoreFailed: the message is persistent, a queue is logged and the log has stopped.
        """
        if route.epoch != self.epoch:
            self.refresh(route)
        if route.careful:
            return self.publish_carefully(route, message, immediate)
        self.counters.published += 1
        if message.persistent and route.logged:
            self._append(message, route.logged)
        queues = route.queues
        taken: i64 = 0
        if immediate:
            taken = len(self._deliver_now(queues, message, message))
            if taken == 0:
                self._unroutable(message, queues)
                return NOT_NOW if queues else taken
            return taken
        for queue in queues:
            queue.enqueue(message)
        taken = len(queues)
        if taken == 0:
            self._unroutable(message, queues)
        elif taken > FAN_OUT:
            self.schedule.allowance.use(taken // QUEUES)
        return taken

    def publish_by_message(
        self,
        route: Route,
        message: Message,
        keys: list[str],
        view: MessageView,
        immediate: bool = False,
    ) -> i64:
        """Put a message into the queues of all its routing keys, headers and other content, once into each.

        `keys` are the route's own and those that the publisher has added. Otherwise like `publish`.

        Raises the errors of `publish`.
        """
        found = self.resolve(route, message, keys, view)
        return self._publish(Passage(message, list(found.queues), found.keepers), immediate)

    def resolve(self, route: Route, message: Message, keys: list[str], view: MessageView) -> Resolution:
        """Resolve the queues of one message of a route, and its delay. Raises the errors of `refresh`."""
        if route.epoch != self.epoch:
            self.refresh(route)
        found = Resolution(self.chance)
        found.run(route.exchange, keys, view, self.exchanges)
        self.no_local.leave_out(found, route.publisher)
        found.delay_message(message, self.schedule)
        return found

    def publish_carefully(self, route: Route, message: Message, immediate: bool = False) -> i64:
        """Publish a message that itself needs the slow path; `publish` takes it for careful routes.

        Otherwise like `publish`.
        """
        if route.epoch != self.epoch:
            self.refresh(route)
        if route.by_message:
            return BY_MESSAGE
        return self._publish(Passage(message, route.queues, []), immediate)

    def _publish(self, passage: Passage, immediate: bool) -> i64:
        check_enqueue(passage.queues)
        passage.identify(self)
        self.counters.published += 1
        if passage.known:
            return DUPLICATE
        message = passage.message
        if not immediate and is_refused(self, message, passage.queues):
            if self.journal.on:
                full = first_full(message, passage.queues)
                self.journal.refused(self.journal.publisher, message.address, message, QUEUE_FULL, full)
            return REFUSED
        set_date(self, message, passage.queues)
        self._append_to(passage)
        return self.put(passage, immediate)

    def put(self, passage: Passage, immediate: bool) -> i64:
        """Put a message that has been appended into its queues; returns the same numbers as `publish`."""
        message = passage.message
        queues = passage.queues
        keepers = passage.keepers
        identity = passage.identity
        twin = unlogged_twin(message, queues, keepers)
        kept: i64 = 0
        for keeper in keepers:
            keeper.add(message if keeper.queue.logged else twin)
            kept += keeper.takes
        takers = queues
        if immediate:
            takers = self._deliver_now(queues, message, twin)
        elif message.marks & DELAYED != 0:
            for queue in queues:
                delay(queue, self, message if queue.logged else twin)
        else:
            for queue in queues:
                queue.enqueue(message if queue.logged else twin)
            if len(queues) > FAN_OUT:
                self.schedule.allowance.use(len(queues) // QUEUES)
        if identity is not None:
            identity.keep(takers)
        if message.marks & (TELLS_ARRIVAL | DELAYED) == TELLS_ARRIVAL:  # else it is yet to arrive
            self.receipts.arrived(message, takers)
        if kept == 0 and not takers:
            self._unroutable(message, queues)
            return NOT_NOW if queues else kept
        return kept + len(takers if kept == 0 else queues)

    def send(self, message: Message, source: Exchange, keys: list[str], held: Message, holder: Queue) -> bool:
        """Route a message that an exchange has held, by the bindings as they are now (Topology)."""
        self.journal.publisher = None  # the broker sends it
        found = Resolution(self.chance)
        found.run(source, keys, self.views(message, self.store), self.exchanges)
        passage = Passage(message, list(found.queues), found.keepers)
        for queue in passage.queues:
            if queue.rules is not None and queue.rules.refuses(message) and not queue.rules.passes_on:
                return False
            if queue.stream is not None and self.store.failure:
                return False
        if not passage.queues:
            self._unroutable(message, passage.queues)
        passage.identify_again(self)
        set_date(self, message, passage.queues)
        self.dead_letters.pass_on(passage, held if held.sequence != 0 else None, holder)
        return True

    def destinations(self, route: Route, keys: list[str], view: MessageView) -> Resolution:
        """Resolve the queues of a message of a route with these routing keys (Topology)."""
        found = Resolution(self.chance)
        if route.epoch != self.epoch:
            route.exchange = self.existing_exchange(route.address.exchange)
            self._resolve(route)
        if route.by_message or len(keys) != 1:
            found.run(route.exchange, keys, view, self.exchanges)
        else:
            found.queues = dict.fromkeys(route.queues)
        return found

    def replay(self, message: Message, binding: Binding) -> None:
        """Send a message from an exchange's history along a new binding only."""
        self.journal.publisher = None  # the broker sends it
        view = self.views(message, self.store)
        if not binding.applies(view):
            return
        found = Resolution(self.chance)
        found.take_binding(binding)
        found.walk([message.address.routing_key], view, self.exchanges)
        queues = [queue for queue in found.queues if not is_refused(self, message, [queue])]
        set_date(self, message, queues)
        found.delay_message(message, self.schedule)
        passage = Passage(message, queues, found.keepers)
        passage.identify_again(self)
        self._append_to(passage)
        if passage.queues or passage.keepers:
            self.put(passage, False)

    def _append_to(self, passage: Passage) -> None:
        """Append a message for its logged queues and keepers, before any of them has it."""
        logged = passage.logged
        if logged:
            self._append(passage.message, logged)
        if passage.streams:
            self.store.require()
            passage.append_rows()
        passage.append_identity(self)

    def refusal(self, message: Message, queues: list[Queue], immediate: bool) -> str:
        """Return why these queues would not keep a message, "" if they would."""
        for queue in queues:
            kept = (message.persistent and queue.logged) or queue.stream is not None
            if kept and self.store.failure:
                return self.store.refusal
            if message.marks & DELAYED or immediate or queue.rules is None:
                continue
            if queue.rules.refuses(message):
                return f"queue '{queue.name}' in vhost '{self.name}' is full"
        return ""

    def _append(self, message: Message, logged: list[Queue]) -> None:
        """Append a persistent message once for all logged queues, before any of them has it."""
        self.store.require()
        self.store.append_message(message, logged)

    def _deliver_now(self, queues: list[Queue], message: Message, twin: Message) -> list[Queue]:
        """Offer a message to waiting consumers; a queue where none takes it drops it, in the log too."""
        return [queue for queue in queues if enqueue_immediate(queue, message if queue.logged else twin)]

    def _unroutable(self, message: Message, queues: list[Queue]) -> None:
        self.counters.unroutable += 1
        if self.journal.on and not queues:
            self.journal.unroutable(message)

    def _publish_to(self, name: str) -> Exchange:
        exchange = self.existing_exchange(name)
        if exchange.internal:
            raise AccessRefused(f"cannot publish to internal exchange '{name}' in vhost '{self.name}'")
        return exchange

    def _resolve(self, route: Route) -> None:
        found = Resolution(self.chance)
        found.run(route.exchange, [route.address.routing_key], None, self.exchanges)
        self.no_local.leave_out(found, route.publisher)
        queues = NO_QUEUES if found.by_message else list(found.queues)
        logged: list[Queue] = []
        careful = found.by_message
        for queue in queues:
            if queue.logged:
                logged.append(queue)
            if (
                queue.memory is not None
                or queue.stream is not None
                or is_stopped(queue)
                or (queue.rules is not None and queue.rules.careful)
            ):
                careful = True
        route.queues = queues
        if len(logged) == len(queues):
            route.logged = queues
        else:
            route.logged = logged or NO_QUEUES
            careful = careful or bool(logged)
        route.by_message = found.by_message
        route.careful = careful
        route.epoch = self.epoch
