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

from broker.admin.api.answers import ApiError, encode_json
from broker.admin.api.slices import STEPS, Slices
from broker.core.policies.pattern import NamePattern

PAGE_SIZE: Final = 100
PAGE_SIZE_MAX: Final = 500
FILTER_MAX: Final = 1024
DIGITS_MAX: Final = 18  # for a number in a query
RUN: Final = 256  # items that are sorted at once
PIECE: Final = 64  # items that are sent at once

NO_FIELDS: Final[Mapping[str, Callable[[Any], object]]] = {}

T = TypeVar("T")

Shown = dict[str, Any]
Key = tuple[Any, ...]


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


async def _columns(
    columns: Annotated[str, Query(description="Fields of the answer, with commas between them.")] = "",
) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(column.split(".")) for column in columns.split(",") if column)


Columns = Annotated[tuple[tuple[str, ...], ...], Depends(_columns)]
"""The fields that a request wants of an object, each as a path; all fields if none is named."""


async def _options(
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
        ordered = await _sorted(everything, show, options, rank, quick, range(len(everything)), slices)
        return StreamingResponse(
            _pieces(ordered, show, options.columns, slices),
            media_type="application/json",
            headers={"cache-control": "no-cache"},
        )
    matches = await _filtered(everything, options, name, slices)
    first = find_page_start(options, len(matches))
    wanted = range(first, min(first + options.page_size, len(matches)))
    rows: list[bytes] = []
    for item in await _sorted(matches, show, options, rank, quick, wanted, slices):
        rows.append(encode_json(select_columns(show(item), options.columns)))
        await slices.breathe()
    await slices.rest()
    return answer_with_page(rows, options, len(matches), len(everything))


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
    rows: list[bytes], options: ListOptions, filtered_count: int, total_count: int
) -> Response:
    """Answer with the items of the requested page, in JSON; `filtered_count` of all items pass the filter."""
    head = encode_json(
        {
            "total_count": total_count,
            "item_count": len(rows),
            "filtered_count": filtered_count,
            "page": options.page or 1,
            "page_size": options.page_size,
            "page_count": -(-filtered_count // options.page_size),
        }
    )
    body = b'%s,"items":[%s]}' % (head[:-1], b",".join(rows))
    return Response(body, media_type="application/json", headers={"cache-control": "no-cache"})


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
    async for part in slices.parts(items):
        found += [item for item in part if matches(name(item))]
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
    wanted: range,
    slices: Slices,
) -> list[T]:
    """Return the items at the places `wanted` of the order: sorted runs, merged no further than needed."""
    if options.sort == "":
        return items[wanted.start : wanted.stop]
    key = _key_of(options.sort, show, rank, quick)
    from_end = len(items) - wanted.start < wanted.stop  # the end of the order is nearer
    reverse = options.sort_reverse != from_end
    runs: list[list[tuple[Key, int]]] = []
    run: list[tuple[Key, int]] = []
    index = 0
    async for part in slices.parts(items):
        for item in part:
            run.append((key(item), index))
            index += 1
        if len(run) >= RUN or index == len(items):
            run.sort(reverse=reverse)
            runs.append(run)
            run = []
    skipped = len(items) - wanted.stop if from_end else wanted.start
    ordered: list[T] = []
    for place, (_, index) in enumerate(heapq.merge(*runs, reverse=reverse)):
        if len(ordered) == len(wanted):
            break
        if place >= skipped:
            ordered.append(items[index])
        if place % STEPS == 0:
            await slices.breathe()
    if from_end:
        ordered.reverse()
    return ordered


def _key_of(
    sort: str | None,
    show: Callable[[T], Shown],
    rank: Callable[[T], tuple[str, ...]],
    quick: Mapping[str, Callable[[T], object]],
) -> Callable[[T], Key]:
    """Return the function from an item to its place in the order: by the field `sort`, then by `rank`."""
    if not sort:
        return rank
    read = quick.get(sort)
    if read is not None:
        return lambda item: (_comparable(read(item)), *rank(item))
    path = sort.split(".")
    return lambda item: (_comparable(_at(show(item), path)), *rank(item))


async def _pieces(
    items: list[T],
    show: Callable[[T], Shown],
    columns: Sequence[tuple[str, ...]],
    slices: Slices,
) -> AsyncIterator[bytes]:
    opening = b"["
    for start in range(0, len(items), PIECE):
        rows: list[bytes] = []
        for item in items[start : start + PIECE]:
            rows.append(encode_json(select_columns(show(item), columns)))
            await slices.breathe()
        yield opening + b",".join(rows)
        opening = b","
    yield b"[]" if opening == b"[" else b"]"


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
