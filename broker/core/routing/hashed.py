"""Exchanges that route each message to only one of their destinations, by a hash or at random."""

from __future__ import annotations

import json
from typing import Final, final

from broker.core.errors import PreconditionFailed
from broker.core.hashing import Share, Slots, find_lowest_draw, hash_of
from broker.core.message_view import MessageView
from broker.core.routing.graph import Binding, Description, Exchange, Resolution
from broker.core.values import encode, show, type_name


@final
class Choice(Share):
    """A destination that may be chosen, by the binding that leads there, with a weight of at least 1."""

    def __init__(self, binding: Binding, weight: int) -> None:
        super().__init__(f"{binding.destination_type} {binding.destination_name}", weight)
        self.binding = binding


CONSISTENT_HASH: Final = "x-consistent-hash"
MODULUS_HASH: Final = "x-modulus-hash"
RANDOM: Final = "x-random"
LOCAL_RANDOM: Final = "x-local-random"

HASH_HEADER: Final = "hash-header"
HASH_PROPERTY: Final = "hash-property"
_HASH_PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")


class ChoosingExchange(Exchange):
    """An exchange that chooses among the destinations of its bindings.

    Bindings with a false selector are out.

    A destination is one choice however often it is bound, with the weight of its heaviest binding.
    """

    def __init__(self, described: Description) -> None:
        super().__init__(described)
        self.chooses_by_message = False
        self._choices: list[Choice] | None = None

    def match(self, keys: list[str], view: MessageView | None, resolution: Resolution) -> None:
        """Add the chosen destination."""
        if self.chooses_by_message or self.conditional != 0:
            resolution.by_message = True
            if view is None:
                return
        choices = self._choices
        if choices is None:
            choices = self._find_choices(view)
            if self.conditional == 0:
                self._choices = choices
        if choices:
            resolution.add_binding(self.choose(choices, keys, view, resolution).binding)

    def choose(
        self, choices: list[Choice], keys: list[str], view: MessageView | None, resolution: Resolution
    ) -> Choice:
        """Return one of the choices, at least one; `view` is None unless `chooses_by_message`."""
        raise NotImplementedError

    def weight_of(self, binding: Binding) -> int:
        """Return the weight of a binding."""
        return 1

    def _find_choices(self, view: MessageView | None) -> list[Choice]:
        """Return the destinations of the bindings that apply, in the order of their names."""
        heaviest: dict[tuple[str, str], Binding] = {}
        for binding in self.bindings():
            if binding.applies(view):
                name = (binding.destination_type, binding.destination_name)
                other = heaviest.get(name)
                if other is None or self.weight_of(binding) > self.weight_of(other):
                    heaviest[name] = binding
        return [Choice(binding, self.weight_of(binding)) for _, binding in sorted(heaviest.items())]

    def on_bindings_changed(self) -> None:
        """Forget the choices, whose set or names have changed."""
        self._choices = None

    def _link(self, binding: Binding) -> None:
        pass  # `outgoing` has all that is needed

    def _unlink(self, binding: Binding) -> None:
        pass


@final
class ConsistentHashExchange(ChoosingExchange):
    """An exchange that chooses by a hash of the routing key, a header or a property.

    The weights are the keys of the bindings.

    A change of the bindings moves only the share of its destination. [RabbitMQ x-consistent-hash, there with
    a jump hash over buckets]
    """

    def __init__(self, described: Description) -> None:
        super().__init__(described)
        self._slots = Slots()
        self._header = self._text(HASH_HEADER)
        self._property = self._text(HASH_PROPERTY)
        if self._header and self._property:
            raise PreconditionFailed(
                f"{HASH_HEADER} and {HASH_PROPERTY} are mutually exclusive: exchange '{self.name}' is to "
                f"have '{self._header}' and '{self._property}'"
            )
        if self._property and self._property not in _HASH_PROPERTIES:
            raise PreconditionFailed(
                f"Unsupported property: {self._property}: arg '{HASH_PROPERTY}' of exchange '{self.name}' "
                f"must be one of {', '.join(_HASH_PROPERTIES)}"
            )
        self.chooses_by_message = bool(self._header or self._property)

    def check(self, binding: Binding) -> None:
        """Refuse a routing key that is no weight."""
        key = binding.routing_key
        if not (key.isascii() and key.isdigit()):
            raise PreconditionFailed(f"The binding key must be an integer: '{key}'")
        if int(key) < 1:
            raise PreconditionFailed(f"The binding key must be greater than 0: '{key}'")

    def choose(
        self, choices: list[Choice], keys: list[str], view: MessageView | None, resolution: Resolution
    ) -> Choice:
        """Return the owner of the hash."""
        number = hash_of(self._hashed(keys, view))
        if self.conditional != 0:
            return choices[find_lowest_draw(number, choices)]
        return choices[self._slots.find_owner(number, choices)]

    def weight_of(self, binding: Binding) -> int:
        """Return the binding's key."""
        return int(binding.routing_key)

    def _hashed(self, keys: list[str], view: MessageView | None) -> bytes:
        if view is None or not self.chooses_by_message:
            return keys[0].encode("utf-8", "surrogateescape")
        value = view.headers().get(self._header) if self._header else view.property(self._property)
        if isinstance(value, str):
            return value.encode("utf-8", "surrogateescape")
        return json.dumps(encode(value), sort_keys=True).encode()

    def _text(self, name: str) -> str:
        value = self.arguments.get(name, "")
        if not isinstance(value, str):
            raise PreconditionFailed(
                f"invalid arg '{name}' for exchange '{self.name}': '{show(value)}' of type "
                f"'{type_name(value)}' is not a string"
            )
        return value

    def on_bindings_changed(self) -> None:
        """Forget the choices and the slots, whose choices or names have changed."""
        super().on_bindings_changed()
        self._slots.clear()


@final
class ModulusHashExchange(ChoosingExchange):
    """An exchange that chooses by a hash of the keys modulo the count of destinations. [x-modulus-hash]"""

    def choose(
        self, choices: list[Choice], keys: list[str], view: MessageView | None, resolution: Resolution
    ) -> Choice:
        """Return the choice with the number of the hash, in the order of their names."""
        return choices[hash_of("\0".join(keys).encode("utf-8", "surrogateescape")) % len(choices)]


class RandomExchange(ChoosingExchange):
    """An exchange that chooses at random. [RabbitMQ x-random]"""

    def __init__(self, described: Description) -> None:
        super().__init__(described)
        self.chooses_by_message = True

    def choose(
        self, choices: list[Choice], keys: list[str], view: MessageView | None, resolution: Resolution
    ) -> Choice:
        """Return a random choice; all are equally likely."""
        return choices[resolution.chance.below(len(choices))] if len(choices) > 1 else choices[0]


@final
class LocalRandomExchange(RandomExchange):
    """An exchange that chooses a queue at random; on one node all are local. [RabbitMQ x-local-random]"""

    def check(self, binding: Binding) -> None:
        """Refuse routing keys, and exchanges as destinations."""
        if binding.routing_key:
            raise PreconditionFailed(f"Non empty binding '{binding.routing_key}' key not permitted")
        if binding.exchange is not None:
            raise PreconditionFailed(
                f"Destination not found: '{binding.destination_name}' is an exchange, and an {LOCAL_RANDOM} "
                "exchange sends to queues only"
            )
