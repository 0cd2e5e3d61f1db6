"""Journals where they are: in a folder, or with their broker. Both tell the same."""

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


class GoneError(PipelineError):
    """A file is not there any more: it has been sealed, or let go."""


class Journal(Protocol):
    """The journals of some nodes. Raises PipelineError everywhere."""

    @property
    def where(self) -> str:
        """The folder or the URL, for people."""

    def extents(self) -> dict[str, Extent]:
        """How far the journal of each node goes now."""

    def files(self, node: str, start: int, end: int | None = None) -> list[File]:
        """The files with events of `node` from one seq to another, as Catalogue has them."""

    def read(self, file: File, start: int, size: int) -> bytes:
        """Bytes of a file: fewer only where it ends, for now. Raises GoneError."""

    def opened(self, file: File) -> Any:
        """A sealed file, for pyarrow. Raises GoneError."""


class FolderJournal:
    """A journal in the local file system, beside a broker that writes it, or none."""

    def __init__(self, folder: str) -> None:
        self.where = folder
        self._folder = Path(folder)
        self._read = 0  # bytes of the manifest
        self._catalogue = Catalogue()

    def extents(self) -> dict[str, Extent]:
        """How far the journal of each node goes now (Journal)."""
        self._look()
        found = self._catalogue.extents()
        if not found and not (self._folder / LIVE).is_dir():
            raise PipelineError(f"no journal in '{self.where}': it has neither {LIVE} nor {MANIFEST}")
        return found

    def files(self, node: str, start: int, end: int | None = None) -> list[File]:
        """The files with events of `node` from one seq to another (Journal)."""
        self._look()
        return list(self._catalogue.files(node, start, end))

    def read(self, file: File, start: int, size: int) -> bytes:
        """Bytes of a file (Journal)."""
        for path in (file.path, file._replace(state="ended").path):
            try:
                with open(self._folder / path, "rb") as opened:
                    opened.seek(start)
                    return opened.read(size)
            except FileNotFoundError:
                continue
        raise GoneError(f"'{file.name}' is not in '{self.where}' any more")

    def opened(self, file: File) -> Any:
        """A sealed file (Journal)."""
        try:
            return pa.memory_map(str(self._folder / file.path))
        except FileNotFoundError as error:
            raise GoneError(f"'{file.name}' is not in '{self.where}' any more") from error

    def _look(self) -> None:
        """Read what the manifest has more than before, and which files there are."""
        try:
            with open(self._folder / MANIFEST, "rb") as manifest:
                if os.fstat(manifest.fileno()).st_size < self._read:  # it is another one
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
        """How far the journal of each node goes now (Journal)."""
        said = self._server.get("journal")
        return {node: Extent(each["first"], each["next"]) for node, each in said["nodes"].items()}

    def files(self, node: str, start: int, end: int | None = None) -> list[File]:
        """The files with events of `node` from one seq to another (Journal)."""
        return list(self._files(node, start, end))

    def read(self, file: File, start: int, size: int) -> bytes:
        """Bytes of a file (Journal)."""
        return self._bytes(file, {"from": start, "to": start + size})

    def opened(self, file: File) -> Any:
        """A sealed file (Journal), which is kept for a while: the next batch may be out of it too."""
        return pa.BufferReader(_sealed_bytes(self, file))

    def whole(self, file: File) -> bytes:
        """All bytes of a file. Raises GoneError."""
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
            least = start = page["files"][-1]["first"] + 1  # the page before had it whole

    def _bytes(self, file: File, query: dict[str, object]) -> bytes:
        retry = Retry(self._server)
        while True:
            try:
                with self._server.open("journal", "files", file.name, **query) as answer:
                    return answer.read()
            except RefusedError as error:
                if error.status == NOT_FOUND:
                    raise GoneError(str(error)) from error
                if error.status == NOT_SATISFIABLE:
                    return b""
                raise
            except ServerError as error:
                retry.fail(error)


@lru_cache(maxsize=2)
def _sealed_bytes(journal: ServedJournal, file: File) -> bytes:
    return journal.whole(file)


@lru_cache(maxsize=8)
def journal_of(options: JournalOptions) -> Journal:
    """The journal that options name; one object of it in each process, for what it remembers."""
    if options.server is not None:
        return ServedJournal(options.server)
    assert options.folder is not None, "options have been looked at"
    return FolderJournal(options.folder)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
