"""Long work in the event loop: slices between which messages are handled, and locks for steps on objects."""

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
        """Let other work run if this slice has lasted long enough."""
        if time.perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + SLICE_SECONDS

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
