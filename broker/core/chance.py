"""Chance for a core that has none of its own: numbers counted up from a seed that comes from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from broker.core.hashing import hash_of


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
