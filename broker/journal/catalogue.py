"""The journal's files for readers, while files are written, sealed and deleted."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from io import FileIO
from typing import Final, NamedTuple

from broker.journal.recorder import Recorder
from broker.journal.writer import JournalWriter
from protocol.journal.catalogue import Catalogue, Extent, File
from protocol.journal.files import LIVE, MANIFEST, PARQUET

STEP_BYTES: Final = 32 * 1024  # the part of the manifest that is read in one step
SETTLED_NS: Final = 1_000_000_000  # a folder changed more recently may change again without a new time


class _Folder:
    """The names in a folder, which are read again after a change."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._changed = -1
        self.names: list[str] = []

    def look(self) -> bool:
        """Read the names; return whether they may have changed. Raises OSError for an existing folder."""
        try:
            changed = os.stat(self._path).st_mtime_ns
            if changed == self._changed:
                return False
            self.names = os.listdir(self._path)
        except FileNotFoundError:
            known, self.names, self._changed = self.names, [], -1
            return bool(known)
        self._changed = changed if time.time_ns() - changed > SETTLED_NS else -1
        return True


class Chosen(NamedTuple):
    """An open file for reading, and the number of its complete bytes."""

    file: FileIO
    size: int


class ServedJournal:
    """The journals in a broker's folder: its own, of `recorder` and `writer`, and others."""

    def __init__(self, recorder: Recorder, writer: JournalWriter) -> None:
        self.recorder = recorder
        self.writer = writer
        folder = str(writer.folder)
        self._manifest = os.path.join(folder, MANIFEST)
        self._known = (0, 0)  # identity of the manifest, and the bytes read of it
        self._live = _Folder(os.path.join(folder, LIVE))
        self._days = _Folder(os.path.join(folder, PARQUET))
        self._catalogue = Catalogue()

    def refresh(self) -> Generator[None, None, None]:
        """Read the folder and the manifest again, in small steps. Raises OSError."""
        while self._learn():
            yield
        if any([self._live.look(), self._days.look()]):
            self._catalogue.set_present(self._live.names, self._days.names)
        yield

    def extents(self) -> dict[str, Extent]:
        """Return the extent of each node's journal at the last `refresh`; the broker's own is current."""
        extents = self._catalogue.extents()
        begins, own = self.writer.begins, self.writer.node
        if own in extents or self.recorder.on:
            first = min(extents[own].first, begins) if own in extents else begins
            extents[own] = Extent(first, self.writer.behind)
        return extents

    def files(self, node: str, start: int, end: int | None) -> Iterator[tuple[File, int | None]]:
        """Yield the files with events of `node` between two seqs, and their sizes; None: it is deleted."""
        for file in self._catalogue.files(node, start, end):
            last = file.last
            if last is None and node == self.writer.node:
                last = self.writer.behind - 1
            yield file._replace(last=last), self._size(file)

    def open(self, name: str) -> Chosen | None:
        """Open the file with this name, which the caller closes; None: it does not exist."""
        file = self._catalogue.find(name)
        if file is None:
            return None
        for path in self._paths(file):
            try:
                opened = FileIO(path)
            except FileNotFoundError:
                continue
            whole = self.writer.whole_bytes(name)
            return Chosen(opened, os.fstat(opened.fileno()).st_size if whole is None else whole)
        return None

    def _size(self, file: File) -> int | None:
        whole = self.writer.whole_bytes(file.name)
        if whole is not None:
            return whole
        for path in self._paths(file):
            try:
                return os.stat(path).st_size
            except FileNotFoundError:
                continue
        return None

    def _paths(self, file: File) -> list[str]:
        """Return the possible paths of a file: an open file may have been completed since."""
        paths = [file.path] if file.state != "open" else [file.path, file._replace(state="ended").path]
        return [str(self.writer.folder / path) for path in paths]

    def _learn(self) -> bool:
        """Read the next part of the manifest; return whether more may follow. Raises OSError."""
        number, at = self._known
        try:
            with open(self._manifest, "rb") as file:
                stat = os.fstat(file.fileno())
                if stat.st_ino != number or stat.st_size < at:
                    number, at = stat.st_ino, 0
                file.seek(at)
                data = file.read(STEP_BYTES)
        except FileNotFoundError:
            return False
        whole = data.rfind(b"\n") + 1
        for line in data[:whole].splitlines():
            self._catalogue.add_line(line)
        self._known = (number, at + whole)
        return whole > 0 and at + whole < stat.st_size
