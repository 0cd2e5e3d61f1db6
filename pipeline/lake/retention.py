"""Deletion of old sealed files, and the list of sealed files.

The manifest has a line of JSON for each sealed file, which the broker's `journal seal` writes, and lines
about dropped days; see protocol/journal/files.py.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from hashlib import file_digest
from pathlib import Path
from typing import Any, Final, NamedTuple

from pipeline.errors import PipelineError
from protocol.journal.files import LOCK, MANIFEST, PARQUET, Drop, drop_line, read_drops

PATIENCE_S: Final = 30.0  # for a sealer: `seal --follow` runs every few seconds, mostly for a moment
LOOK_S: Final = 0.1
_DAY: Final = re.compile(r"date=(\d{4}-\d{2}-\d{2})")


class Entry(NamedTuple):
    """A sealed file: path in the folder, records, microseconds since 1970, SHA-256, and its line."""

    file: str
    rows: int
    latest: int
    sha256: str
    line: str


def entries(folder: Path) -> Iterator[Entry]:
    """Yield the files in a manifest, dropped or not.

    Malformed lines are skipped, as a crash may cut a line.
    """
    for line in _lines(folder):
        try:
            value: dict[str, Any] = json.loads(line)
            yield Entry(value["file"], value["rows"], value["latest"], value["sha256"], line)
        except (ValueError, KeyError, TypeError):
            continue


def list_dropped(folder: Path) -> list[Drop]:
    """Return the days that were dropped, or would have been when their run was killed, in that order."""
    return list(read_drops(_lines(folder)))


def note_dropped(folder: Path, day: str, rows: int) -> None:
    """Append the line about a dropped day and sync it: then its files may be deleted."""
    path = folder / MANIFEST
    with path.open("ab") as file:
        if file.tell() > 0 and not path.read_bytes().endswith(b"\n"):
            file.write(b"\n")  # a crash has cut the last line
        file.write(drop_line(day, rows).encode())
        file.flush()
        os.fsync(file.fileno())


def _lines(folder: Path) -> list[str]:
    try:
        return (folder / MANIFEST).read_text().splitlines()
    except FileNotFoundError:
        return []


class _Known(NamedTuple):
    """The manifest: its entries by file, and the files of dropped days, which may be missing."""

    entries: dict[str, Entry]
    gone: set[str]


def retain(folder: Path, keep: float, now: datetime) -> dict[str, Any]:
    """Delete the folders of days that ended more than `keep` seconds before `now`; return the deleted days.

    Each file of a day must be in the manifest with its SHA-256. Each file that the manifest has for the day
    must exist, unless it was dropped before: a file may be sealed into a dropped day later. Otherwise nothing
    of the day is deleted. Raises PipelineError with the first fault, after the other days are done, or if
    another process is sealing. The manifest keeps its lines, so that no event is sealed again, and gets one
    line for each day before its deletion.
    """
    parquet = folder / PARQUET
    if not parquet.is_dir():
        raise PipelineError(f"no sealed journal in '{folder}'")
    with _lock_journal(folder):
        known, rows = _look(folder)
        deleted = {day: rows.get(day, 0) for day in _delete_hidden(parquet)}  # left by a killed run
        wrong: list[str] = []
        for path in sorted(parquet.glob("date=*")):
            day = _day(path)
            if day is None or not _is_over(day, keep, now):
                continue
            there = _files(folder, path)
            reason = _difference(folder, path, there, known)
            if reason:
                wrong.append(reason)
                continue
            count = sum(known.entries[name].rows for name in there)
            note_dropped(folder, path.name, count)
            path.rename(path.with_name(f".{path.name}"))  # hides the whole day from readers at once
            deleted[path.name] = deleted.get(path.name, 0) + count
        _delete_hidden(parquet)
    if wrong:
        raise PipelineError(f"{wrong[0]}; nothing of that day was deleted ({len(deleted)} other days were)")
    return {"dropped": sorted(deleted), "rows": sum(deleted.values())}


def _look(folder: Path) -> tuple[_Known, dict[str, int]]:
    """Read the manifest, and the number of events that each day had when it was dropped last."""
    drops = list_dropped(folder)
    known = _Known(
        {entry.file: entry for entry in entries(folder)}, {file for drop in drops for file in drop.files}
    )
    return known, {drop.day: drop.rows for drop in drops}


def _day(path: Path) -> date | None:
    match = _DAY.fullmatch(path.name)
    return date.fromisoformat(match[1]) if match else None


def _is_over(day: date, keep: float, now: datetime) -> bool:
    end = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
    return end + timedelta(seconds=keep) <= now


def _files(folder: Path, day: Path) -> set[str]:
    """Return the files of a day. Remains of a killed sealer are hidden files."""
    return {str(path.relative_to(folder)) for path in day.rglob("[!.]*") if not path.is_dir()}


def _difference(folder: Path, day: Path, there: set[str], known: _Known) -> str:
    """Return how a day's files differ from the manifest; empty if they do not."""
    prefix = str(day.relative_to(folder)) + "/"
    for name in sorted({name for name in known.entries if name.startswith(prefix)} - there - known.gone):
        return f"{name} is listed in the manifest, but missing"
    for name in sorted(there):
        if name not in known.entries:
            return f"{name} is not in the manifest"
        with (folder / name).open("rb") as file:
            if file_digest(file, "sha256").hexdigest() != known.entries[name].sha256:
                return f"{name} is not what the manifest says"
    return ""


def _delete_hidden(parquet: Path) -> list[str]:
    """Delete the hidden days of this run or of one that was killed; return these days."""
    hidden = sorted(parquet.glob(".date=*"))
    if hidden:
        _sync_folder(parquet)  # otherwise a crash could restore a partly deleted day
    for path in hidden:
        shutil.rmtree(path)
    return [path.name[1:] for path in hidden]


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _lock_journal(folder: Path) -> Iterator[None]:
    """Lock a journal against sealing: a file sealed into a deleted day would be lost.

    Raises PipelineError: another process seals files and does not end in time.
    """
    late = time.monotonic() + PATIENCE_S
    with (folder / LOCK).open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= late:
                    raise PipelineError(f"'{folder}' is being sealed by another process") from error
            time.sleep(LOOK_S)
        yield
