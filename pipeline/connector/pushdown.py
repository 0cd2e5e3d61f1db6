"""Filters of a query by which a batch reads less: which partitions, from where to where, and which rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from pipeline.connector.offsets import AtTime, Place, Range

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ENDLESS: Final = 1 << 62
OFFSET: Final = "offset"
TIMESTAMP: Final = "timestamp"
ROUTING_KEY: Final = "routing_key"
KINDS: Final = {"queue": str, "partition": int, OFFSET: int, TIMESTAMP: datetime, ROUTING_KEY: str}
"""The columns that filters may name, and the type of values that each is compared with."""

_BOUNDS: Final[dict[type[Filter], Callable[[int], tuple[int, int]]]] = {
    EqualTo: lambda value: (value, value + 1),
    EqualNullSafe: lambda value: (value, value + 1),
    GreaterThanOrEqual: lambda value: (value, ENDLESS),
    GreaterThan: lambda value: (value + 1, ENDLESS),
    LessThan: lambda value: (0, value),
    LessThanOrEqual: lambda value: (0, value + 1),
}


class Within(NamedTuple):
    """A column is from `least` up to `behind`, exclusively; times are in microseconds since 1970."""

    column: str
    least: int
    behind: int


class OneOf(NamedTuple):
    """A column is one of some values."""

    column: str
    values: frozenset[object]


class Pushed(NamedTuple):
    """The filters that reading goes by; every row has to pass all of them."""

    bounds: tuple[Within, ...] = ()
    choices: tuple[OneOf, ...] = ()

    def narrowed(self, ranges: Iterable[Range], at_time: AtTime) -> list[Range]:
        """Return the parts of ranges that the filters leave. `at_time` is asked for each bound of a time.

        Times are taken to rise along a partition, as they do unless the broker's clock was set back.

        Raises what `at_time` raises.
        """
        found: list[Range] = []
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
                found.append(each._replace(start=start, end=end))
        return found

    @property
    def keys(self) -> frozenset[object] | None:
        """The routing keys that rows may have; None: any."""
        found = [each.values for each in self.choices if each.column == ROUTING_KEY]
        return frozenset.intersection(*found) if found else None

    def _has(self, place: Place) -> bool:
        values: dict[str, object] = {"queue": place.queue, "partition": place.number}
        return all(
            values[each.column] in each.values for each in self.choices if each.column in values
        ) and all(
            each.least <= place.number < each.behind for each in self.bounds if each.column == "partition"
        )


def pushed(filters: Sequence[Filter], has_times: bool) -> tuple[Pushed, list[Filter]]:
    """The filters that reading can go by, and those that are left to Spark.

    `has_times`: whether messages say when they were appended.
    """
    bounds: list[Within] = []
    choices: list[OneOf] = []
    left: list[Filter] = []
    for each in filters:
        path: tuple[str, ...] = getattr(each, "attribute", ())  # `Not` has none
        name = path[0] if len(path) == 1 else ""
        if name not in KINDS or (name == TIMESTAMP and not has_times):
            left.append(each)
        elif isinstance(each, IsNotNull):
            continue  # these never are
        elif (found := _read(each, name)) is None:
            left.append(each)
        elif isinstance(found, Within):
            bounds.append(found)
        else:
            choices.append(found)
    return Pushed(tuple(bounds), tuple(choices)), left


def _read(each: Filter, name: str) -> Within | OneOf | None:
    """A filter on one of our columns; None: it is left to Spark."""
    values = each.value if isinstance(each, In) else (getattr(each, "value", None),)
    kind = KINDS[name]
    if not all(type(value) is kind for value in values):
        return None
    if kind is str or isinstance(each, In):
        known = name not in (OFFSET, TIMESTAMP) and isinstance(each, EqualTo | EqualNullSafe | In)
        return OneOf(name, frozenset(values)) if known else None
    bounds = _BOUNDS.get(type(each))
    if bounds is None:
        return None
    value: Any = values[0]
    number: int = (value - EPOCH) // timedelta(microseconds=1) if kind is datetime else value
    return Within(name, *bounds(number))
