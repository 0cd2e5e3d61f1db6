"""Spark's filters of a query as the filters that a batch can apply while it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

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

from pipeline.connector.filters import (
    ENDLESS,
    OFFSET,
    ROUTING_KEY,
    TIMESTAMP,
    RangeFilter,
    RangeFilters,
    ValueFilter,
)

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
KINDS: Final = {"queue": str, "partition": int, OFFSET: int, TIMESTAMP: datetime, ROUTING_KEY: str}
"""The columns that filters may name, and the type of the values that each is compared with."""

_BOUNDS: Final[dict[type[Filter], Callable[[int], tuple[int, int]]]] = {
    EqualTo: lambda value: (value, value + 1),
    EqualNullSafe: lambda value: (value, value + 1),
    GreaterThanOrEqual: lambda value: (value, ENDLESS),
    GreaterThan: lambda value: (value + 1, ENDLESS),
    LessThan: lambda value: (0, value),
    LessThanOrEqual: lambda value: (0, value + 1),
}


def convert_filters(filters: Sequence[Filter], has_times: bool) -> tuple[RangeFilters, list[Filter]]:
    """Return the filters that reading can apply, and the filters left to Spark.

    `has_times`: whether messages have the time of their append.
    """
    bounds: list[RangeFilter] = []
    choices: list[ValueFilter] = []
    left: list[Filter] = []
    for each in filters:
        path: tuple[str, ...] = getattr(each, "attribute", ())  # `Not` has none
        name = path[0] if len(path) == 1 else ""
        if name not in KINDS or (name == TIMESTAMP and not has_times):
            left.append(each)
        elif isinstance(each, IsNotNull):
            continue  # these columns are never null
        elif (choice := _read(each, name)) is None:
            left.append(each)
        elif isinstance(choice, RangeFilter):
            bounds.append(choice)
        else:
            choices.append(choice)
    return RangeFilters(tuple(bounds), tuple(choices)), left


def _read(each: Filter, name: str) -> RangeFilter | ValueFilter | None:
    """Convert a filter on one of KINDS; None: the filter is left to Spark."""
    values = each.value if isinstance(each, In) else (getattr(each, "value", None),)
    kind = KINDS[name]
    if not all(type(value) is kind for value in values):
        return None
    if kind is str or isinstance(each, In):
        known = name not in (OFFSET, TIMESTAMP) and isinstance(each, EqualTo | EqualNullSafe | In)
        return ValueFilter(name, frozenset(values)) if known else None
    bounds = _BOUNDS.get(type(each))
    if bounds is None:
        return None
    value: Any = values[0]
    number: int = (value - EPOCH) // timedelta(microseconds=1) if kind is datetime else value
    return RangeFilter(name, *bounds(number))
