"""Long work in the event loop: slices between which messages go on, and gates for steps of one thing."""

import asyncio
import time
from collections.abc import Generator
from typing import Final, Protocol, TypeVar

SLICE_SECONDS: Final = 0.002

T = TypeVar("T")


class Slices:
    """Yields to the event loop after a slice of time: `await slices.breathe()` after every small step."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_SECONDS

    async def breathe(self) -> None:
        """Let others run if it is their turn."""
        if time.perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + SLICE_SECONDS

    async def drain(self, steps: Generator[object, None, T]) -> T:
        """Take all steps of something that is done step by step; returns what it comes to."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            await self.breathe()


class Gated(Protocol):
    """Something with a place for its gate, which the core does not read."""

    gate: object | None


def gate(of: Gated) -> asyncio.Lock:
    """The gate of a stage or a sink."""
    if not isinstance(of.gate, asyncio.Lock):
        of.gate = asyncio.Lock()
    return of.gate
