"""The catalogue of a journal: the events that each file has, from file names and the manifest's lines."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Literal, NamedTuple

from protocol.journal.files import DAY, LIVE, OPEN, day_number, file_name, parsed, sealed_name, sealed_path

State = Literal["open", "ended", "sealed"]
"""`open` is the raw file that is written, or that a crash has left."""


class File(NamedTuple):
    """A file with the events of `node` from the seq `first` to `last`; some may be missing.

    `last`: None: it is the last raw one, and only its bytes tell. `earliest` and `latest`: microseconds since
    1970 of a sealed one.
    """

    name: str
    node: str
    state: State
    first: int
    last: int | None
    earliest: int | None = None
    latest: int | None = None

    @property
    def path(self) -> str:
        """Where it is in the journal's folder; one that is open is ended at any time."""
        if self.state == "sealed":
            assert self.last is not None, "its name says it"
            assert self.earliest is not None, "the manifest says it"
            return sealed_path(self.node, self.first, self.last, self.earliest)
        return f"{LIVE}/{self.name}{OPEN if self.state == 'open' else ''}"


class Extent(NamedTuple):
    """The range of a node's journal: from `first` to before `next`, both seqs. `next` is None if unknown."""

    first: int
    next: int | None


class _Node:
    """The files of one node. Of the sealed ones, which may be very many, there are only numbers."""

    def __init__(self) -> None:
        self.firsts = array("q")
        self.lasts = array("q")
        self.earliest = array("q")
        self.latest = array("q")
        self.lines = array("q")  # which line of the manifest tells of it
        self.kept = 0  # those before this one have been let go
        self.raw: list[int] = []  # first seqs; others are another list, for who is listing these
        self.open: set[int] = set()

    def add(self, first: int, last: int, earliest: int, latest: int, line: int) -> None:
        at = bisect_left(self.firsts, first)
        if at < len(self.firsts) and self.firsts[at] == first:
            return
        columns = (self.firsts, self.lasts, self.earliest, self.latest, self.lines)
        for column, value in zip(columns, (first, last, earliest, latest, line), strict=True):
            column.insert(at, value)
        self.kept = min(self.kept, at)

    def last_of_raw(self, raw: list[int], at: int) -> int | None:
        """The last seq a raw file may have, as it is sealed or another one follows; None: neither."""
        first = raw[at]
        same = bisect_left(self.firsts, first)
        if same < len(self.firsts) and self.firsts[same] == first:
            return self.lasts[same]
        following = [*raw[at + 1 : at + 2], *self.firsts[same : same + 1]]
        return min(following) - 1 if following else None


class Catalogue:
    """The files of all nodes that have a journal in a folder. What it is told of is not looked at."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._days: set[int] = set()
        self._lines = 0
        self._dropped: dict[int, int] = {}  # days, and the last line that says so

    def learn(self, line: bytes) -> None:
        """Take a line of the manifest; what is none is passed over: a crash may have cut it."""
        self._lines += 1
        try:
            said = json.loads(line)
            if "dropped" in said:
                day = day_number(said["dropped"])
                if day is not None:
                    self._dropped[day] = self._lines
                return
            first, last, earliest, latest = (
                int(said[name]) for name in ("first", "last", "earliest", "latest")
            )
            node = str(said["node"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        self._nodes.setdefault(node, _Node()).add(first, last, earliest, latest, self._lines)

    def see(self, names: Iterable[str], days: Iterable[str]) -> None:
        """Take the names of the raw files that are there now, and those of the folders of days."""
        there = {day for day in map(day_number, days) if day is not None}
        for node in self._nodes.values():
            if there != self._days:
                node.kept = 0
            node.raw, node.open = [], set()
        self._days = there
        for name in names:
            found = parsed(name)
            if found is None or found.last is not None:
                continue
            own = self._nodes.setdefault(found.node, _Node())
            own.raw.append(found.first)
            if name.endswith(OPEN):
                own.open.add(found.first)
        self._nodes = {name: node for name, node in self._nodes.items() if node.raw or node.firsts}
        for node in self._nodes.values():
            node.raw = sorted(set(node.raw))
            while node.kept < len(node.firsts) and self._is_gone(node, node.kept):
                node.kept += 1

    def _is_gone(self, node: _Node, at: int) -> bool:
        """Whether retention took a sealed file; others may have been sealed into its day since."""
        day = node.earliest[at] // DAY
        return day not in self._days or node.lines[at] < self._dropped.get(day, 0)

    def extents(self) -> dict[str, Extent]:
        """How far the journal of each node goes; where all of it has been let go it begins where it ends."""
        found: dict[str, Extent] = {}
        for name, node in sorted(self._nodes.items()):
            behind = node.lasts[-1] + 1 if node.lasts else 0
            heads = [*node.firsts[node.kept : node.kept + 1], *node.raw[:1]]
            ends_raw = bool(node.raw) and node.last_of_raw(node.raw, len(node.raw) - 1) is None
            found[name] = Extent(min(heads, default=behind), None if ends_raw else behind)
        return found

    def files(self, node: str, start: int, end: int | None = None) -> Iterator[File]:
        """The files with events of `node` from the seq `start` up to `end`, exclusively.

        Of a file that has been sealed there may be two, the sealed one first. Sealed ones that were let go
        are not among them, but for those behind one that is there: it is not retention that took them.
        Whatever the catalogue is told of before the last of them, none of those of the beginning is left out.
        """
        own = self._nodes.get(node)
        if own is None:
            return iter(())
        both = (_sealed(node, own, start, end), _raw(node, own, start, end))
        return merge(*both, key=lambda file: file.first)

    def find(self, name: str) -> File | None:
        """The file with this name."""
        said = parsed(name)
        if said is None:
            return None
        files = self.files(said.node, said.first, said.first + 1)
        return next((file for file in files if file.name == name), None)


def _sealed(name: str, node: _Node, start: int, end: int | None) -> Iterator[File]:
    at = max(bisect_right(node.firsts, start) - 1, node.kept)
    while at < len(node.firsts):
        first, last = node.firsts[at], node.lasts[at]
        if end is not None and first >= end:
            return
        if last >= start:
            called = sealed_name(name, first, last)
            yield File(called, name, "sealed", first, last, node.earliest[at], node.latest[at])
        at = bisect_right(node.firsts, first)  # others may have come before it


def _raw(name: str, node: _Node, start: int, end: int | None) -> Iterator[File]:
    raw, opened = node.raw, node.open
    for at in range(max(bisect_right(raw, start) - 1, 0), len(raw)):
        first = raw[at]
        if end is not None and first >= end:
            return
        last = node.last_of_raw(raw, at)
        if last is None or last >= start:
            yield File(file_name(name, first), name, "open" if first in opened else "ended", first, last)
