"""The kinds of exchanges by their names, and the delayed exchange."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.queue import ALTERNATE_EXCHANGE, DELAYED_TYPE
from broker.core.errors import PreconditionFailed, UnknownKind
from broker.core.message_view import MessageView
from broker.core.routing.exchanges import (
    DIRECT,
    FANOUT,
    HEADERS,
    TOPIC,
    DirectExchange,
    FanoutExchange,
    HeadersExchange,
    TopicExchange,
)
from broker.core.routing.federation import (
    DOWNSTREAM_NAME,
    DOWNSTREAM_VHOST,
    FEDERATION_UPSTREAM_KIND,
    INTERNAL_PURPOSE,
    MAX_HOPS,
    FederationUpstreamExchange,
)
from broker.core.routing.graph import Binding, Description, Exchange, Keeper, Resolution
from broker.core.routing.hashed import (
    CONSISTENT_HASH,
    HASH_HEADER,
    HASH_PROPERTY,
    LOCAL_RANDOM,
    MODULUS_HASH,
    RANDOM,
    ConsistentHashExchange,
    LocalRandomExchange,
    ModulusHashExchange,
    RandomExchange,
)
from broker.core.routing.history import HISTORY_LENGTH, RECENT_HISTORY, RecentHistoryExchange

DELAYED: Final = "x-delayed-message"
DELAY: Final = "x-delay"
DELAY_MAX: Final = 2**32 - 1  # milliseconds; with a longer one a message is not delayed, as in RabbitMQ
EXCHANGE_NAMES: Final = (
    ALTERNATE_EXCHANGE,
    HASH_HEADER,
    HASH_PROPERTY,
    DELAYED_TYPE,
    HISTORY_LENGTH,
    MAX_HOPS,
    DOWNSTREAM_NAME,
    DOWNSTREAM_VHOST,
    INTERNAL_PURPOSE,
)
"""All arguments of exchanges."""


def delay_of(view: MessageView) -> i64:
    """Return for how many milliseconds a message must be held, 0: not at all."""
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
    """An exchange that routes as one of `x-delayed-type` does, but only after the delay in `x-delay`.

    After the delay the header is negated, as RabbitMQ's plugin does. So consumers see the delay, and no
    further exchange on the way delays the message again.
    """

    def __init__(self, described: Description) -> None:
        super().__init__(described)
        self.keeps = True
        self.delays: Keeper | None = None  # set when the exchange is added
        self._routing = _routing(described)
        self._routing.outgoing = self.outgoing

    def check(self, binding: Binding) -> None:
        """Check a binding as the routing exchange does."""
        self._routing.check(binding)

    def match(self, keys: list[str], view: MessageView | None, resolution: Resolution) -> None:
        """Delay a message with a delay; route all others."""
        resolution.by_message = True
        if view is None:
            return
        delay = delay_of(view)
        if delay > 0 and self.delays is not None:
            resolution.matched = True
            resolution.delay = delay
            resolution.keepers.append(self.delays)
        else:
            self._routing.match(keys, view, resolution)

    def forget_keeper(self) -> None:
        """Forget the delayed messages."""
        self.delays = None

    def delays_message(self, view: MessageView) -> bool:
        """Whether the message has a delay."""
        return delay_of(view) > 0

    def on_bindings_changed(self) -> None:
        """Pass the change to the routing exchange."""
        self._routing.on_bindings_changed()

    def _link(self, binding: Binding) -> None:
        self._routing.link(binding)

    def _unlink(self, binding: Binding) -> None:
        self._routing.unlink(binding)


def _routing(described: Description) -> Exchange:
    """Return the exchange that does the routing for a delayed one.

    Raises:
        PreconditionFailed: there is no such kind, or not for this purpose.
    """
    kind = described.arguments.get(DELAYED_TYPE)
    if not isinstance(kind, str):
        raise PreconditionFailed(f"Invalid argument, '{DELAYED_TYPE}' must be an existing exchange type")
    if kind in (DELAYED, RECENT_HISTORY):
        raise PreconditionFailed(f"Invalid argument, '{kind}' can't be used for '{DELAYED_TYPE}'")
    return new_exchange(described.name, kind, False, False, False, described.arguments)


KINDS: Final[dict[str, type[Exchange]]] = {
    DIRECT: DirectExchange,
    FANOUT: FanoutExchange,
    TOPIC: TopicExchange,
    HEADERS: HeadersExchange,
    CONSISTENT_HASH: ConsistentHashExchange,
    MODULUS_HASH: ModulusHashExchange,
    RANDOM: RandomExchange,
    LOCAL_RANDOM: LocalRandomExchange,
    RECENT_HISTORY: RecentHistoryExchange,
    DELAYED: DelayedExchange,
    FEDERATION_UPSTREAM_KIND: FederationUpstreamExchange,
}


def new_exchange(
    name: str, kind: str, durable: bool, auto_delete: bool, internal: bool, arguments: dict[str, object]
) -> Exchange:
    """Make an exchange of a kind.

    Raises:
        PreconditionFailed: there is no such kind, or the kind does not allow an argument.
    """
    check_kind(kind)
    return KINDS[kind](Description(name, kind, durable, auto_delete, internal, arguments))


def check_kind(kind: str) -> None:
    """Check the name of a kind before anything else.

    Raises:
        UnknownKind: there is no such kind.
    """
    if kind not in KINDS:
        raise UnknownKind(f"unknown exchange type '{kind}'")
