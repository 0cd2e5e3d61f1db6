"""Dead letters, and where they may not go. No code is shared with the broker."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.queues.model import REJECTED, Shelf
from tests.simulation.queues.notes import Note


@dataclass
class Letter:
    """A dead letter that is on its way. `to`: where it is put; `origin`: what it is of, in the log.

    `waits`: it does not arrive, and its message waits.
    """

    note: Note
    to: list[Shelf]
    origin: tuple[str, int]
    waits: bool = False


def ends_cycle(note: Note, queue: str, reason: str) -> bool:
    """Whether a letter about `note` may not go to `queue`: it died there, and no client refused it since."""
    if reason == REJECTED:
        return False
    for where, why in note.deaths:
        if why == REJECTED:
            return False
        if where == queue:
            return True
    return False
