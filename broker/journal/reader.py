"""Journals on disk, read while a broker writes: events in the order of their seqs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from broker.journal.files import Sealed, dropped_paths, list_raw_files, read_manifest
from protocol.journal.decoder import Decoder, JournalDamagedError
from protocol.journal.files import MANIFEST, OPEN, parse_file_name
from protocol.journal.rows import EventRow, rows


class JournalError(Exception):
    """The command cannot be done; the text has the reason."""


def sealed_rows(path: Path, node: str) -> Iterator[EventRow]:
    """Yield the events of a sealed file.

    Raises JournalError without pyarrow, OSError, and ArrowInvalid for another file.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        raise JournalError(
            f"to read sealed files, as {path.name}, needs pyarrow: pip install 'amqpd[journal]'"
        ) from error

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches():
            at = batch.schema.get_field_index("ts")
            numbers = batch.set_column(at, "ts", batch.column(at).cast(pa.int64()))
            for each in numbers.to_pylist():
                yield EventRow(**each)


class Damage(NamedTuple):
    """Unreadable bytes of a file, from `start` up to `end`, and the reason. No bounds: the whole file."""

    path: Path
    start: int
    end: int
    why: str

    def text(self) -> str:
        """Return the damage as a line."""
        where = f"bytes {self.start} to {self.end}: " if self.end > self.start else ""
        return f"{self.path}: {where}{self.why}"


class JournalReader:
    """The events of all journals in a folder, one node after the other. `damages` grows with the reading.

    The raw form of a sealed file is read as long as it exists, then the Parquet file. Files that retention
    has deleted are not missed: a journal begins behind them.

    Raises JournalError: the folder has no journal, or none of `node`.
    """

    def __init__(self, folder: Path, node: str | None = None) -> None:
        self.folder = folder
        self.damages: list[Damage] = []
        self.live = list_raw_files(folder, node)
        known = {_node_and_first(path) for path in self.live}
        sealed = [each for each in read_manifest(folder / MANIFEST) if node is None or each.node == node]
        gone = dropped_paths(folder / MANIFEST)
        self.sealed = [
            each
            for each in sealed
            if (each.node, each.first) not in known
            and not (each.file in gone and not (folder / each.file).exists())
        ]
        if not self.live and not sealed:
            whose = "" if node is None else f" of node '{node}'"
            raise JournalError(f"no journal{whose} in {folder}")

    def raw_bytes(self) -> int:
        """Return the bytes of the raw files; a file deleted since counts as empty."""
        return sum(_size_of(path) for path in self.live)

    def rows(self) -> Iterator[EventRow]:
        """Yield all events. `damages` are those of this reading."""
        self.damages.clear()
        files: list[tuple[str, int, Path | Sealed]] = [(each.node, each.first, each) for each in self.sealed]
        files += [(*_node_and_first(path), path) for path in self.live]
        for _, _, file in sorted(files, key=lambda each: each[:2]):
            yield from self._sealed_rows(file) if isinstance(file, Sealed) else self._rows_of(file)

    def _sealed_rows(self, sealed: Sealed) -> Iterator[EventRow]:

        path = self.folder / sealed.file
        try:
            yield from sealed_rows(path, sealed.node)
        except FileNotFoundError:
            if sealed.file not in dropped_paths(self.folder / MANIFEST):  # otherwise it was dropped meanwhile
                self.damages.append(Damage(path, 0, 0, "it is listed in the manifest, but missing"))
        except ValueError as error:  # pyarrow's error
            self.damages.append(Damage(path, 0, 0, f"it cannot be read: {error}"))

    def _rows_of(self, path: Path) -> Iterator[EventRow]:
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # the file was completed or sealed meanwhile
            path = path.with_name(path.name.removesuffix(OPEN))
            try:
                data = path.read_bytes()
            except FileNotFoundError:  # or deleted
                origin = _node_and_first(path)
                for sealed in read_manifest(self.folder / MANIFEST):
                    if (sealed.node, sealed.first) == origin:
                        yield from self._sealed_rows(sealed)
                return
        try:
            decoder = Decoder(data)
        except JournalDamagedError as error:
            if data or not path.name.endswith(OPEN):
                self.damages.append(Damage(path, 0, len(data), str(error)))
            return
        yield from rows(decoder)
        for hole in decoder.holes:
            if hole.end < len(data) or not path.name.endswith(OPEN):  # otherwise it is being written
                self.damages.append(Damage(path, hole.start, hole.end, "it is no complete block"))


def _size_of(path: Path) -> int:
    for name in (path.name, path.name.removesuffix(OPEN)):  # the file may have been completed meanwhile
        with suppress(FileNotFoundError):
            return path.with_name(name).stat().st_size
    return 0


def _node_and_first(path: Path) -> tuple[str, int]:
    parsed = parse_file_name(path.name)
    assert parsed is not None, "it is one of the live files"
    return parsed.node, parsed.first
