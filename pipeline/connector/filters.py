"""The filters that a batch applies while it reads: which partitions, which offsets, and which rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pipeline.connector.offsets import AtTime, Place, Range

ENDLESS: Final = 1 << 62
OFFSET: Final = "offset"
TIMESTAMP: Final = "timestamp"
ROUTING_KEY: Final = "routing_key"


class RangeFilter(NamedTuple):
    """A column is from `least` up to `behind`, exclusively; times are in microseconds since 1970."""

    column: str
    least: int
    behind: int


class ValueFilter(NamedTuple):
    """A column is one of some values."""

    column: str
    values: frozenset[object]


class RangeFilters(NamedTuple):
    """The filters that a batch applies while it reads; every row has to pass all of them."""

    bounds: tuple[RangeFilter, ...] = ()
    choices: tuple[ValueFilter, ...] = ()

    def narrowed(self, ranges: Iterable[Range], at_time: AtTime) -> list[Range]:
        """Return the parts of ranges that pass the filters. `at_time` is called for each bound of a time.

        Times are assumed to grow along a partition, as long as the broker's clock is not set back. Raises the
        errors of `at_time`.
        """
        narrowed: list[Range] = []
        for each in ranges:
            if not self._has(each.place):
                continue
            start, end = each.start, each.end
            for bound in self.bounds:
                least, behind = bound.least, bound.behind
                if bound.column == TIMESTAMP:
                    least = at_time(each.place, least) if least > 0 else 0
                    behind = at_time(each.place, max(behind, 0)) if behind < ENDLESS else ENDLESS
                elif bound.column != OFFSET:
                    continue
                start, end = max(start, least), min(end, behind)
            if start < end:
                narrowed.append(each._replace(start=start, end=end))
        return narrowed

    @property
    def keys(self) -> frozenset[object] | None:
        """The routing keys that rows may have; None: any."""
        choices = [each.values for each in self.choices if each.column == ROUTING_KEY]
        return frozenset.intersection(*choices) if choices else None

    def _has(self, place: Place) -> bool:
        values: dict[str, object] = {"queue": place.queue, "partition": place.number}
        return all(
            values[each.column] in each.values for each in self.choices if each.column in values
        ) and all(
            each.least <= place.number < each.behind for each in self.bounds if each.column == "partition"
        )
