"""What those wait with that change one thing in several steps, one after the other."""

import asyncio
from typing import Protocol


class Gated(Protocol):
    """Something with a place for its gate, which the core does not read."""

    gate: object | None


def gate(of: Gated) -> asyncio.Lock:
    """The gate of a stage or a sink."""
    if not isinstance(of.gate, asyncio.Lock):
        of.gate = asyncio.Lock()
    return of.gate
