"""Random numbers for the core, which has no source of its own, and hashes that are equal in every process."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import final

from mypy_extensions import i64


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
