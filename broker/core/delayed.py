"""Exchanges that hold messages for a while and route them then. [RabbitMQ delayed message exchange]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.core.arguments import DELAYED_TYPE
from broker.core.binding import Binding
from broker.core.delaying import DelayedMessages
from broker.core.delivery_time import delay_of
from broker.core.errors import PreconditionFailed
from broker.core.exchange import Description, Exchange
from broker.core.keeper import Keeper
from broker.core.message import Message
from broker.core.recent_history import RECENT_HISTORY
from broker.core.route import Resolution
from broker.core.rules import Rules

if TYPE_CHECKING:
    from broker.core.queue import Queue
    from broker.core.topology import Topology
    from broker.core.view import MessageView

DELAYED: Final = "x-delayed-message"


@final
class DelayedExchange(Exchange):
    """Routes as an exchange of `x-delayed-type` does, but later: when the time comes that `x-delay` says.

    Then the header is negated, as the plugin does it, so that consumers see where the message was and no
    further exchange on its way delays it again.
    """

    def __init__(self, described: Description) -> None:
        super().__init__(described)
        self.keeps = True
        self.delays: Delays | None = None
        self._routing = _routing(described)
        self._routing.outgoing = self.outgoing

    def keep_in(self, queue: Queue, topology: Topology) -> None:
        """Hold messages for this queue, which the log knows if the exchange is durable (Exchange)."""
        super().keep_in(queue, topology)
        self.delays = Delays(self, queue, topology)

    def check(self, binding: Binding) -> None:
        """Check a binding as the exchange that does the routing does (Exchange)."""
        self._routing.check(binding)

    def match(self, keys: list[str], view: MessageView | None, found: Resolution) -> None:
        """Hold a message that is to be delayed; match all others."""
        found.by_message = True
        if view is None:
            return
        delay = delay_of(view)
        if delay > 0 and self.delays is not None:
            found.matched = True
            found.delay = delay
            found.keepers.append(self.delays)
        else:
            self._routing.match(keys, view, found)

    def holds(self, view: MessageView) -> bool:
        """Whether a message that is published here will be held (Exchange)."""
        return delay_of(view) > 0

    def changed(self) -> None:
        """Tell the exchange that does the routing (Exchange)."""
        self._routing.changed()

    def _link(self, binding: Binding) -> None:
        self._routing.link(binding)

    def _unlink(self, binding: Binding) -> None:
        self._routing.unlink(binding)


def _routing(described: Description) -> Exchange:
    """The exchange that does the routing for a delayed one.

    Raises:
        PreconditionFailed: there is no such kind, or not for this purpose.
    """
    from broker.core.exchange_kinds import new_exchange  # which knows delayed ones too

    kind = described.arguments.get(DELAYED_TYPE)
    if not isinstance(kind, str):
        raise PreconditionFailed(f"Invalid argument, '{DELAYED_TYPE}' must be an existing exchange type")
    if kind in (DELAYED, RECENT_HISTORY):
        raise PreconditionFailed(f"Invalid argument, '{kind}' can't be used for '{DELAYED_TYPE}'")
    return new_exchange(described.name, kind, False, False, False, described.arguments)


@final
class Delays(Keeper):
    """The messages that a delayed exchange holds, each until its `date`."""

    def __init__(self, exchange: Exchange, queue: Queue, topology: Topology) -> None:
        super().__init__(queue, 1)
        self._timetable = _ExchangeDelays(exchange, queue, topology)
        queue.rules = rules = Rules(queue, topology)
        rules.timetable = self._timetable

    def __len__(self) -> int:
        return len(self._timetable)

    def add(self, message: Message) -> None:
        """Hold a message (Keeper)."""
        self._timetable.add(message)


@final
class _ExchangeDelays(DelayedMessages):
    """The same, to be routed when they are due."""

    def __init__(self, exchange: Exchange, queue: Queue, topology: Topology) -> None:
        super().__init__(queue, topology)
        self._exchange = exchange

    def waits_by_clock(self, message: Message) -> bool:
        """A delayed exchange knows no times of day (Timetable)."""
        return True

    def send(self, copy: Message, keys: list[str], held: Message) -> bool:
        """Send it to where it goes now (DelayedMessages)."""
        return self.topology.send(copy, self._exchange, keys, held, self.queue)
