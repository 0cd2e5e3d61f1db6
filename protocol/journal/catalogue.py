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
    parse_file_name,
    sealed_name,
    sealed_path,
)

State = Literal["open", "ended", "sealed"]
"""The state of a file. `open`: a raw file that is being written, or that a crash has left."""


class File(NamedTuple):
    """A file with the events of `node` from the seq `first` to `last`; some may be missing.

    `last`: None for the last raw file, whose last event is known from its bytes only. `earliest`, `latest`:
    the times of a sealed file's events, in microseconds since 1970.
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
        """The path in the journal's folder. An open file can be ended, and so renamed, at any time."""
        if self.state == "sealed":
            assert self.last is not None, "the name of a sealed file has the last seq"
            assert self.earliest is not None, "the manifest has the time of each sealed file"
            return sealed_path(self.node, self.first, self.last, self.earliest)
        return f"{LIVE}/{self.name}{OPEN if self.state == 'open' else ''}"


class Extent(NamedTuple):
    """The range of a node's journal: from `first` to before `next`, both seqs. `next` is None if unknown."""

    first: int
    next: int | None


class _Node:
    """The files of a node. Sealed files, which may be very many, are kept as numbers only."""

    def __init__(self) -> None:
        self.firsts = array("q")
        self.lasts = array("q")
        self.earliest = array("q")
        self.latest = array("q")
        self.lines = array("q")  # the number of the file's line in the manifest
        self.kept = 0  # the index of the first sealed file that is not deleted
        self.raw: list[int] = []  # first seqs; replaced as a whole, so that iterations continue
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
        """Return the last possible seq of a raw file, from its sealed file or the next file; else None."""
        first = raw[at]
        same = bisect_left(self.firsts, first)
        if same < len(self.firsts) and self.firsts[same] == first:
            return self.lasts[same]
        following = [*raw[at + 1 : at + 2], *self.firsts[same : same + 1]]
        return min(following) - 1 if following else None


class Catalogue:
    """The files of all nodes that have a journal in a folder. The catalogue never opens a file."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._days: set[int] = set()
        self._lines = 0
        self._dropped: dict[int, int] = {}  # by day, the last line that drops the day

    def add_line(self, line: bytes) -> None:
        """Add a line of the manifest. Malformed lines are ignored, because a crash may cut a line."""
        self._lines += 1
        try:
            entry = json.loads(line)
            if "dropped" in entry:
                day = day_number(entry["dropped"])
                if day is not None:
                    self._dropped[day] = self._lines
                return
            first, last, earliest, latest = (
                int(entry[name]) for name in ("first", "last", "earliest", "latest")
            )
            node = str(entry["node"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        self._nodes.setdefault(node, _Node()).add(first, last, earliest, latest, self._lines)

    def set_present(self, names: Iterable[str], days: Iterable[str]) -> None:
        """Set the names of the present raw files, and of the present folders of days."""
        present = {day for day in map(day_number, days) if day is not None}
        for node in self._nodes.values():
            if present != self._days:
                node.kept = 0
            node.raw, node.open = [], set()
        self._days = present
        for name in names:
            parsed = parse_file_name(name)
            if parsed is None or parsed.last is not None:
                continue
            node_files = self._nodes.setdefault(parsed.node, _Node())
            node_files.raw.append(parsed.first)
            if name.endswith(OPEN):
                node_files.open.add(parsed.first)
        self._nodes = {name: node for name, node in self._nodes.items() if node.raw or node.firsts}
        for node in self._nodes.values():
            node.raw = sorted(set(node.raw))
            while node.kept < len(node.firsts) and self._is_deleted(node, node.kept):
                node.kept += 1

    def _is_deleted(self, node: _Node, at: int) -> bool:
        """Whether retention has deleted a sealed file; later files of its day may exist."""
        day = node.earliest[at] // DAY
        return day not in self._days or node.lines[at] < self._dropped.get(day, 0)

    def extents(self) -> dict[str, Extent]:
        """Return the extent of each node's journal. If all files are deleted, `first` equals `next`."""
        extents: dict[str, Extent] = {}
        for name, node in sorted(self._nodes.items()):
            behind = node.lasts[-1] + 1 if node.lasts else 0
            heads = [*node.firsts[node.kept : node.kept + 1], *node.raw[:1]]
            ends_raw = bool(node.raw) and node.last_of_raw(node.raw, len(node.raw) - 1) is None
            extents[name] = Extent(min(heads, default=behind), None if ends_raw else behind)
        return extents

    def files(self, node: str, start: int, end: int | None = None) -> Iterator[File]:
        """Iterate over the files with events of `node` from the seq `start` up to `end`, exclusively.

        A sealed file may also be present as a raw file, which follows the sealed file. Sealed files that
        retention has deleted are left out. Deleted files after a present file are included, because
        retention has not deleted these. Changes of the catalogue during the iteration add files, and remove
        none.
        """
        node_files = self._nodes.get(node)
        if node_files is None:
            return iter(())
        both = (_sealed(node, node_files, start, end), _raw(node, node_files, start, end))
        return merge(*both, key=lambda file: file.first)

    def find(self, name: str) -> File | None:
        """Return the file with this name, None if unknown."""
        parts = parse_file_name(name)
        if parts is None:
            return None
        files = self.files(parts.node, parts.first, parts.first + 1)
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
        at = bisect_right(node.firsts, first)  # files may have been inserted before this file


def _raw(name: str, node: _Node, start: int, end: int | None) -> Iterator[File]:
    raw, opened = node.raw, node.open
    for at in range(max(bisect_right(raw, start) - 1, 0), len(raw)):
        first = raw[at]
        if end is not None and first >= end:
            return
        last = node.last_of_raw(raw, at)
        if last is None or last >= start:
            yield File(file_name(name, first), name, "open" if first in opened else "ended", first, last)
