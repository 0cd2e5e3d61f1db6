"""The default, direct, fanout, topic and headers exchanges."""

from __future__ import annotations

from typing import Final, final

from broker.core.arguments.consumer import SELECTOR
from broker.core.errors import PreconditionFailed
from broker.core.message_view import MessageView
from broker.core.queues.queue import Queue
from broker.core.routing.federation import BOUND_FROM
from broker.core.routing.graph import Binding, Description, Destinations, Exchange, Resolution
from broker.core.routing.topic import TopicTrie
from broker.core.values import show, type_name

X_MATCH: Final = "x-match"
_STRINGS: Final = (str, bytes, bytearray)
_MODES: Final = ("all", "any", "all-with-x", "any-with-x")


@final
class HeaderPattern:
    """The fields of a binding: all of them, or any, must be among the headers with the same value.

    A field without a value (void) asks only that the header is there. Fields that begin with `x-` count only
    in the modes `all-with-x` and `any-with-x`; `x-match` itself, a selector, and the origin of a federated
    binding never do [RabbitMQ].
    """

    def __init__(self, arguments: dict[str, object]) -> None:
        mode = arguments.get(X_MATCH, "all")
        self.any = mode == "any" or mode == "any-with-x"
        with_x = mode == "all-with-x" or mode == "any-with-x"
        self.fields: list[tuple[str, object]] = [
            (name, value)
            for name, value in arguments.items()
            if name not in (X_MATCH, SELECTOR, BOUND_FROM) and (with_x or not name.startswith("x-"))
        ]

    def matches(self, headers: dict[str, object]) -> bool:
        """Whether the binding matches these headers.

        Without fields, `all` matches every message, `any` none.
        """
        for name, value in self.fields:
            same = name in headers and (value is None or same_value(value, headers[name]))
            if same == self.any:
                return self.any
        return not self.any


def check_headers_binding(arguments: dict[str, object]) -> None:
    """Refuse an `x-match` that is none of RabbitMQ's four.

    Raises:
        PreconditionFailed: `x-match` has another value or is no string.
    """
    if X_MATCH not in arguments:
        return
    mode = arguments[X_MATCH]
    if not isinstance(mode, str):
        raise PreconditionFailed(
            f"Invalid x-match field type {type_name(mode)} (value {show(mode)}); expected longstr"
        )
    if mode not in _MODES:
        raise PreconditionFailed(
            f'Invalid x-match field value <<"{mode}">>; expected all, any, all-with-x, or any-with-x'
        )


def same_value(left: object, right: object) -> bool:
    """Whether two field values are equal, within one type only. [RabbitMQ since 3.13]

    Integers are one type whatever their width, so are floats, and so are strings and binaries; an integer is
    not a float and true is not 1.
    """
    if type(left) is type(right) and not isinstance(left, (list, dict)):
        return left == right
    if isinstance(left, _STRINGS) and isinstance(right, _STRINGS):
        return _octets(left) == _octets(right)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(same_value(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_value(left[name], right[name]) for name in left)
    return False


def _octets(value: object) -> object:
    """Return a string as bytes, because a string that is not UTF-8 arrives as bytes."""
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


DIRECT: Final = "direct"
FANOUT: Final = "fanout"
TOPIC: Final = "topic"
HEADERS: Final = "headers"


@final
class DefaultExchange(Exchange):
    """The exchange without a name, to which every queue is bound by its own name, and nothing else."""

    def __init__(self, queues: dict[str, Queue]) -> None:
        super().__init__(Description("", DIRECT, True, False, False, {}))
        self._queues = queues

    def match(self, keys: list[str], view: MessageView | None, resolution: Resolution) -> None:
        """Add the queues named by the keys."""
        for key in keys:
            queue = self._queues.get(key)
            if queue is not None:
                resolution.add_queue(queue)


@final
class DirectExchange(Exchange):
    """An exchange that matches the bindings whose key is the message's key."""

    def __init__(self, described: Description) -> None:
        super().__init__(described)
        self._by_key: dict[str, Destinations] = {}

    def match(self, keys: list[str], view: MessageView | None, resolution: Resolution) -> None:
        """Add the destinations bound with exactly one of the keys."""
        for key in keys:
            destinations = self._by_key.get(key)
            if destinations is not None:
                resolution.add_destinations(destinations, view)

    def _link(self, binding: Binding) -> None:
        destinations = self._by_key.get(binding.routing_key)
        if destinations is None:
            destinations = Destinations()
            self._by_key[binding.routing_key] = destinations
        destinations.add(binding)

    def _unlink(self, binding: Binding) -> None:
        destinations = self._by_key[binding.routing_key]
        destinations.remove(binding)
        if destinations.is_empty():
            del self._by_key[binding.routing_key]


@final
class FanoutExchange(Exchange):
    """An exchange that matches every binding."""

    def __init__(self, described: Description) -> None:
        super().__init__(described)
        self._all = Destinations()

    def match(self, keys: list[str], view: MessageView | None, resolution: Resolution) -> None:
        """Add all destinations."""
        resolution.add_destinations(self._all, view)

    def _link(self, binding: Binding) -> None:
        self._all.add(binding)

    def _unlink(self, binding: Binding) -> None:
        self._all.remove(binding)


@final
class TopicExchange(Exchange):
    """An exchange that matches patterns of the message's key: `*` is one word, `#` any number of words."""

    def __init__(self, described: Description) -> None:
        super().__init__(described)
        self.trie = TopicTrie()

    def match(self, keys: list[str], view: MessageView | None, resolution: Resolution) -> None:
        """Add the destinations of all patterns that match."""
        for key in keys:
            self.trie.match(key, view, resolution)

    def _link(self, binding: Binding) -> None:
        self.trie.add(binding)

    def _unlink(self, binding: Binding) -> None:
        self.trie.remove(binding)


@final
class HeadersExchange(Exchange):
    """An exchange that matches bindings by the message's headers; routing keys do not matter."""

    def __init__(self, described: Description) -> None:
        super().__init__(described)
        self._patterns: dict[Binding, HeaderPattern] = {}

    def check(self, binding: Binding) -> None:
        """Refuse an unknown `x-match`."""
        check_headers_binding(binding.arguments)

    def match(self, keys: list[str], view: MessageView | None, resolution: Resolution) -> None:
        """Add the destinations of all bindings whose fields match the headers."""
        resolution.by_message = True
        if view is None:
            return
        headers = view.headers()
        for binding, pattern in self._patterns.items():
            if pattern.matches(headers) and binding.applies(view):
                resolution.add_binding(binding)

    def _link(self, binding: Binding) -> None:
        self._patterns[binding] = HeaderPattern(binding.arguments)

    def _unlink(self, binding: Binding) -> None:
        del self._patterns[binding]
