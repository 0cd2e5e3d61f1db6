"""Long work in the event loop, in slices between which messages go on."""

import asyncio
import time
from collections.abc import Iterable
from typing import Final

SLICE_SECONDS: Final = 0.002


class Slices:
    """Gives way once a slice of time is used up: `await slices.breathe()` after every small step."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_SECONDS

    async def breathe(self) -> None:
        """Let others run if it is their turn."""
        if time.perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + SLICE_SECONDS

    async def drain(self, steps: Iterable[object]) -> None:
        """Take all steps of something that is done step by step."""
        for _ in steps:
            await self.breathe()
