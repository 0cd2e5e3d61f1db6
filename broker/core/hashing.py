"""Hashes that are the same in every process and after every restart, and choices made by them."""

from __future__ import annotations

from hashlib import blake2b
from math import log
from typing import Final, final

from broker.core.binding import Binding

SLOTS: Final = 65536
_TWO_TO_64: Final = float(2**64)


def hash_of(data: bytes) -> int:
    """64 bits."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


@final
class Choice:
    """A destination that may be chosen, by the binding that leads there, with a weight of at least 1."""

    def __init__(self, binding: Binding, weight: int) -> None:
        self.binding = binding
        self.weight = weight
        name = f"{binding.destination_type} {binding.destination_name}"
        self.seed = blake2b(name.encode("utf-8", "surrogateescape"), digest_size=16).digest()

    def draw(self, slot: bytes) -> float:
        """What the destination draws for a slot: exponentially distributed, with the weight as its rate."""
        digest = blake2b(slot, digest_size=8, key=self.seed).digest()
        return -log((int.from_bytes(digest, "big") + 0.5) / _TWO_TO_64) / self.weight


@final
class Slots:
    """Who gets what: 65,536 slots, each of which belongs to one of several choices.

    A slot belongs to the choice that draws the lowest number for it. So shares are as the weights are, a
    choice that comes or goes takes or leaves only its own slots, and the order in which they came does not
    matter. [weighted rendezvous hashing]

    A slot's owner is found when it is first asked for, which looks at every choice, and kept.
    """

    def __init__(self) -> None:
        self._owners: list[Choice | None] = []

    def clear(self) -> None:
        """The choices are others now."""
        self._owners = []

    def owner(self, number: int, choices: list[Choice]) -> Choice:
        """The owner of a number among all choices; these may only change with `clear`."""
        if not self._owners:
            self._owners = [None] * SLOTS
        slot = number % SLOTS
        found = self._owners[slot]
        if found is None:
            found = lowest(number, choices)
            self._owners[slot] = found
        return found


def lowest(number: int, choices: list[Choice]) -> Choice:
    """The choice that owns a number; there must be one."""
    slot = (number % SLOTS).to_bytes(2, "big")
    best = choices[0]
    best_draw = best.draw(slot)
    for choice in choices[1:]:
        draw = choice.draw(slot)
        if draw < best_draw:
            best = choice
            best_draw = draw
    return best
