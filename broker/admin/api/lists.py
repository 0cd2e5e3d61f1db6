"""Lists: filtered, sorted, paged and reduced to columns, without delaying messages.

[RabbitMQ management: pagination]. All work is done in slices. A list without pages is sent piece by piece
while it is made.
"""

import heapq
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, Query
from fastapi.responses import Response, StreamingResponse

from broker.admin.api.answers import ApiError, JSONResponse
from broker.admin.api.slices import Slices
from broker.core.policies.pattern import NamePattern

PAGE_SIZE: Final = 100
PAGE_SIZE_MAX: Final = 500
FILTER_MAX: Final = 1024
DIGITS_MAX: Final = 18  # for a number in a query
RUN: Final = 1000  # items that are sorted at once
PIECE: Final = 64  # items that are sent at once

NO_FIELDS: Final[Mapping[str, Callable[[Any], object]]] = {}

T = TypeVar("T")

Shown = dict[str, Any]
Key = tuple[tuple[int, Any], ...]


@dataclass(frozen=True)
class ListOptions:
    """The page, the filter, the order and the columns that a request wants of a list."""

    page: int | None
    page_size: int
    name: str
    use_regex: bool
    sort: str | None
    sort_reverse: bool
    columns: tuple[tuple[str, ...], ...]


def _columns(
    columns: Annotated[str, Query(description="Fields of the answer, with commas between them.")] = "",
) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(column.split(".")) for column in columns.split(",") if column)


Columns = Annotated[tuple[tuple[str, ...], ...], Depends(_columns)]
"""The fields that a request wants of an object, each as a path; all fields if none is named."""


def _options(
    columns: Columns,
    page: Annotated[
        str | None, Query(description="Number of the page, from 1. Without `page` the answer has all items.")
    ] = None,
    page_size: Annotated[
        str | None, Query(description="Items of a page: 100 by default, at most 500.")
    ] = None,
    part: Annotated[
        str, Query(alias="name", description="Part of the names to list, or a regular expression.")
    ] = "",  # some paths have a name of their own
    use_regex: Annotated[str, Query(description="`true`: `name` is a regular expression.")] = "false",
    sort: Annotated[str | None, Query(description="Field to sort by, such as `messages`.")] = None,
    sort_reverse: Annotated[str, Query(description="`true`: the largest value comes first.")] = "false",
) -> ListOptions:
    number = None if page is None else _positive("page", page)
    size = PAGE_SIZE if page_size is None or page is None else _positive("page_size", page_size)
    if size > PAGE_SIZE_MAX:
        raise _invalid(f"page size {size} is above {PAGE_SIZE_MAX}")
    if use_regex == "true" and len(part) > FILTER_MAX:
        raise _invalid(f"name filter regex is longer than {FILTER_MAX} characters")
    return ListOptions(number, size, part, use_regex == "true", sort, sort_reverse == "true", columns)


Options = Annotated[ListOptions, Depends(_options)]


async def answer_with_list(
    items: Iterable[T],
    show: Callable[[T], Shown],
    options: ListOptions,
    rank: Callable[[T], tuple[str, ...]],
    name: Callable[[T], str],
    quick: Mapping[str, Callable[[T], object]] = NO_FIELDS,
) -> Response:
    """Answer with a list of `items`, each in the form that `show` returns.

    `rank` is the default order. The filter of the request is matched against `name`. `quick`: fields to sort
    by that can be had without showing the whole object. Raises ApiError for a missing page, and for a filter
    that is no regular expression.
    """
    slices = Slices()
    everything = list(items)
    if options.page is None:
        ordered = await _sorted(everything, show, options, rank, quick, None, slices)
        return StreamingResponse(
            _pieces(ordered, show, options.columns, slices),
            media_type="application/json",
            headers={"cache-control": "no-cache"},
        )
    matches = await _filtered(everything, options, name, slices)
    first = find_page_start(options, len(matches))
    ordered = await _sorted(matches, show, options, rank, quick, first + options.page_size, slices)
    shown: list[Shown] = []
    for item in ordered[first:]:
        shown.append(select_columns(show(item), options.columns))
        await slices.breathe()
    return answer_with_page(shown, options, len(matches), len(everything))


def find_page_start(options: ListOptions, count: int) -> int:
    """Return the place of the first item of the requested page, or of the first page, of `count` items.

    Raises ApiError if the page does not exist.
    """
    page = options.page or 1
    first = (page - 1) * options.page_size
    if first > 0 and first >= count:
        raise ApiError(
            400,
            "page_out_of_range",
            f"Page out of range, page: {page} page size: {options.page_size}, len: {count}",
        )
    return first


