"""Long work in the event loop: slices between which messages are handled, and locks for steps on objects."""

import asyncio
import time
from collections.abc import AsyncIterator, Generator, Sequence
from typing import Final, Protocol, TypeVar

SLICE_SECONDS: Final = 0.001
STEPS: Final = 16
"""Small steps for each look at the clock, where a step takes far less than a slice."""

T = TypeVar("T")


class Slices:
    """Yields to the event loop after a slice of time: `await slices.breathe()` after every small step."""

    def __init__(self) -> None:
        self._until = 0.0  # the first slice ends at once: the request has taken a part of this turn already

    async def breathe(self) -> None:
        """Let other work run if this slice has lasted long enough."""
        if time.perf_counter() >= self._until:
            await self.rest()

    async def rest(self) -> None:
        """Let other work run, and begin a slice."""
        await asyncio.sleep(0)
        self._until = time.perf_counter() + SLICE_SECONDS

    async def parts(self, items: Sequence[T]) -> AsyncIterator[Sequence[T]]:
        """Yield parts of `items` for steps that are too small to look at the clock after each."""
        for start in range(0, len(items), STEPS):
            yield items[start : start + STEPS]
            await self.breathe()

    async def drain(self, steps: Generator[object, None, T]) -> T:
        """Run all steps of stepwise work, and return its result."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            await self.breathe()


class GatedObject(Protocol):
    """An object with a slot for its lock, which the core does not read."""

    gate: object | None


def gate(of: GatedObject) -> asyncio.Lock:
    """Return the lock of a stage or a sink."""
    if not isinstance(of.gate, asyncio.Lock):
        of.gate = asyncio.Lock()
    return of.gate
