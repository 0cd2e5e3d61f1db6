"""Lists of the HTTP API: each page is that part of the whole order, however many runs were sorted."""

import inspect
import json
import random
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from broker.admin import api
from broker.admin.api.lists import PIECE, RUN, ListOptions, answer_with_list

COUNT = 3 * RUN + 7
SIZE = 100


async def page(sort: str | None, reverse: bool, number: int) -> dict[str, Any]:
    """Return a page of numbered items, of which many have the same weight."""
    items = list(range(COUNT))
    random.Random(1).shuffle(items)
    options = ListOptions(number, SIZE, "", False, sort, reverse, ())
    answer = await answer_with_list(
        items,
        lambda item: {"name": f"{item:06}", "of": {"weight": item % 9}},
        options,
        lambda item: (f"{item:06}",),
        lambda item: f"{item:06}",
        {"quick": lambda item: item % 9},
    )
    assert answer.media_type == "application/json"
    document = json.loads(bytes(answer.body))
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sort", [None, "of.weight", "quick"])
async def test_pages_are_parts_of_the_order(sort: str | None, reverse: bool) -> None:
    names = [f"{item:06}" for item in range(COUNT)]
    if sort is not None:
        names.sort(key=lambda name: (int(name) % 9, name))
    if reverse:
        names.reverse()
    pages = [await page(sort, reverse, number + 1) for number in range(-(-COUNT // SIZE))]
    assert [item["name"] for each in pages for item in each["items"]] == names
    assert {each["page_count"] for each in pages} == {len(pages)}
    assert [each["item_count"] for each in pages] == [SIZE] * (len(pages) - 1) + [COUNT % SIZE]


async def test_a_page_without_an_order_is_a_page_too() -> None:
    found = [await page("", False, number) for number in (1, 2)]
    assert [each["item_count"] for each in found] == [SIZE, SIZE]
    assert not {item["name"] for item in found[0]["items"]} & {item["name"] for item in found[1]["items"]}


async def test_names_that_are_no_utf8_are_equal_with_and_without_pages() -> None:
    name = "\udc80half"
    shown: list[bytes] = []
    for number in (None, 1):
        options = ListOptions(number, SIZE, "", False, None, False, ())
        answer: Any = await answer_with_list(
            [name] * (PIECE + 1),
            lambda item: {"name": item},
            options,
            lambda item: (item,),
            lambda item: item,
        )
        whole = bytes(answer.body) if number else b"".join([part async for part in answer.body_iterator])
        document = json.loads(whole)
        assert len(document["items"] if number else document) == PIECE + 1
        shown.append(whole.split(b'{"name":')[1])
    assert shown[0] == shown[1] == b'"\\\\x80half"},'


def dependants(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for each in dependant.dependencies:
        yield from dependants(each)


def test_nothing_of_a_request_is_sent_to_another_thread() -> None:
    """A function that is no coroutine runs in a thread, which costs more than most answers."""
    modules = [import_module(f"{api.__name__}.{each.name}") for each in iter_modules(api.__path__)]
    routers = [each for module in modules for each in vars(module).values() if isinstance(each, APIRouter)]
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    assert len(routes) > 100
    calls = {each.call for route in routes for each in dependants(route.dependant)}
    assert [call for call in calls if not inspect.iscoroutinefunction(call)] == []
