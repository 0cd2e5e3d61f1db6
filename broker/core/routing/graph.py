"""The routing graph: exchanges, bindings, the sets of their destinations, and resolved routes."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.arguments.consumer import selector_argument
from broker.core.arguments.queue import ALTERNATE_EXCHANGE
from broker.core.counters import Reading
from broker.core.hashing import Chance
from broker.core.message import Address, Message
from broker.core.message_view import MessageView
from broker.core.partitions.partitioned import Partitioned
from broker.core.policies.policy import NO_POLICIES, MergedPolicies
from broker.core.queues.hooks import LetterRoute
from broker.core.queues.queue import Queue
from broker.core.schedule import Schedule
from broker.core.values import fingerprint


@mypyc_attr(allow_interpreted_subclasses=True)
class Keeper:
    """A keeper of an exchange's messages in `queue`, which no client can reach.

    The log knows the queue if the exchange is durable. `counts_as_routed`: 1 if a kept message counts
    as routed; else 0.
    """

    def __init__(self, queue: Queue, counts_as_routed: i64) -> None:
        self.queue = queue
        self.counts_as_routed = counts_as_routed

    def add(self, message: Message) -> None:
        """Keep a message, which was appended for `queue` if need be."""
        raise NotImplementedError


class HistoryKeeper(Keeper):
    """A keeper of the last messages of an exchange; `broker.core.routing.history` extends this class."""

    def messages(self, now: i64) -> list[Message]:
        """Return copies of the messages, oldest first, for a new binding; `now` in ms since 1970."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class BindingWatcher:
    """A watcher of the bindings from an exchange. The calls must not change bindings."""

    def on_bound(self, binding: Binding) -> None:
        """Note a new binding."""
        raise NotImplementedError

    def on_unbound(self, binding: Binding) -> None:
        """Note that a binding was deleted, alone or with its destination."""
        raise NotImplementedError


@final
class Binding:
    """A binding of the exchange `source` to `destination`, a queue or another exchange.

    A binding is identified by its source, its destination, its routing key and its arguments; `key` is the
    latter two. A binding with a selector applies only to messages for which the selector is true.

    Raises:
        PreconditionFailed: the selector is malformed.
    """

    def __init__(
        self,
        source: Exchange,
        destination: Queue | Exchange,
        routing_key: str,
        arguments: dict[str, object],
    ) -> None:
        self.source = source
        self.destination = destination
        self.queue: Queue | None = None
        self.exchange: Exchange | None = None
        self.destination_type = "exchange"
        if isinstance(destination, Queue):
            self.queue = destination
            self.destination_type = "queue"
        else:
            self.exchange = destination
        self.durable = source.durable and destination.durable
        self.routing_key = routing_key
        self.arguments = arguments
        self.key = binding_key(routing_key, arguments)
        self.selector = selector_argument(
            arguments,
            f"the binding of exchange '{source.name}' to {self.destination_type} '{destination.name}'",
        )

    @property
    def destination_name(self) -> str:
        """The present name of the destination: a queue may be renamed."""
        return self.destination.name

    def applies(self, view: MessageView | None) -> bool:
        """Whether the binding's selector, if it has one, is true for a message; without a view it is not."""
        selector = self.selector
        return selector is None or (view is not None and selector.matches(view))


_DIGEST_BYTES: Final = 9

BindingKey = tuple[str, str]
Parallel = dict[BindingKey, Binding]
"""The bindings between one source and one destination."""


def binding_key(routing_key: str, arguments: dict[str, object]) -> BindingKey:
    """Return the key of a binding among those between the same two objects.

    Equal arguments of different types make different keys.
    """
    return routing_key, fingerprint(arguments)


def digest_of(arguments: str) -> str:
    """Return the fingerprint of arguments in a few characters that a path may have; "" for none."""
    if not arguments:
        return ""
    digest = hashlib.blake2b(arguments.encode(), digest_size=_DIGEST_BYTES).digest()
    return base64.urlsafe_b64encode(digest).decode()


@final
class Destinations:
    """Queues and exchanges, each once, with the number of bindings that lead there.

    Bindings with a selector are kept apart, because each message decides which of them apply.
    """

    def __init__(self) -> None:
        self.only: Queue | None = None  # the destination, if it is one queue, as is most frequent
        self.conditional: dict[Binding, None] | None = None
        self.queues: dict[Queue, int] = {}
        self.exchanges: dict[Exchange, int] = {}

    def add(self, binding: Binding) -> None:
        """Count one more binding to its destination."""
        if binding.selector is not None:
            if self.conditional is None:
                self.conditional = {}
            self.conditional[binding] = None
        elif binding.queue is not None:
            self.queues[binding.queue] = self.queues.get(binding.queue, 0) + 1
        elif binding.exchange is not None:
            self.exchanges[binding.exchange] = self.exchanges.get(binding.exchange, 0) + 1
        self._find_only()

    def remove(self, binding: Binding) -> None:
        """Uncount a binding; its destination is removed with the last one."""
        queue = binding.queue
        exchange = binding.exchange
        if binding.selector is not None:
            if self.conditional is not None:
                del self.conditional[binding]
                if not self.conditional:
                    self.conditional = None
        elif queue is not None:
            left = self.queues[queue] - 1
            if left:
                self.queues[queue] = left
            else:
                del self.queues[queue]
        elif exchange is not None:
            left = self.exchanges[exchange] - 1
            if left:
                self.exchanges[exchange] = left
            else:
                del self.exchanges[exchange]
        self._find_only()

    def _find_only(self) -> None:
        alone = len(self.queues) == 1 and not self.exchanges and self.conditional is None
        self.only = next(iter(self.queues)) if alone else None

    def is_empty(self) -> bool:
        """Whether no binding leads anywhere."""
        return not self.queues and not self.exchanges and self.conditional is None


