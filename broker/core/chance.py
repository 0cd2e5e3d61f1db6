"""Chance for a core that has none of its own, and hashes that are the same in every process."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import final

from mypy_extensions import i64


def hash_of(data: bytes) -> int:
    """64 bits."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


@final
class Chance:
    """A row of numbers that nobody can guess who does not know the seed.

    `seeds` gives the seed, asked once and when the first number is wanted. The same seed gives the same row.
    """

    def __init__(self, seeds: Callable[[], str]) -> None:
        self._seeds = seeds
        self._seed = ""
        self._count: i64 = 0

    def below(self, bound: int) -> int:
        """A number from 0 to `bound` - 1, each as likely as the others."""
        if not self._seed:
            self._seed = self._seeds()
        self._count += 1
        return hash_of(f"{self._seed}/{self._count}".encode()) % bound
