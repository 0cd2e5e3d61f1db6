"""Rates of counters that nobody samples: what has changed since the last look."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Final

INTERVAL_SECONDS: Final = 5.0  # looks that follow one another sooner see the same rates
REMEMBERED_MAX: Final = 20_000

_Sample = tuple[float, dict[str, int], dict[str, float]]


class Rates:
    """For each object that was looked at lately: its counters then, and their rates.

    The first look sees 0.0. Sampling 100,000 queues on the chance that somebody looks would cost more than
    routing messages; so whoever wants rates looks twice, and monitors do.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples: OrderedDict[Hashable, _Sample] = OrderedDict()

    def of(self, key: Hashable, counters: Mapping[str, int]) -> dict[str, float]:
        """What each of `counters` has grown by per second."""
        now = self._clock()
        known = self._samples.get(key)
        if known is None:
            rates = dict.fromkeys(counters, 0.0)
        elif now - known[0] < INTERVAL_SECONDS:
            return known[2]
        else:
            then, before, _ = known
            rates = {
                name: max(0.0, round((value - before.get(name, value)) / (now - then), 1))
                for name, value in counters.items()
            }
        self._samples[key] = (now, dict(counters), rates)
        self._samples.move_to_end(key)
        if len(self._samples) > REMEMBERED_MAX:
            self._samples.popitem(last=False)
        return rates

    def stats(self, key: Hashable, counters: Mapping[str, int]) -> dict[str, object]:
        """Counters as RabbitMQ shows them: each with its rate beside it."""
        rates = self.of(key, counters)
        shown: dict[str, object] = {}
        for name, value in counters.items():
            shown[name] = value
            shown[f"{name}_details"] = {"rate": rates.get(name, 0.0)}
        return shown
