"""Exchanges: which of their bindings a message matches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.arguments import ALTERNATE_EXCHANGE
from broker.core.binding import Binding, BindingKey, Destinations, Parallel
from broker.core.effect import NO_EFFECT, Effect
from broker.core.headers import HeaderPattern, check_headers_binding
from broker.core.queue import Queue
from broker.core.route import Resolution
from broker.core.topic import TopicTrie
from broker.core.view import MessageView

if TYPE_CHECKING:
    from broker.core.history import History
    from broker.core.topology import Topology

DIRECT: Final = "direct"
FANOUT: Final = "fanout"
TOPIC: Final = "topic"
HEADERS: Final = "headers"


@final
class Description:
    """What a declaration says of an exchange; the kind is one of `exchange_kinds.KINDS`."""

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
    """Common to all kinds: the bindings from here, and the alternate exchange.

    A kind says which bindings match (`match`) and keeps them in the shape that makes this quick (`_link`).
    When a destination is deleted, `outgoing` has none of its bindings any more; those that are linked still
    match, and lead nowhere.
    """

    def __init__(self, described: Description) -> None:
        self.name = described.name
        self.kind = described.kind
        self.durable = described.durable
        self.auto_delete = described.auto_delete
        self.internal = described.internal
        self.arguments = arguments = described.arguments
        self.effect: Effect = NO_EFFECT  # its policies
        self.alternate: str | None = None
        alternate = arguments.get(ALTERNATE_EXCHANGE)
        if isinstance(alternate, str):
            self.alternate = alternate
        self.deleted = False
        self.outgoing: dict[Queue | Exchange, Parallel] = {}  # the bindings from here
        self.conditional: i64 = 0  # how many of those that are linked have a selector
        self.history: History | None = None
        self.keeps = False  # whether it keeps messages,
        self.kept: Queue | None = None  # for the log in this queue, which no client knows

    def keep_in(self, queue: Queue, topology: Topology) -> None:
        """Keep messages in `queue`, from when the exchange is added to `topology`."""
        self.kept = queue

    def holds(self, view: MessageView) -> bool:
        """Whether it holds a message that is published to it back, and nobody gets it as it is now."""
        return False

    def check(self, binding: Binding) -> None:
        """Check a binding that is to be added.

        Raises:
            PreconditionFailed: this kind of exchange cannot do it.
        """

    def bindings(self) -> Iterator[Binding]:
        """The bindings from here, one destination after the other."""
        for parallel in self.outgoing.values():
            yield from parallel.values()

    def binding(self, destination: Queue | Exchange, key: BindingKey) -> Binding | None:
        """The binding to `destination` that has this key, if there is one."""
        parallel = self.outgoing.get(destination)
        return None if parallel is None else parallel.get(key)

    def link(self, binding: Binding) -> None:
        """Have messages take a binding."""
        if binding.selector is not None:
            self.conditional += 1
        self._link(binding)

    def unlink(self, binding: Binding) -> None:
        """Have messages not take a binding any more."""
        if binding.selector is not None:
            self.conditional -= 1
        self._unlink(binding)

    def changed(self) -> None:
        """What `outgoing` has is something else now, or has another name."""

    def match(self, keys: list[str], view: MessageView | None, found: Resolution) -> None:
        """Add to `found` where messages with these routing keys go from here, or the one in `view` does."""
        raise NotImplementedError

    def _link(self, binding: Binding) -> None:
        raise NotImplementedError

    def _unlink(self, binding: Binding) -> None:
        raise NotImplementedError


@final
class DefaultExchange(Exchange):
    """The exchange without a name: every queue is bound to it by its own name, and nothing else can be."""

    def __init__(self, queues: dict[str, Queue]) -> None:
        super().__init__(Description("", DIRECT, True, False, False, {}))
        self._queues = queues

    def match(self, keys: list[str], view: MessageView | None, found: Resolution) -> None:
        """The queues named by the keys."""
        for key in keys:
            queue = self._queues.get(key)
            if queue is not None:
                found.take_queue(queue)


@final
class DirectExchange(Exchange):
    """Matches bindings whose key is the message's."""

    def __init__(self, described: Description) -> None:
        super().__init__(described)
        self._by_key: dict[str, Destinations] = {}

    def match(self, keys: list[str], view: MessageView | None, found: Resolution) -> None:
        """The destinations bound with exactly one of the keys."""
        for key in keys:
            destinations = self._by_key.get(key)
            if destinations is not None:
                found.take(destinations, view)

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

    def __init__(self, described: Description) -> None:
        super().__init__(described)
        self._all = Destinations()

    def match(self, keys: list[str], view: MessageView | None, found: Resolution) -> None:
        """All destinations."""
        found.take(self._all, view)

    def _link(self, binding: Binding) -> None:
        self._all.add(binding)

    def _unlink(self, binding: Binding) -> None:
        self._all.remove(binding)


@final
class TopicExchange(Exchange):
    """Matches bindings whose key is a pattern of the message's: `*` is one word, `#` any number of words."""

    def __init__(self, described: Description) -> None:
        super().__init__(described)
        self.trie = TopicTrie()

    def match(self, keys: list[str], view: MessageView | None, found: Resolution) -> None:
        """The destinations of all patterns that match."""
        for key in keys:
            self.trie.match(key, view, found)

    def _link(self, binding: Binding) -> None:
        self.trie.add(binding)

    def _unlink(self, binding: Binding) -> None:
        self.trie.remove(binding)


@final
class HeadersExchange(Exchange):
    """Matches bindings by the message's headers; routing keys do not matter."""

    def __init__(self, described: Description) -> None:
        super().__init__(described)
        self._patterns: dict[Binding, HeaderPattern] = {}

    def check(self, binding: Binding) -> None:
        """Refuse an unknown `x-match`."""
        check_headers_binding(binding.arguments)

    def match(self, keys: list[str], view: MessageView | None, found: Resolution) -> None:
        """The destinations of all bindings whose fields the headers have."""
        found.by_message = True
        if view is None:
            return
        headers = view.headers()
        for binding, pattern in self._patterns.items():
            if pattern.matches(headers) and binding.applies(view):
                found.take_binding(binding)

    def _link(self, binding: Binding) -> None:
        self._patterns[binding] = HeaderPattern(binding.arguments)

    def _unlink(self, binding: Binding) -> None:
        del self._patterns[binding]
