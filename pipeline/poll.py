"""How often what is read is looked at while there is nothing new."""

from __future__ import annotations

import time
from typing import Final

PAUSE_MAX: Final = 0.1  # seconds that are slept in one go: a query that is stopped waits for it


class Poll:
    """`interval`: seconds between two looks of which the first has found nothing new."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._empty_at = 0.0

    def found_nothing(self) -> None:
        """Note that a look has found nothing new."""
        self._empty_at = time.monotonic()

    def is_due(self) -> bool:
        """Whether to look, perhaps after a pause: Spark asks without end."""
        wait = self._empty_at + self._interval - time.monotonic()
        if not self._empty_at or wait <= 0:
            return True
        time.sleep(min(wait, PAUSE_MAX))
        return wait <= PAUSE_MAX
