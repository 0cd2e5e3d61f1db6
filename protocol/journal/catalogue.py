"""The catalogue of a journal: the events that each file has, from file names and the manifest's lines."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Literal, NamedTuple

from protocol.journal.files import (
    DAY,
    LIVE,
    OPEN,
    day_number,
    file_name,
    parse_name,
    sealed_name,
    sealed_path,
)

State = Literal["open", "ended", "sealed"]
"""`open`: the raw file that is being written, or that a crash has left open."""


class File(NamedTuple):
    """A file with the events of `node` from the seq `first` to `last`; some may be missing.

    `last`: None for the last raw file, whose end only its bytes show. `earliest` and `latest`: microseconds
    since 1970, for a sealed file.
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
        """The path in the journal's folder; an open file is completed at any time."""
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
    """The files of one node. Sealed files, which may be very many, are numbers in arrays."""

    def __init__(self) -> None:
        self.firsts = array("q")
        self.lasts = array("q")
        self.earliest = array("q")
        self.latest = array("q")
        self.lines = array("q")  # the line of the manifest for each file
        self.kept = 0  # earlier files have been deleted by retention
        self.raw: list[int] = []  # first seqs; a change makes a new list, as readers may hold the old one
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
        """Return the last seq of a raw file if the file is sealed or another one follows; otherwise None."""
        first = raw[at]
        same = bisect_left(self.firsts, first)
        if same < len(self.firsts) and self.firsts[same] == first:
            return self.lasts[same]
        following = [*raw[at + 1 : at + 2], *self.firsts[same : same + 1]]
        return min(following) - 1 if following else None


class Catalogue:
    """The files of all nodes with a journal in a folder. The catalogue reads no files itself."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._days: set[int] = set()
        self._lines = 0
        self._dropped: dict[int, int] = {}  # days, and the last line that drops each

    def learn(self, line: bytes) -> None:
        """Add a line of the manifest. A malformed line is skipped, as a crash may cut a line."""
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
        """Replace the names of the present raw files and of the present folders of days."""
        there = {day for day in map(day_number, days) if day is not None}
        for node in self._nodes.values():
            if there != self._days:
                node.kept = 0
            node.raw, node.open = [], set()
        self._days = there
        for name in names:
            found = parse_name(name)
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
        """Whether retention has deleted a sealed file.

        Other files may have been sealed into its day since.
        """
        day = node.earliest[at] // DAY
        return day not in self._days or node.lines[at] < self._dropped.get(day, 0)

    def extents(self) -> dict[str, Extent]:
        """Return the extent of each node's journal.

        A journal whose events are all deleted begins at its end.
        """
        found: dict[str, Extent] = {}
        for name, node in sorted(self._nodes.items()):
            behind = node.lasts[-1] + 1 if node.lasts else 0
            heads = [*node.firsts[node.kept : node.kept + 1], *node.raw[:1]]
            ends_raw = bool(node.raw) and node.last_of_raw(node.raw, len(node.raw) - 1) is None
            found[name] = Extent(min(heads, default=behind), None if ends_raw else behind)
        return found

    def files(self, node: str, start: int, end: int | None = None) -> Iterator[File]:
        """Yield the files with events of `node` from the seq `start` up to `end`, exclusively.

        A sealed file may be present twice: the sealed form comes before the raw form. Deleted sealed files
        are left out, unless they are behind a present file: retention deletes the oldest first. Lines and
        names may be added before the last file is yielded; no file of the beginning is left out then.
        """
        own = self._nodes.get(node)
        if own is None:
            return iter(())
        both = (_sealed(node, own, start, end), _raw(node, own, start, end))
        return merge(*both, key=lambda file: file.first)

    def find(self, name: str) -> File | None:
        """Return the file with this name; None without one."""
        said = parse_name(name)
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
        at = bisect_right(node.firsts, first)  # earlier files may have been added


def _raw(name: str, node: _Node, start: int, end: int | None) -> Iterator[File]:
    raw, opened = node.raw, node.open
    for at in range(max(bisect_right(raw, start) - 1, 0), len(raw)):
        first = raw[at]
        if end is not None and first >= end:
            return
        last = node.last_of_raw(raw, at)
        if last is None or last >= start:
            yield File(file_name(name, first), name, "open" if first in opened else "ended", first, last)
