"""Where a message goes: the resolved route, and the walk over exchanges that finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.binding import Binding, Destinations
from broker.core.chance import Chance
from broker.core.keeper import Keeper
from broker.core.message import Address, Message
from broker.core.queue import Queue
from broker.core.schedule import Schedule

if TYPE_CHECKING:
    from broker.core.exchange import Exchange
    from broker.core.view import MessageView

NO_QUEUES: Final[list[Queue]] = []
"""Shared by all routes that lead nowhere, or into no log. Lists of routes are not changed."""


@final
class Route:
    """The queues that an exchange and a routing key lead to, each once.

    Publishers keep routes: one is right while its `epoch` is that of its virtual host, and
    `VirtualHost.publish` resolves it again when it is not. `logged` are those of `queues` whose persistent
    messages go to the log. `by_message`: something on the way looks at more than the key, so that every
    message has to be routed by itself, with `VirtualHost.publish_by_message`; `queues` is then empty.
    `pinned`: the publisher may use this very exchange; another one of its name has to be asked for anew.
    `careful`: it is `by_message`, or leads to a queue that is stopped, may refuse messages or limits their
    time, or to queues of which the log knows only some. `publisher`: what whoever keeps it is called by
    queues that do not get its messages (`NoLocal`).
    """

    def __init__(self, address: Address, exchange: Exchange, publisher: tuple[str, ...] = ()) -> None:
        self.address = address
        self.exchange = exchange
        self.publisher = publisher
        self.queues: list[Queue] = NO_QUEUES
        self.logged: list[Queue] = NO_QUEUES
        self.by_message = False
        self.careful = False
        self.pinned = False
        self.epoch: i64 = 0  # 0: stale


@final
class Resolution:
    """The walk that finds a route: queues found, exchanges still to visit, exchanges seen.

    Exchanges are visited at most once, so that cycles of bindings end, and from a list, so that no depth of
    them reaches the end of the stack.

    A walk is made for a key, whose messages all go the same way, or for one message, of which there is a
    view then. In a walk for a key, an exchange that chooses by message sets `by_message` and does nothing
    else: what such a walk finds is not used.
    """

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.queues: dict[Queue, None] = {}
        self.by_message = False
        self.matched = False  # whether the exchange being visited had a binding that matched
        self.keepers: list[Keeper] = []  # that are to keep the message
        self.delay: i64 = 0  # ms for which some of them are to hold it
        self._source: Exchange | None = None
        self._pending: list[Exchange] | None = None  # most walks end where they begin
        self._seen: set[Exchange] | None = None

    def delay_message(self, message: Message, schedule: Schedule) -> None:
        """Date a message that is to be held until then."""
        if self.delay > 0:
            message.date = schedule.date_after(self.delay)

    def take(self, destinations: Destinations, view: MessageView | None) -> None:
        """Add the destinations of bindings that matched but for their selectors.

        Those that are deleted may be among them for a while: they count as not bound.
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
                self.visit(exchange)
        if destinations.conditional is not None:
            for binding in destinations.conditional:
                if not binding.destination.deleted:
                    self.by_message = True
                    if view is not None and binding.applies(view):
                        self.take_binding(binding)

    def take_binding(self, binding: Binding) -> None:
        """Add the destination of one binding that matched, unless it is deleted."""
        queue = binding.queue
        exchange = binding.exchange
        if queue is not None and not queue.deleted:
            self.matched = True
            self.queues[queue] = None
        elif exchange is not None and not exchange.deleted:
            self.matched = True
            self.visit(exchange)

    def take_queue(self, queue: Queue) -> None:
        """Add one queue."""
        self.matched = True
        self.queues[queue] = None

    def visit(self, exchange: Exchange) -> None:
        """Have `exchange` visited too, unless it was or will be."""
        if exchange is self._source:
            return
        if self._pending is None or self._seen is None:
            self._pending = []
            self._seen = set()
        if exchange not in self._seen:
            self._seen.add(exchange)
            self._pending.append(exchange)

    def run(
        self,
        source: Exchange,
        keys: list[str],
        view: MessageView | None,
        exchanges: dict[str, Exchange],
    ) -> None:
        """Walk from `source` with every routing key of the message.

        An exchange without any match passes the message to its alternate exchange.
        """
        self._source = source
        self._pass(source, keys, view, exchanges)
        self.walk(keys, view, exchanges)

    def walk(self, keys: list[str], view: MessageView | None, exchanges: dict[str, Exchange]) -> None:
        """Visit all exchanges that were found, and those found on the way."""
        while self._pending:
            self._pass(self._pending.pop(), keys, view, exchanges)

    def _pass(
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
                self.visit(alternate)
