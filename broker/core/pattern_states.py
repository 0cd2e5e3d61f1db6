"""A search that takes a regular expression state by state, and so tries nothing twice."""

from __future__ import annotations

import re
import re._compiler as compiling
import re._constants as ops
import re._parser as parsing
from typing import Any, Final, final

from mypy_extensions import i64

from broker.core.message import SHORT_STRING_BYTES_MAX
from broker.core.pattern_cost import REPEATS, cost_of, refers_back

WEIGHT_MAX: Final = 1000
"""What all states may weigh together: each of them is looked at once at each character of a name."""

VISITS_OF_A_STATE: Final = 32
"""So many visits by `re` take as long as one state here."""

MATCHED: Final = 0


class TooManyStates(Exception):  # noqa: N818  it is said of an expression
    """The states would take too long."""


class UnboundedReference(Exception):  # noqa: N818
    """What matches depends on what a group has matched, and so on more than the place in the text."""


@final
class PatternStates:
    """The states of an expression, made of the tree that `re` has parsed.

    What can match in one way only from where it stands, literals, classes, assertions, atomic groups, is one
    state and left to `re`; choices and repeats are the ways between states. A state at a character either
    leads to a match or does not, however it was come to: so it is looked at once. Raises TooManyStates,
    UnboundedReference.
    """

    def __init__(self, tree: Any) -> None:
        if refers_back(tree):
            raise UnboundedReference
        self._weight: i64 = 0
        self._steps: list[re.Pattern[str] | None] = [None]  # what a state takes of the text, if anything
        self._ways: list[list[int]] = [[]]  # where it goes on
        self._state = tree.state
        self._first: int = self._row(tree, MATCHED, 0, 0)

    def search(self, text: str) -> bool:
        """Whether the expression matches anywhere in a text."""
        places = len(text) + 1
        first = self._first * places
        seen = bytearray(len(self._steps) * places)
        waiting = list(range(first, first + places))
        while waiting:
            place = waiting.pop()
            if seen[place]:
                continue
            seen[place] = 1
            state = place // places
            if state == MATCHED:
                return True
            at = place - state * places
            step = self._steps[state]
            if step is not None:
                found = step.match(text, at)
                if found is None:
                    continue
                at = found.end()
            for way in self._ways[state]:
                waiting.append(way * places + at)  # noqa: PERF401  compiled, this is the faster one
        return False

    def _row(self, items: Any, then: int, on: int, off: int) -> int:
        """The state that begins a row of parts and goes on with `then`; `on`, `off`: the flags in it."""
        row: list[Any] = list(items)
        single: list[Any] = []
        while row:
            item = row.pop()
            if cost_of([item], SHORT_STRING_BYTES_MAX).ways == 1:
                single.insert(0, item)
                continue
            then = self._several(item, self._single(single, then, on, off), on, off)
            single = []
        return self._single(single, then, on, off)

    def _single(self, items: list[Any], then: int, on: int, off: int) -> int:
        """The state of a row that matches in one way at most."""
        if not items:
            return then
        row = parsing.SubPattern(self._state, items)
        visits = cost_of(row, SHORT_STRING_BYTES_MAX).visits
        whole = parsing.SubPattern(self._state, [(ops.SUBPATTERN, (None, on, off, row))])
        return self._add(compiling.compile(whole, 0), [then], visits // VISITS_OF_A_STATE)

    def _several(self, item: Any, then: int, on: int, off: int) -> int:
        """The state that begins a part which can match in several ways."""
        op, argument = item
        if op is ops.SUBPATTERN:
            _, more, less, row = argument
            return self._row(row, then, (on & ~less) | more, (off & ~more) | less)
        if op is ops.BRANCH:
            return self._add(None, [self._row(row, then, on, off) for row in argument[1]])
        assert op in REPEATS, op
        least, most, row = argument
        if row.getwidth()[1] == 0:
            least = min(least, 1)  # what matches nothing but places does so once or as often as you like
        if most is ops.MAXREPEAT:
            again = self._add(None, [then])
            self._ways[again].append(self._row(row, again, on, off))
            then = again
        else:
            rest = then
            for _ in range(most - least):
                rest = self._add(None, [then, self._row(row, rest, on, off)])
            then = rest
        for _ in range(least):
            then = self._row(row, then, on, off)
        return then

    def _add(self, step: re.Pattern[str] | None, ways: list[int], weight: int = 0) -> int:
        self._weight += 1 + weight
        if self._weight > WEIGHT_MAX:
            raise TooManyStates
        self._steps.append(step)
        self._ways.append(ways)
        return len(self._steps) - 1
