"""Regular expressions over names and routing keys, whoever writes them: made and matched within bounds."""

from __future__ import annotations

import re
import re._compiler as compiling
import re._parser as parsing
import warnings
from typing import Any, Final, final

from mypy_extensions import i64

from broker.core.message import SHORT_STRING_BYTES_MAX
from broker.core.pattern_cost import search_visits
from broker.core.pattern_states import PatternStates, TooManyStates, UnboundedReference

LENGTH_MAX: Final = 8192
"""Characters of an expression: reading the longest takes a tenth of a second."""

VISITS_MAX: Final = 250_000
"""Visits of its parts that a search with Python's `re` may take: one or two milliseconds."""


@final
class NamePattern:
    """A regular expression as Python's `re` understands it, which matches anywhere unless it is anchored.

    `re` backtracks, which can take for ever. So it is asked only about names that are short enough for it to
    be quick whatever they are; for longer ones the same tree is searched state by state, each state once at
    each character. An expression for which that is no bound either, or that is none at all, matches nothing,
    and `objection` says why ("" otherwise): whoever asks for one is refused, but a log that has one is read.
    """

    def __init__(self, text: str, ignore_case: bool = False) -> None:
        self.text = text
        self.objection = ""
        self._pattern: re.Pattern[str] | None = None
        self._short: i64 = SHORT_STRING_BYTES_MAX  # characters up to which `_pattern` is quick
        self._states: PatternStates | None = None  # for longer ones, if names can be longer than that
        flags = re.IGNORECASE if ignore_case else 0
        try:
            self._make(text, int(flags))
        except (re.error, OverflowError, RecursionError, FutureWarning) as error:
            self.objection = f"is not a regular expression: {error}"
        except TooManyStates:
            self.objection = "could take too long to match: it repeats too much within repeats"
        except UnboundedReference:
            self.objection = "could take too long to match: it refers back to a group among its repeats"

    def matches(self, name: str) -> bool:
        """Whether it matches a name, or routing key, of up to 255 characters."""
        pattern = self._pattern
        if pattern is None:
            return False
        states = self._states
        if states is None or len(name) <= self._short:
            return pattern.search(name) is not None
        return states.search(name)

    def _make(self, text: str, flags: int) -> None:
        if len(text) > LENGTH_MAX:
            raise re.error(f"it is {len(text)} characters long, at most {LENGTH_MAX} are allowed")
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # what may mean something else one day is refused
            tree: Any = parsing.parse(text, flags)
        short = _quick_length(tree)
        if short < SHORT_STRING_BYTES_MAX:
            self._states = PatternStates(tree)
        self._short = short
        self._pattern = compiling.compile(tree, flags)


def _quick_length(tree: Any) -> i64:
    """The most characters that a name may have for a search to take at most VISITS_MAX visits."""
    least: i64 = -1
    most: i64 = SHORT_STRING_BYTES_MAX
    while least < most:
        middle = (least + most + 1) // 2
        if search_visits(tree, middle) <= VISITS_MAX:
            least = middle
        else:
            most = middle - 1
    return least
