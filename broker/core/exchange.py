"""Exchanges: which of their bindings a message matches."""

from __future__ import annotations

from typing import Final, final

from broker.core.arguments import ALTERNATE_EXCHANGE
from broker.core.binding import Binding, Destinations
from broker.core.errors import CommandInvalid
from broker.core.headers import HeaderPattern, check_headers_binding
from broker.core.queue import Queue
from broker.core.route import Resolution
from broker.core.topic import TopicTrie

DIRECT: Final = "direct"
FANOUT: Final = "fanout"
TOPIC: Final = "topic"
HEADERS: Final = "headers"


class Exchange:
    """Common to all kinds: the bindings from here, those that lead here, and the alternate exchange.

    A kind says which bindings match (`match`) and keeps them in the shape that makes this quick (`_link`).
    """

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
        self.needs_headers = kind == HEADERS
        self.alternate: str | None = None
        alternate = arguments.get(ALTERNATE_EXCHANGE)
        if isinstance(alternate, str):
            self.alternate = alternate
        self.bindings: dict[tuple[str, str, str, str], Binding] = {}
        self.incoming: dict[Binding, None] = {}

    def check(self, arguments: dict[str, object]) -> None:
        """Check the arguments of a binding that is to be added.

        Raises:
            PreconditionFailed: this kind of exchange cannot do it.
        """

    def add(self, binding: Binding) -> None:
        """Add a binding whose key is not there yet."""
        self.bindings[binding.key] = binding
        self._link(binding)

    def remove(self, binding: Binding) -> None:
        """Remove a binding that is there."""
        del self.bindings[binding.key]
        self._unlink(binding)

    def match(self, routing_key: str, headers: dict[str, object], found: Resolution) -> None:
        """Add to `found` where a message with this key and these headers goes from here."""
        raise NotImplementedError

    def _link(self, binding: Binding) -> None:
        raise NotImplementedError

    def _unlink(self, binding: Binding) -> None:
        raise NotImplementedError


@final
class DefaultExchange(Exchange):
    """The exchange without a name: every queue is bound to it by its own name, and nothing else can be."""

    def __init__(self, queues: dict[str, Queue]) -> None:
        super().__init__("", DIRECT, True, False, False, {})
        self._queues = queues

    def match(self, routing_key: str, headers: dict[str, object], found: Resolution) -> None:
        """The queue named by the key."""
        queue = self._queues.get(routing_key)
        if queue is not None:
            found.take_queue(queue)


@final
class DirectExchange(Exchange):
    """Matches bindings whose key is the message's."""

    def __init__(
        self, name: str, durable: bool, auto_delete: bool, internal: bool, arguments: dict[str, object]
    ) -> None:
        super().__init__(name, DIRECT, durable, auto_delete, internal, arguments)
        self._by_key: dict[str, Destinations] = {}

    def match(self, routing_key: str, headers: dict[str, object], found: Resolution) -> None:
        """The destinations bound with exactly this key."""
        destinations = self._by_key.get(routing_key)
        if destinations is not None:
            found.take(destinations)

    def _link(self, binding: Binding) -> None:
        destinations = self._by_key.get(binding.routing_key)
        if destinations is None:
            destinations = Destinations()
            self._by_key[binding.routing_key] = destinations
        destinations.add(binding)

    def _unlink(self, binding: Binding) -> None:
        destinations = self._by_key[binding.routing_key]
        destinations.remove(binding)
        if destinations.empty():
            del self._by_key[binding.routing_key]


@final
class FanoutExchange(Exchange):
    """Matches every binding."""

    def __init__(
        self, name: str, durable: bool, auto_delete: bool, internal: bool, arguments: dict[str, object]
    ) -> None:
        super().__init__(name, FANOUT, durable, auto_delete, internal, arguments)
        self._all = Destinations()

    def match(self, routing_key: str, headers: dict[str, object], found: Resolution) -> None:
        """All destinations."""
        if not self._all.empty():
            found.take(self._all)

    def _link(self, binding: Binding) -> None:
        self._all.add(binding)

    def _unlink(self, binding: Binding) -> None:
        self._all.remove(binding)


@final
class TopicExchange(Exchange):
    """Matches bindings whose key is a pattern of the message's: `*` is one word, `#` any number of words."""

    def __init__(
        self, name: str, durable: bool, auto_delete: bool, internal: bool, arguments: dict[str, object]
    ) -> None:
        super().__init__(name, TOPIC, durable, auto_delete, internal, arguments)
        self._trie = TopicTrie()

    def match(self, routing_key: str, headers: dict[str, object], found: Resolution) -> None:
        """The destinations of all patterns that match."""
        self._trie.match(routing_key, found)

    def _link(self, binding: Binding) -> None:
        self._trie.add(binding)

    def _unlink(self, binding: Binding) -> None:
        self._trie.remove(binding)


@final
class HeadersExchange(Exchange):
    """Matches bindings by the message's headers; routing keys do not matter."""

    def __init__(
        self, name: str, durable: bool, auto_delete: bool, internal: bool, arguments: dict[str, object]
    ) -> None:
        super().__init__(name, HEADERS, durable, auto_delete, internal, arguments)
        self._patterns: dict[Binding, HeaderPattern] = {}

    def check(self, arguments: dict[str, object]) -> None:
        """Refuse an unknown `x-match`."""
        check_headers_binding(arguments)

    def match(self, routing_key: str, headers: dict[str, object], found: Resolution) -> None:
        """The destinations of all bindings whose fields the headers have."""
        found.by_headers = True
        for binding, pattern in self._patterns.items():
            if pattern.matches(headers):
                found.take_binding(binding)

    def _link(self, binding: Binding) -> None:
        self._patterns[binding] = HeaderPattern(binding.arguments)

    def _unlink(self, binding: Binding) -> None:
        del self._patterns[binding]


def new_exchange(
    name: str, kind: str, durable: bool, auto_delete: bool, internal: bool, arguments: dict[str, object]
) -> Exchange:
    """Make an exchange of a kind.

    Raises:
        CommandInvalid: there is no such kind.
    """
    if kind == DIRECT:
        return DirectExchange(name, durable, auto_delete, internal, arguments)
    if kind == FANOUT:
        return FanoutExchange(name, durable, auto_delete, internal, arguments)
    if kind == TOPIC:
        return TopicExchange(name, durable, auto_delete, internal, arguments)
    if kind == HEADERS:
        return HeadersExchange(name, durable, auto_delete, internal, arguments)
    raise CommandInvalid(f"unknown exchange type '{kind}'")


def check_kind(kind: str) -> None:
    """Check the name of a kind before anything else is looked at.

    Raises:
        CommandInvalid: there is no such kind.
    """
    if kind not in (DIRECT, FANOUT, TOPIC, HEADERS):
        raise CommandInvalid(f"unknown exchange type '{kind}'")