def answer_with_page(
    items: list[Shown], options: ListOptions, filtered_count: int, total_count: int
) -> JSONResponse:
    """Answer with the `items` of the requested page; the filter passes `filtered_count` of `total_count`."""
    return JSONResponse(
        {
            "total_count": total_count,
            "item_count": len(items),
            "filtered_count": filtered_count,
            "page": options.page or 1,
            "page_size": options.page_size,
            "page_count": -(-filtered_count // options.page_size),
            "items": items,
        },
        headers={"cache-control": "no-cache"},
    )


def select_columns(shown: Any, columns: Sequence[tuple[str, ...]]) -> Any:
    """Return only some columns of an object, or of each object in a list; all columns if none is named."""
    if not columns:
        return shown
    if isinstance(shown, list):
        return [select_columns(item, columns) for item in shown]
    if not isinstance(shown, dict):
        return shown
    kept: Shown = {}
    for key, value in shown.items():
        deeper = [column[1:] for column in columns if column[0] == key]
        if deeper:
            kept[key] = value if () in deeper else select_columns(value, deeper)
    return kept


async def _filtered(
    items: list[T], options: ListOptions, name: Callable[[T], str], slices: Slices
) -> list[T]:
    if not options.name:
        return items
    matches = _expression(options.name) if options.use_regex else _part(options.name)
    found: list[T] = []
    for item in items:
        if matches(name(item)):
            found.append(item)
        await slices.breathe()
    return found


def _part(wanted: str) -> Callable[[str], bool]:
    folded = wanted.lower()
    return lambda name: folded in name.lower()


def _expression(wanted: str) -> Callable[[str], bool]:
    pattern = NamePattern(wanted, ignore_case=True)
    if pattern.objection:
        raise ApiError(400, "bad_request", f"'{wanted}' {pattern.objection}")
    return pattern.matches


async def _sorted(
    items: list[T],
    show: Callable[[T], Shown],
    options: ListOptions,
    rank: Callable[[T], tuple[str, ...]],
    quick: Mapping[str, Callable[[T], object]],
    wanted: int | None,
    slices: Slices,
) -> list[T]:
    """Return the first `wanted` items in order: sorted runs, merged no further than needed."""
    if options.sort == "":
        return items
    path = options.sort.split(".") if options.sort else []
    read = quick.get(options.sort or "")

    def key(item: T) -> Key:
        default = tuple((1, part) for part in rank(item))
        if not path:
            return default
        return (_comparable(_at(show(item), path) if read is None else read(item)), *default)

    runs: list[list[tuple[Key, int]]] = []
    for start in range(0, len(items), RUN):
        run: list[tuple[Key, int]] = []
        for index in range(start, min(start + RUN, len(items))):
            run.append((key(items[index]), index))
            await slices.breathe()
        run.sort(reverse=options.sort_reverse)
        runs.append(run)
    ordered: list[T] = []
    for _, index in heapq.merge(*runs, reverse=options.sort_reverse):
        if wanted is not None and len(ordered) >= wanted:
            break
        ordered.append(items[index])
        await slices.breathe()
    return ordered


async def _pieces(
    items: list[T],
    show: Callable[[T], Shown],
    columns: Sequence[tuple[str, ...]],
    slices: Slices,
) -> AsyncIterator[str]:
    opening = "["
    for start in range(0, len(items), PIECE):
        shown: list[str] = []
        for item in items[start : start + PIECE]:
            shown.append(json.dumps(select_columns(show(item), columns), separators=(",", ":")))
            await slices.breathe()
        yield opening + ",".join(shown)
        opening = ","
    yield "[]" if opening == "[" else "]"


def _at(shown: Any, path: list[str]) -> object:
    for part in path:
        if not isinstance(shown, dict):
            return None
        shown = shown.get(part)
    return shown


def _comparable(value: object) -> tuple[int, Any]:
    """Return a key that orders values of any kind; a missing value counts as 0. [RabbitMQ]"""
    if value is None:
        return 0, 0
    if isinstance(value, (int, float)):
        return 0, value
    return 1, value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _positive(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= DIGITS_MAX and int(value) > 0):
        raise _invalid(f"{name} is '{value}'")
    return int(value)


def _invalid(what: str) -> ApiError:
    return ApiError(400, "invalid_pagination_parameters", f"Invalid pagination parameters: {what}")
