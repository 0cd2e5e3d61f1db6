"""The pauses between two polls for new data."""

from __future__ import annotations

import time
from typing import Final

PAUSE_MAX: Final = 0.1  # longest single pause in seconds: a stopped query waits for its end


class Poll:
    """Pauses between polls. `interval`: seconds between two polls if the first has found nothing."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._empty_at = 0.0

    def found_nothing(self) -> None:
        """Note that a poll has found nothing."""
        self._empty_at = time.monotonic()

    def is_due(self) -> bool:
        """Whether to poll now, perhaps after a pause: Spark asks without pauses."""
        wait = self._empty_at + self._interval - time.monotonic()
        if not self._empty_at or wait <= 0:
            return True
        time.sleep(min(wait, PAUSE_MAX))
        return wait <= PAUSE_MAX
