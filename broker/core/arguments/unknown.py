"""Warnings of arguments that have no effect: unknown names that are near to known ones.

The broker keeps unknown arguments and ignores them, as RabbitMQ does. So a misspelt argument would be ignored
in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, final

PREFIX: Final = "x-"
EDITS_MAX: Final = 2  # inserted, deleted or replaced characters between a misspelt name and the name meant
NAME_MAX: Final = 64  # no known name is nearly as long
WARNED_MAX: Final = 1000


def near_name(name: str, known: Iterable[str]) -> str:
    """Return the first of the `known` names that is nearest to `name`; "" if none is near.

    Upper and lower case, and hyphens and underscores, count as equal.
    """
    folded = _fold(name)
    if len(folded) > NAME_MAX:
        return ""
    nearest = ""
    most = EDITS_MAX
    for each in known:
        edits = _edits(folded, each, most)
        if edits <= most:
            if edits == 0:
                return each
            nearest = each
            most = edits - 1
    return nearest


def _fold(name: str) -> str:
    return name.lower().replace("_", "-")


def _edits(one: str, other: str, most: int) -> int:
    """Return how many edits make `other` of `one`, or `most` + 1 if more than `most`. [Levenshtein]"""
    if abs(len(one) - len(other)) > most:
        return most + 1
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        before = row[0]
        row[0] = least = number
        for place, its in enumerate(other, 1):
            edits = min(before + (letter != its), row[place] + 1, row[place - 1] + 1)
            before = row[place]
            row[place] = edits
            least = min(least, edits)
        if least > most:
            return most + 1
    return row[-1]


@final
class UnknownArguments:
    """The unknown arguments of one virtual host, each of which is warned of once for an object.

    The memory is bounded. When it is full it is cleared, and then a warning may be repeated.
    """

    def __init__(self) -> None:
        self._warned: set[tuple[str, str]] = set()

    def warnings(self, arguments: Mapping[str, object], known: Iterable[str], owner: str) -> list[str]:
        """Return the warnings of the `arguments` of `owner`, `queue 'q' in vhost '/'`, that are new.

        `known`: the names of arguments that objects of this kind may have.
        """
        if not arguments:
            return []
        found: list[str] = []
        names = list(known)
        for name in arguments:
            if name in names or not _fold(name).startswith(PREFIX) or (owner, name) in self._warned:
                continue
            text = self._warning(name, names, owner)
            if text:
                if len(self._warned) >= WARNED_MAX:
                    self._warned.clear()
                self._warned.add((owner, name))
                found.append(text)
        return found

    def _warning(self, name: str, known: list[str], owner: str) -> str:
        near = near_name(name, known)
        if not near:
            return ""
        return f"arg '{name}' of {owner} is unknown and has no effect: was '{near}' meant?"
