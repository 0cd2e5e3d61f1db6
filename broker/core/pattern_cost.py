"""What a backtracking search costs at most, judged on the tree of a regular expression.

Counted in plain integers: products of large numbers must not wrap around.
"""

from __future__ import annotations

import re
import re._constants as ops
from typing import Any, Final, NamedTuple

BIG: Final = 1 << 60
"""Stands for everything that is beyond counting."""

REPEATS: Final = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)

ONE_WAY: Final = (ops.ASSERT, ops.ASSERT_NOT, ops.ATOMIC_GROUP, ops.POSSESSIVE_REPEAT)
"""What is not tried again in another way once it has matched."""


class Cost(NamedTuple):
    """`visits`: how often parts are looked at; `ways`: in how many ways all can match from one place."""

    visits: int
    ways: int


def search_visits(tree: Any, length: int) -> int:
    """The most visits of parts that a search in a text of `length` characters can take; up to BIG."""
    visits = cost_of(tree, length).visits
    anchored = len(tree) > 0 and tree[0] in ((ops.AT, ops.AT_BEGINNING), (ops.AT, ops.AT_BEGINNING_STRING))
    if anchored and not tree.state.flags & re.MULTILINE:
        return _capped(visits + length)
    return _capped(visits * (length + 1))


def cost_of(items: Any, length: int) -> Cost:
    """What a row of parts costs from one place on: each part once for every way of those before it."""
    visits = 0
    ways = 1
    for op, argument in items:
        part = _part(op, argument, length)
        visits = _capped(visits + ways * part.visits)
        ways = _capped(ways * part.ways)
    return Cost(visits, ways)


def refers_back(tree: Any) -> bool:
    """Whether something in the tree depends on what a group has matched."""
    for op, argument in tree:
        if op in (ops.GROUPREF, ops.GROUPREF_EXISTS):
            return True
        if op in REPEATS and refers_back(argument[2]):
            return True
        if any(refers_back(part) for part in _parts(op, argument)):
            return True
    return False


def _parts(op: Any, argument: Any) -> list[Any]:
    """The rows of parts in one that is neither a single character or place nor a repeat."""
    if op is ops.SUBPATTERN:
        return [argument[3]]
    if op is ops.BRANCH:
        return list(argument[1])
    if op in (ops.ASSERT, ops.ASSERT_NOT):
        return [argument[1]]
    if op is ops.ATOMIC_GROUP:
        return [argument]
    if op is ops.GROUPREF_EXISTS:
        return [part for part in argument[1:] if part is not None]
    return []


def _part(op: Any, argument: Any, length: int) -> Cost:
    visits = 1
    ways = 0
    if op is ops.GROUPREF:
        return Cost(length, 1)
    if op in REPEATS:
        found = _repeated(argument[0], argument[1], argument[2], length)
        return Cost(found.visits, 1) if op in ONE_WAY else found
    parts = _parts(op, argument)
    if not parts:
        return Cost(1, 1)
    for part in parts:
        found = cost_of(part, length)
        visits += found.visits
        ways += found.ways
    return Cost(_capped(visits), 1 if op in ONE_WAY else _capped(ways))


def _repeated(least: int, most: int, body: Any, length: int) -> Cost:
    """Once, twice, ... as often as the text has room for it, each in all ways of the body."""
    found = cost_of(body, length)
    once = Cost(found.visits + 1, found.ways)  # a round of nothing is one too
    width = int(body.getwidth()[0])
    most = min(most, length // width if width else least + length)
    if once.ways == 1:
        return Cost(_capped(1 + (most + 1) * once.visits), max(1, most - least + 1))
    visits = 1
    ways = 0
    power = 1
    for times in range(most + 1):
        visits += power * once.visits
        ways += power if times >= least else 0
        power *= once.ways
        if visits > BIG:
            return Cost(BIG, BIG)
    return Cost(visits, max(1, ways))


def _capped(number: int) -> int:
    return min(number, BIG)
