"""Bindings, and the sets of destinations that they add up to."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Final, final

from broker.core.field_values import fingerprint
from broker.core.queue import Queue
from broker.core.selector.argument import selector_argument

if TYPE_CHECKING:
    from broker.core.exchange import Exchange
    from broker.core.view import MessageView


@final
class Binding:
    """A rule of the exchange `source`: what matches it goes to `destination`, a queue or another exchange.

    A binding is identified by its source, its destination, its routing key and its arguments; `key` is the
    latter two. It may have a selector: then it applies only to messages for which that is true.

    Raises:
        PreconditionFailed: the selector is none.
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
        """The name of the destination now: a queue may get another one."""
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
    """What tells a binding from others between the same two; equal arguments of different types differ."""
    return routing_key, fingerprint(arguments)


def digest_of(arguments: str) -> str:
    """The fingerprint of arguments in a few characters that a path may have; "" for none."""
    if not arguments:
        return ""
    digest = hashlib.blake2b(arguments.encode(), digest_size=_DIGEST_BYTES).digest()
    return base64.urlsafe_b64encode(digest).decode()


@final
class Destinations:
    """Queues and exchanges, each once, with the number of bindings that lead there.

    Bindings with a selector are kept apart: which of them lead anywhere is another question for each message.
    """

    def __init__(self) -> None:
        self.only: Queue | None = None  # the one destination, if it is one queue, as it mostly is
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
        """Count one binding less; the destination goes with its last one."""
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

    def empty(self) -> bool:
        """Whether no binding leads anywhere."""
        return not self.queues and not self.exchanges and self.conditional is None
