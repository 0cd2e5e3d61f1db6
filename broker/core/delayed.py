"""Exchanges that hold messages for a while and route them then. [RabbitMQ delayed message exchange]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.arguments import DELAYED_TYPE
from broker.core.binding import Binding
from broker.core.errors import PreconditionFailed
from broker.core.exchange import Description, Exchange
from broker.core.keeper import Keeper
from broker.core.message import Message, copy_of
from broker.core.recent_history import RECENT_HISTORY
from broker.core.route import Resolution
from broker.core.rules import Rules
from broker.core.timetable import RETRY_MS, Timetable

if TYPE_CHECKING:
    from broker.core.queue import Queue
    from broker.core.schedule import Schedule
    from broker.core.topology import Topology
    from broker.core.view import MessageView

DELAYED: Final = "x-delayed-message"
DELAY: Final = "x-delay"
DELAY_MAX: Final = 2**32 - 1  # milliseconds; what asks for more is not delayed, as in RabbitMQ
UNSYNCED_MAX: Final = 8 * 1024 * 1024  # while more waits for the disk, nothing is released
UNSYNCED_WAIT_MS: Final = 5
UNREADABLE_WAIT_MS: Final = 60_000


def delay_of(view: MessageView) -> i64:
    """For how many milliseconds a message is to be held, 0: not at all."""
    value = view.headers().get(DELAY)
    if isinstance(value, str):
        sign = value[:1] if value[:1] in ("+", "-") else ""
        digits = value[len(sign) :]
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
            return 0
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 < value <= DELAY_MAX else 0


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

    def _link(self, binding: Binding) -> None:
        self._routing.add(binding)

    def _unlink(self, binding: Binding) -> None:
        self._routing.remove(binding)


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
        self._exchange = exchange
        self._topology = topology
        self._timetable = _Timetable(self, topology.schedule)
        queue.rules = rules = Rules(queue, topology)
        rules.timetable = self._timetable

    def __len__(self) -> int:
        return len(self._timetable)

    def add(self, message: Message) -> None:
        """Hold a message (Keeper)."""
        self._timetable.add(message)

    def release(self, message: Message) -> i64:
        """Send a message to where it goes now; returns in how many ms to try again, 0: it is gone."""
        topology = self._topology
        store = topology.store
        if store.failure and message.persistent:
            return RETRY_MS
        if store.unsynced_bytes > UNSYNCED_MAX:
            return UNSYNCED_WAIT_MS
        try:
            view = topology.views(message, store)
            content = view.released_content(DELAY)
        except Exception:  # the disk does not give it back, or not now
            return self._postpone(message, UNREADABLE_WAIT_MS)
        keys = [message.address.routing_key, *view.further_keys()]
        copy = copy_of(message, content)
        copy.date = topology.schedule.date()
        if not topology.send(copy, self._exchange, keys, message, self.queue):
            return self._postpone(message, RETRY_MS)
        return 0

    def _postpone(self, message: Message, wait: i64) -> i64:
        """Hold a message for longer: the others must not wait for it."""
        message.date = self._topology.schedule.date() + wait
        self.add(message)
        return 0


@final
class _Timetable(Timetable):
    """When the messages are due."""

    def __init__(self, delays: Delays, schedule: Schedule) -> None:
        super().__init__(schedule)
        self._delays = delays

    def release(self, message: Message) -> i64:
        """It is time for a message (Timetable)."""
        return self._delays.release(message)