NO_QUEUES: Final[list[Queue]] = []
"""The list of all routes without queues, or without logged queues. Lists of routes are not changed."""


@final
class Route(LetterRoute):
    """The queues to which an exchange and a routing key lead, each once.

    Publishers keep routes. A route is valid while its `epoch` is that of its virtual host; otherwise
    `Publisher.publish` resolves it again. `logged` are those of `queues` whose persistent messages go to
    the log.
    `by_message`: an exchange on the way looks at more than the key, so every message must be routed
    separately, with `Publisher.publish_by_message`; `queues` is empty then. `pinned`: the publisher may use
    only this very exchange, and needs a new permission for another one of its name. `careful`: the route is
    `by_message`, or leads to a queue that is stopped, may refuse messages or limits their time, or to both
    logged and unlogged queues. `publisher`: the publisher's names, for queues that do not receive their own
    connection's messages (`NoLocal`). `partitions`: the members of the only queue, if it is partitioned.
    `remembers`: the only queue is logged, and the route is careful because this queue remembers messages.
    """

    def __init__(self, address: Address, exchange: Exchange, publisher: tuple[str, ...] = ()) -> None:
        self.address = address
        self.exchange = exchange
        self.publisher = publisher
        self.queues: list[Queue] = NO_QUEUES
        self.logged: list[Queue] = NO_QUEUES
        self.by_message = False
        self.careful = False
        self.remembers = False
        self.pinned = False
        self.partitions: Partitioned | None = None
        self.epoch: i64 = 0  # 0: stale


@final
class Resolution:
    """The walk that resolves a route: queues found, exchanges still to visit, exchanges seen.

    Exchanges are visited at most once, so that cycles of bindings end. A list holds the exchanges
    still to visit, so that no depth of bindings exhausts the stack.

    A walk is for a key, whose messages all take the same route, or for one message, which has a view then. In
    a walk for a key, an exchange that routes by content only sets `by_message`, and the result of such a walk
    is not used.
    """

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.queues: dict[Queue, None] = {}
        self.by_message = False
        self.matched = False  # whether the visited exchange had a matching binding
        self.keepers: list[Keeper] = []  # the keepers for the message
        self.delay: i64 = 0  # ms for which a keeper delays the message
        self._source: Exchange | None = None
        self._pending: list[Exchange] | None = None  # most walks end where they begin
        self._seen: set[Exchange] | None = None

    def delay_message(self, message: Message, schedule: Schedule) -> None:
        """Date a message that is delayed."""
        if self.delay > 0:
            message.date = schedule.date_after(self.delay)

    def add_destinations(self, destinations: Destinations, view: MessageView | None) -> None:
        """Add the destinations of bindings that match, apart from their selectors.

        Some destinations may be deleted; a deleted destination counts as not bound.
        """
        only = destinations.only
        if only is not None:
            if not only.deleted:
                self.matched = True
                self.queues[only] = None
            return
        for queue in destinations.queues:
            if not queue.deleted:
                self.matched = True
                self.queues[queue] = None
        for exchange in destinations.exchanges:
            if not exchange.deleted:
                self.matched = True
                self.add_exchange(exchange)
        if destinations.conditional is not None:
            for binding in destinations.conditional:
                if not binding.destination.deleted:
                    self.by_message = True
                    if view is not None and binding.applies(view):
                        self.add_binding(binding)

    def add_binding(self, binding: Binding) -> None:
        """Add the destination of a matching binding, unless the destination is deleted."""
        queue = binding.queue
        exchange = binding.exchange
        if queue is not None and not queue.deleted:
            self.matched = True
            self.queues[queue] = None
        elif exchange is not None and not exchange.deleted:
            self.matched = True
            self.add_exchange(exchange)

    def add_queue(self, queue: Queue) -> None:
        """Add a queue."""
        self.matched = True
        self.queues[queue] = None

    def add_exchange(self, exchange: Exchange) -> None:
        """Add an exchange to visit, unless it was added before."""
        if exchange is self._source:
            return
        if self._pending is None or self._seen is None:
            self._pending = []
            self._seen = set()
        if exchange not in self._seen:
            self._seen.add(exchange)
            self._pending.append(exchange)

    def resolve(
        self,
        source: Exchange,
        keys: list[str],
        view: MessageView | None,
        exchanges: dict[str, Exchange],
    ) -> None:
        """Resolve from `source` with every routing key of the message.

        An exchange without any match passes the message to its alternate exchange.
        """
        self._source = source
        self._visit(source, keys, view, exchanges)
        self.visit_pending(keys, view, exchanges)

    def visit_pending(
        self, keys: list[str], view: MessageView | None, exchanges: dict[str, Exchange]
    ) -> None:
        """Visit the added exchanges, and the exchanges that these add."""
        while self._pending:
            self._visit(self._pending.pop(), keys, view, exchanges)

    def _visit(
        self,
        exchange: Exchange,
        keys: list[str],
        view: MessageView | None,
        exchanges: dict[str, Exchange],
    ) -> None:
        self.matched = False
        exchange.match(keys, view, self)
        if not self.matched and exchange.alternate is not None:
            alternate = exchanges.get(exchange.alternate)
            if alternate is not None:  # an absent alternate exchange is no error
                self.add_exchange(alternate)


