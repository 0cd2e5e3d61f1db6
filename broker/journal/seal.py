"""Sealing: completed journal files become Parquet files, for readers of very many events. Needs pyarrow.

A Parquet file is written under a name that begins with a dot, synced, renamed, and then listed in the
manifest. So a file under its final name is complete. Sealing again after a crash writes the same file again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq

from broker.journal.files import Sealed, dropped_paths, format_line, list_raw_files, read_manifest
from broker.journal.reader import JournalError
from protocol.journal.columns import table_of
from protocol.journal.decoder import Decoder, Hole, JournalDamagedError
from protocol.journal.files import LOCK, MANIFEST, OPEN, parse_file_name, sealed_path

_GROWING: Final = ("seq", "ts", "msg_uid", "qpos")
ROWS_OF_GROUP: Final = 1 << 20


class BusyError(JournalError):
    """Another process seals or deletes files now; try again later."""


class SealedNow(NamedTuple):
    """A file that was sealed, its unreadable parts, and the number of files left to look at."""

    sealed: Sealed
    holes: list[Hole]
    remaining: int


def seal(folder: Path) -> Generator[SealedNow, None, None]:
    """Seal all completed files in a journal's folder that are not sealed yet.

    Raises JournalError: a file cannot be read; BusyError; OSError.
    """
    with _lock_journal(folder):
        sealed = {(each.node, each.first) for each in read_manifest(folder / MANIFEST)}
        complete = [path for path in list_raw_files(folder) if not path.name.endswith(OPEN)]
        for number, path in enumerate(complete, 1):
            try:
                decoder = Decoder(path.read_bytes())
            except JournalDamagedError as error:
                raise JournalError(f"{path} cannot be sealed: {error}") from error
            if (decoder.header.node, decoder.header.first) in sealed:
                continue
            yield SealedNow(_seal(folder, decoder), decoder.holes, len(complete) - number)


def delete_sealed(folder: Path, now: float, retention: float) -> list[Path]:
    """Delete raw files that are sealed and were completed `retention` seconds ago; return their paths.

    `now`: seconds since 1970. Raises the errors of `seal`. The sealed file must exist and be complete, unless
    its day was dropped.
    """
    gone = []
    with _lock_journal(folder):
        sealed = {(each.node, each.first): each for each in read_manifest(folder / MANIFEST)}
        unneeded = dropped_paths(folder / MANIFEST)
        for path in list_raw_files(folder):
            if path.name.endswith(OPEN) or now - path.stat().st_mtime < retention:
                continue
            parsed = parse_file_name(path.name)
            each = None if parsed is None else sealed.get((parsed.node, parsed.first))
            if each is None:
                continue
            if each.file not in unneeded or (folder / each.file).exists():
                _require_whole(folder, each)
            path.unlink()
            gone.append(path)
    return gone


def _require_whole(folder: Path, sealed: Sealed) -> None:
    path = folder / sealed.file
    try:
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise JournalError(f"{path} is listed in the manifest, but missing; raw files are kept") from error
    if digest != sealed.sha256:
        raise JournalError(f"{path} differs from its digest in the manifest; raw files are kept")


def _seal(folder: Path, decoder: Decoder) -> Sealed:
    table = table_of(decoder)
    header = decoder.header
    rows = table.num_rows
    times = pc.min_max(table["ts"].cast("int64")).as_py()
    last = table["seq"][-1].as_py() if rows else header.first - 1
    earliest = times["min"] or header.created
    path = folder / sealed_path(header.node, header.first, last, earliest)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = _write(table, path)
    sealed = Sealed(
        str(path.relative_to(folder)),
        header.node,
        rows,
        header.first,
        last,
        earliest,
        times["max"] or header.created,
        digest,
        bool(rows) and table["op"][-1].as_py() == "end",
    )
    _note(folder / MANIFEST, sealed)
    return sealed


def _write(table: Any, path: Path) -> str:
    """Write a file and sync it before it gets its name; return its SHA-256."""
    dotted = path.with_name("." + path.name)
    pq.write_table(
        table,
        dotted,
        compression="zstd",
        row_group_size=ROWS_OF_GROUP,
        use_dictionary=[name for name in table.schema.names if name not in _GROWING],
        column_encoding=dict.fromkeys(_GROWING, "DELTA_BINARY_PACKED"),
    )
    with dotted.open("rb+") as file:
        digest = file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    dotted.rename(path)
    _sync_folder(path.parent)
    return digest


def _note(manifest: Path, sealed: Sealed) -> None:
    with manifest.open("ab") as file:
        if file.tell() > 0 and not manifest.read_bytes().endswith(b"\n"):
            file.write(b"\n")  # a crash has cut the last line
        file.write(format_line(sealed).encode())
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _lock_journal(folder: Path) -> Iterator[None]:
    """Lock a journal against other processes that seal or delete files. Raises JournalError, BusyError."""
    if not folder.is_dir():
        raise JournalError(f"no journal in {folder}")
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            why = f"{folder} is being sealed by another process, or old days of it deleted"
            raise BusyError(why) from error
        yield
