"""Hashes that are equal in every process, and what is drawn from them: random numbers, and owners of keys.

The core has no source of random numbers of its own. [weighted rendezvous hashing]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from math import log
from typing import Final, final

from mypy_extensions import i64

SLOTS: Final = 65536
_TWO_TO_64: Final = float(2**64)


def hash_of(data: bytes) -> int:
    """Return a hash of 64 bits."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


@final
class Chance:
    """A sequence of numbers that cannot be guessed without the seed.

    `seeds` returns the seed. It is called once, when the first number is wanted. Equal seeds give equal
    sequences.
    """

    def __init__(self, seeds: Callable[[], str]) -> None:
        self._seeds = seeds
        self._seed = ""
        self._count: i64 = 0

    def below(self, bound: int) -> int:
        """Return a number from 0 to `bound` - 1, all equally likely."""
        if not self._seed:
            self._seed = self._seeds()
        self._count += 1
        return hash_of(f"{self._seed}/{self._count}".encode()) % bound


class Share:
    """A share of the slots, with a weight of at least 1. `name`: equal names draw equal numbers."""

    def __init__(self, name: str, weight: int) -> None:
        self.weight = weight
        self.seed = blake2b(name.encode("utf-8", "surrogateescape"), digest_size=16).digest()

    def draw(self, slot: bytes) -> float:
        """Return the share's draw for a slot.

        The draw is exponentially distributed, with the weight as its rate.
        """
        digest = blake2b(slot, digest_size=8, key=self.seed).digest()
        return -log((int.from_bytes(digest, "big") + 0.5) / _TWO_TO_64) / self.weight


@final
class Slots:
    """The assignment of 65,536 slots to shares, each slot to one share.

    A slot belongs to the share with the lowest draw for it. So sizes follow the weights, a share that is
    added or removed takes or leaves only its own slots, and the order of the shares does not matter.
    [weighted rendezvous hashing]

    The owner of a slot is computed at its first use, which looks at every share, and then remembered.
    """

    def __init__(self) -> None:
        self._owners: list[int] = []

    def clear(self) -> None:
        """Forget all owners, because the shares have changed."""
        self._owners = []

    def find_owner(self, number: int, shares: Sequence[Share]) -> int:
        """Return the index of the owner of a number.

        After a change of the shares, `clear` must come first.
        """
        if not self._owners:
            self._owners = [-1] * SLOTS
        slot = number % SLOTS
        owner = self._owners[slot]
        if owner < 0:
            owner = find_lowest_draw(number, shares)
            self._owners[slot] = owner
        return owner


def find_lowest_draw(number: int, shares: Sequence[Share]) -> int:
    """Return the index of the share that owns a number, of at least one share."""
    slot = (number % SLOTS).to_bytes(2, "big")
    best = 0
    best_draw = shares[0].draw(slot)
    for index in range(1, len(shares)):
        draw = shares[index].draw(slot)
        if draw < best_draw:
            best = index
            best_draw = draw
    return best