@final
class Description:
    """A declaration of an exchange; the kind is one of `broker.core.routing.kinds.KINDS`."""

    def __init__(
        self,
        name: str,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, object],
    ) -> None:
        self.name = name
        self.kind = kind
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments


class Exchange:
    """The base of all kinds of exchanges: the outgoing bindings, and the alternate exchange.

    A kind decides which bindings match (`match`), and stores them in a form that makes this quick (`_link`).
    When a destination is deleted, `outgoing` has none of its bindings any more. Bindings that are still
    linked match, but lead nowhere.
    """

    def __init__(self, described: Description) -> None:
        self.name = described.name
        self.kind = described.kind
        self.durable = described.durable
        self.auto_delete = described.auto_delete
        self.internal = described.internal
        self.arguments = arguments = described.arguments
        self.effect: MergedPolicies = NO_POLICIES  # the effect of the exchange's policies
        self.alternate: str | None = None
        alternate = arguments.get(ALTERNATE_EXCHANGE)
        if isinstance(alternate, str):
            self.alternate = alternate
        self.deleted = False
        self.outgoing: dict[Queue | Exchange, Parallel] = {}  # the bindings from here
        self.watchers: list[BindingWatcher] | None = None  # watchers of these; None: there are none
        self.conditional: i64 = 0  # the count of linked bindings with a selector
        self.published_in: i64 = 0  # messages that publishers sent to it,
        self.published_out: i64 = 0  # and the queues that they were put into
        self.reading: Reading | None = None  # the last reading of these two counts
        self.history: HistoryKeeper | None = None
        self.keeps = False  # whether it keeps messages (history or delays),
        self.kept: Queue | None = None  # and the queue that has them, which no client can reach

    def keep_in(self, queue: Queue) -> None:
        """Store kept messages in `queue`, from when the exchange is added to its virtual host."""
        self.kept = queue

    def forget_keeper(self) -> None:
        """Forget the keeper of the exchange's messages: the exchange has been deleted."""

    def delays_message(self, view: MessageView) -> bool:
        """Whether the exchange delays this message instead of routing it now."""
        return False

    def watch_bindings(self, watcher: BindingWatcher) -> None:
        """Inform `watcher` of each binding that is added or deleted, until the exchange is deleted."""
        self.watchers = [*(self.watchers or []), watcher]

    def stop_watching_bindings(self, watcher: BindingWatcher) -> None:
        """Forget `watcher`; nothing happens if it does not watch."""
        self.watchers = [each for each in self.watchers or [] if each is not watcher] or None

    def check(self, binding: Binding) -> None:
        """Check a binding that is to be added.

        Raises:
            PreconditionFailed: this kind of exchange does not support the binding.
        """

    def bindings(self) -> Iterator[Binding]:
        """Yield the outgoing bindings, one destination after the other."""
        for parallel in self.outgoing.values():
            yield from parallel.values()

    def binding(self, destination: Queue | Exchange, key: BindingKey) -> Binding | None:
        """Return the binding to `destination` that has this key; None without one."""
        parallel = self.outgoing.get(destination)
        return None if parallel is None else parallel.get(key)

    def link(self, binding: Binding) -> None:
        """Start routing messages along a binding."""
        if binding.selector is not None:
            self.conditional += 1
        self._link(binding)

    def unlink(self, binding: Binding) -> None:
        """Stop routing messages along a binding."""
        if binding.selector is not None:
            self.conditional -= 1
        self._unlink(binding)

    def on_bindings_changed(self) -> None:
        """Note that `outgoing` has changed, or the name of a destination has."""

    def match(self, keys: list[str], view: MessageView | None, resolution: Resolution) -> None:
        """Add to `resolution` the destinations of messages with these keys, or of the message in `view`."""
        raise NotImplementedError

    def _link(self, binding: Binding) -> None:
        raise NotImplementedError

    def _unlink(self, binding: Binding) -> None:
        raise NotImplementedError
