"""Journals in a folder, or served by their broker, with the same interface."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from pipeline.connector.server import RefusedError, Retry, Server, ServerError
from pipeline.errors import PipelineError
from pipeline.journal.options import JournalOptions
from protocol.journal.catalogue import Catalogue, Extent, File
from protocol.journal.files import LIVE, MANIFEST, PARQUET

NOT_FOUND: Final = 404
NOT_SATISFIABLE: Final = 416


class FileDeletedError(PipelineError):
    """A file does not exist any more: it was sealed, or deleted."""


class Journal(Protocol):
    """The journals of some nodes. All functions raise PipelineError."""

    @property
    def where(self) -> str:
        """The folder or the URL, for messages."""

    def extents(self) -> dict[str, Extent]:
        """Return the present extent of each node's journal."""

    def files(self, node: str, start: int, end: int | None = None) -> list[File]:
        """Return the files with events of `node` between two seqs, as Catalogue yields them."""

    def read(self, file: File, start: int, size: int) -> bytes:
        """Return bytes of a file: fewer than `size` only at its present end. Raises GoneError."""

    def opened(self, file: File) -> Any:
        """Return a sealed file, open for pyarrow. Raises GoneError."""


class FolderJournal:
    """A journal in the local file system, which a broker may be writing."""

    def __init__(self, folder: str) -> None:
        self.where = folder
        self._folder = Path(folder)
        self._read = 0  # bytes of the manifest that were read
        self._catalogue = Catalogue()

    def extents(self) -> dict[str, Extent]:
        """Return the present extent of each node's journal."""
        self._look()
        extents = self._catalogue.extents()
        if not extents and not (self._folder / LIVE).is_dir():
            raise PipelineError(f"no journal in '{self.where}': it has neither {LIVE} nor {MANIFEST}")
        return extents

    def files(self, node: str, start: int, end: int | None = None) -> list[File]:
        """Return the files with events of `node` between two seqs."""
        self._look()
        return list(self._catalogue.files(node, start, end))

    def read(self, file: File, start: int, size: int) -> bytes:
        """Return bytes of a file."""
        for path in (file.path, file._replace(state="ended").path):
            try:
                with open(self._folder / path, "rb") as opened:
                    opened.seek(start)
                    return opened.read(size)
            except FileNotFoundError:
                continue
        raise FileDeletedError(f"'{file.name}' is not in '{self.where}' any more")

    def opened(self, file: File) -> Any:
        """Return a sealed file, open for pyarrow."""
        try:
            return pa.memory_map(str(self._folder / file.path))
        except FileNotFoundError as error:
            raise FileDeletedError(f"'{file.name}' is not in '{self.where}' any more") from error

    def _look(self) -> None:
        """Read the new lines of the manifest, and the names of the present files."""
        try:
            with open(self._folder / MANIFEST, "rb") as manifest:
                if os.fstat(manifest.fileno()).st_size < self._read:  # the manifest was replaced
                    self._read, self._catalogue = 0, Catalogue()
                manifest.seek(self._read)
                data = manifest.read()
        except FileNotFoundError:
            data = b""
        whole = data.rfind(b"\n") + 1
        for line in data[:whole].splitlines():
            self._catalogue.add_line(line)
        self._read += whole
        self._catalogue.set_present(_names(self._folder / LIVE), _names(self._folder / PARQUET))


class ServedJournal:
    """A journal that a broker serves."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.where = server.api[0]

    def extents(self) -> dict[str, Extent]:
        """Return the present extent of each node's journal."""
        answer = self._server.get("journal")
        return {node: Extent(each["first"], each["next"]) for node, each in answer["nodes"].items()}

    def files(self, node: str, start: int, end: int | None = None) -> list[File]:
        """Return the files with events of `node` between two seqs."""
        return list(self._files(node, start, end))

    def read(self, file: File, start: int, size: int) -> bytes:
        """Return bytes of a file."""
        return self._bytes(file, {"from": start, "to": start + size})

    def opened(self, file: File) -> Any:
        """Return a sealed file (Journal), which is cached, as the next batch may need it too."""
        return pa.BufferReader(_sealed_bytes(self, file))

    def whole(self, file: File) -> bytes:
        """Return all bytes of a file. Raises GoneError."""
        return self._bytes(file, {})

    def _files(self, node: str, start: int, end: int | None) -> Iterator[File]:
        least = 0
        while True:
            page = self._server.get("journal", "files", node=node, to=end, **{"from": start})
            for each in page["files"]:
                if each["first"] >= least:
                    yield File(*(each[name] for name in File._fields))
            if not page["more"]:
                return
            least = start = page["files"][-1]["first"] + 1  # the page before had this file completely

    def _bytes(self, file: File, query: dict[str, object]) -> bytes:
        retry = Retry(self._server)
        while True:
            try:
                with self._server.open("journal", "files", file.name, **query) as answer:
                    return answer.read()
            except RefusedError as error:
                if error.status == NOT_FOUND:
                    raise FileDeletedError(str(error)) from error
                if error.status == NOT_SATISFIABLE:
                    return b""
                raise
            except ServerError as error:
                retry.fail(error)


@lru_cache(maxsize=2)
def _sealed_bytes(journal: ServedJournal, file: File) -> bytes:
    return journal.whole(file)


@lru_cache(maxsize=8)
def find_journal(options: JournalOptions) -> Journal:
    """Return the journal that options name; each process has one object for it, with its caches."""
    if options.server is not None:
        return ServedJournal(options.server)
    assert options.folder is not None, "options have been looked at"
    return FolderJournal(options.folder)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
